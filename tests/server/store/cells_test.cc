// One-sided counters in the store: cells, their ends, the sweep (server/store/cells.h, CELL-1 to
// CELL-4).
#include <array>
#include <thread>

#include "tests/server/store/cells_fixture.h"

namespace rkv::server {
namespace {

TEST(OneSidedCounters, RequestsAndAtomicsChangeOneNumber) {
  CountersUnderTest t;
  ASSERT_TRUE(t.store().counters().add(as_bytes("n"), 5));
  const std::uint32_t cell = t.open("n");
  EXPECT_EQ(t.open("n"), cell) << "opened once";
  EXPECT_EQ(t.add(cell, 3), 8);
  const auto added = t.store().counters().add(as_bytes("n"), 2);
  ASSERT_TRUE(added) << to_string(added.error());
  EXPECT_EQ(added->number, 10);
  const auto swapped = t.store().counters().swap(as_bytes("n"), 10, -4);
  ASSERT_TRUE(swapped && swapped->done);
  EXPECT_EQ(swapped->number, -4);
  const auto not_swapped = t.store().counters().swap(as_bytes("n"), 10, 7);
  ASSERT_TRUE(not_swapped && !not_swapped->done);
  EXPECT_EQ(not_swapped->number, -4);
  EXPECT_EQ(t.add(cell, 0), -4);
  EXPECT_EQ(t.number("n"), -4);
}

TEST(OneSidedCounters, AnAbsentOneIsMadeOnlyWhenAskedTo) {
  CountersUnderTest t;
  EXPECT_EQ(t.store().counters().open(as_bytes("n"), false, t.network).error().code,
            Code::kNotFound);
  t.open("n");
  EXPECT_EQ(t.number("n"), 0);
  ASSERT_TRUE(t.under.put("plain", "value"));
  EXPECT_EQ(t.store().counters().open(as_bytes("plain"), true, t.network).error().code,
            Code::kWrongType);
  EXPECT_EQ(t.under.put("n", "value").error().code, Code::kWrongType);
}

TEST(OneSidedCounters, AnAdditionAfterTheEndIsVoidAndChangesNobody) {
  CountersUnderTest t;
  const std::uint32_t first = t.open("n");
  EXPECT_EQ(t.add(first, 1), 1);
  ASSERT_TRUE(t.store().remove(as_bytes("n")));
  EXPECT_EQ(t.add(first, 1), std::nullopt);
  const std::uint32_t second = t.open("n");
  EXPECT_NE(second, first) << "a cell was used again";
  EXPECT_EQ(t.add(first, 100), std::nullopt);
  EXPECT_EQ(t.number("n"), 0);
  EXPECT_EQ(t.add(second, 1), 1);
}

TEST(OneSidedCounters, WhenAllCellsAreTakenRequestsStillCount) {
  CountersUnderTest t(2);
  t.open("a");
  t.open("b");
  const auto third = t.store().counters().open(as_bytes("c"), true, t.network);
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->cell);
  EXPECT_EQ(t.store().counters().add(as_bytes("c"), 4)->number, 4);
  const auto elsewhere = t.store().counters().open(as_bytes("a"), true, t.network + 1);
  ASSERT_TRUE(elsewhere);
  EXPECT_FALSE(elsewhere->cell) << "a cell of another network";
  EXPECT_EQ(t.store().stats().counter_cells_taken, 2U);
}

TEST(OneSidedCounters, ACellThatSomebodyAddedToBeforeIsNotUsed) {
  CountersUnderTest t(2);
  t.word(0).fetch_add(7);
  EXPECT_EQ(t.open("n"), 1U);
  EXPECT_EQ(t.number("n"), 0);
}

TEST(OneSidedCounters, TheSweeperIsCalledWhicheverCellIsTheFirstInUse) {
  CountersUnderTest t;
  std::uint32_t calls = 0;
  t.store().counter_cells().on_first_cell([&] { ++calls; });
  t.word(0).fetch_add(7);
  EXPECT_EQ(t.open("n"), 1U);
  EXPECT_EQ(calls, 1U) << "nobody sweeps";
  t.open("m");
  EXPECT_EQ(calls, 1U) << "it goes on by itself";
}

TEST(OneSidedCounters, LargeNumbersAndSummandsLeaveTheCell) {
  CountersUnderTest t;
  const std::uint32_t cell = t.open("n");
  EXPECT_EQ(t.add(cell, 1), 1);
  const std::int64_t large = std::int64_t{1} << 62;
  const auto added = t.store().counters().add(as_bytes("n"), large);
  ASSERT_TRUE(added);
  EXPECT_EQ(added->number, large + 1);
  EXPECT_EQ(t.add(cell, 1), std::nullopt);
  EXPECT_EQ(t.number("n"), large + 1);
  EXPECT_EQ(t.store().counters().add(as_bytes("n"), large).error().code, Code::kOutOfRange);
  const auto again = t.store().counters().open(as_bytes("n"), true, t.network);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->cell) << "too large for a cell";
  // By additions of clients alone: the next sweep takes it out.
  const std::uint32_t other = t.open("m");
  t.word(other).fetch_add(static_cast<std::uint64_t>(kCellEndNumber));
  EXPECT_TRUE(t.add(other, 1));
  ASSERT_TRUE(t.store().counter_cells().sweep());
  EXPECT_EQ(t.add(other, 1), std::nullopt);
  EXPECT_EQ(t.number("m"), kCellEndNumber + 1);
  EXPECT_EQ(t.store().counters().swap(as_bytes("m"), kCellEndNumber + 1, 0)->number, 0);
  EXPECT_EQ(t.number("m"), 0);
}

// SCRUB-1 is about records; this is what it means for cells, which clients READ too.
TEST(OneSidedCounters, ACellThatEndedKeepsItsNumberUnlessMemoryIsScrubbed) {
  for (const bool scrub : {false, true}) {
    MemoryOptions options = small_memory();
    options.scrub = scrub;
    CountersUnderTest t(64, nullptr, options);
    const auto ended_at = [&](std::int64_t number) {
      return cell_word(scrub ? 0 : number) + kCellSeal;
    };
    const std::uint32_t removed = t.open("removed");
    EXPECT_EQ(t.add(removed, 5), 5);
    ASSERT_TRUE(t.store().remove(as_bytes("removed")));
    EXPECT_EQ(t.word(removed), ended_at(5));
    EXPECT_EQ(t.add(removed, 1), std::nullopt);
    const std::uint32_t left = t.open("left");
    EXPECT_EQ(t.add(left, 7), 7);
    constexpr std::int64_t kLong = std::int64_t{1} << 40;
    EXPECT_EQ(t.store().counters().add(as_bytes("left"), kLong)->number, kLong + 7);
    EXPECT_EQ(t.number("left"), kLong + 7);
    EXPECT_EQ(t.word(left), ended_at(7));
  }
}

TEST(OneSidedCounters, ACounterThatFindsNoRoomTakesNoCell) {
  CountersUnderTest t;
  std::uint64_t key = 0;
  for (const std::size_t length : {100'000U, 1000U, 40U, 0U}) {
    const std::string value(length, 'v');
    while (t.under.put(std::to_string(key), value))
      ++key;
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(t.store().counters().open(as_bytes("n"), true, t.network).error().code,
              Code::kOutOfMemory);
  }
  EXPECT_EQ(t.store().stats().counter_cells_taken, 0U);
  EXPECT_EQ(t.store().stats().one_sided_counters, 0U);
}

TEST(OneSidedCounters, TheSweepLogsWhatChanged) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  std::vector<std::uint64_t> versions;
  const std::uint32_t one = t.open("one");
  t.open("two");
  EXPECT_EQ(drain(*t.under.log, &versions).size(), 2U) << "they exist from the start";
  t.add(one, 41);
  t.add(one, 1);
  ASSERT_TRUE(t.store().counter_cells().sweep());
  const auto changed = drain(*t.under.log, &versions);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed.at("one"), 42);
  ASSERT_TRUE(t.store().counter_cells().sweep());
  EXPECT_TRUE(drain(*t.under.log, &versions).empty()) << "nothing has changed since";
  EXPECT_TRUE(std::ranges::is_sorted(versions));
  // One that ends for want of room in the cell is logged with its last number.
  t.word(one).fetch_add(static_cast<std::uint64_t>(kCellEndNumber));
  ASSERT_TRUE(t.store().counter_cells().sweep());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("one"), kCellEndNumber + 42);
}

// The number that the sweep logged is newer than the record, but still not the counter's present
// number.
TEST(OneSidedCounters, ALoadFromDiskLeavesTheCellAlone) {
  CountersUnderTest t;
  t.store().disk().begin_loading();
  const auto opened =
      t.store().counters().open(as_bytes("n"), true, t.network, DiskLookup{SeenOnDisk{}});
  ASSERT_TRUE(opened && opened->cell);
  EXPECT_EQ(t.add(*opened->cell, 3), 3);
  std::array<std::byte, kCounterBytes> swept{};
  store_le(swept.data(), std::int64_t{3});
  ASSERT_TRUE(t.store().loader().load({.version = Version::of(kTestBoot, 1000),
                                       .counter = true,
                                       .key = as_bytes("n"),
                                       .value = swept}));
  EXPECT_EQ(t.add(*opened->cell, 4), 7);
  EXPECT_EQ(t.number("n"), 7);
}

TEST(OneSidedCounters, TheEndTakesAllOutOfTheirCells) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::uint32_t one = t.open("one");
  const std::uint32_t two = t.open("two");
  t.open("three");
  ASSERT_TRUE(t.store().remove(as_bytes("three")));
  t.add(one, 1);
  ASSERT_TRUE(t.store().counter_cells().sweep());
  t.add(one, 1);
  t.add(two, -1);
  ASSERT_TRUE(t.store().counter_cells().end_all().status);
  EXPECT_EQ(t.add(one, 1), std::nullopt);
  EXPECT_EQ(t.add(two, 1), std::nullopt);
  const std::map<std::string, std::int64_t> expected = {{"one", 2}, {"two", -1}};
  EXPECT_EQ(drain(*t.under.log, nullptr), expected);
}

TEST(OneSidedCounters, AFullLogIsToldAndNothingIsLost) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::uint32_t cell = t.open("n");
  t.add(cell, 9);
  drain(*t.under.log, nullptr);
  std::vector<CommitLog::Reservation> taken;
  for (;;) {
    const auto room = t.under.log->try_reserve(1, kCounterBytes);
    if (!room) break;
    taken.push_back(*room);
  }
  EXPECT_EQ(t.store().counter_cells().sweep().error().code, Code::kBusy);
  for (const auto& room : taken)
    t.under.log->unreserve(room);
  ASSERT_TRUE(t.store().counter_cells().sweep());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("n"), 9);
}

TEST(OneSidedCounters, ALogThatIsAlwaysNearlyFullKeepsNoCounterOut) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::array<std::uint32_t, 3> cells = {t.open("0"), t.open("1"), t.open("2")};
  drain(*t.under.log, nullptr);
  std::vector<CommitLog::Reservation> others;
  while (const auto room = t.under.log->try_reserve(1, kCounterBytes))
    others.push_back(*room);
  std::map<std::string, std::int64_t> logged;
  for (std::size_t turn = 0; turn < cells.size(); ++turn) {
    for (const std::uint32_t cell : cells)
      t.add(cell, 1);
    t.under.log->unreserve(others.back());  // room for one, and exactly that
    others.pop_back();
    EXPECT_EQ(t.store().counter_cells().sweep().error().code, Code::kBusy);
    logged.merge(drain(*t.under.log, nullptr));
    others.push_back(*t.under.log->try_reserve(1, kCounterBytes));
  }
  EXPECT_EQ(logged.size(), cells.size()) << "the first alone reach the log";
}

TEST(OneSidedCounters, ARefusalLeavesTheCounterInItsCell) {
  CountersUnderTest t;
  const std::uint32_t cell = t.open("n");
  t.add(cell, 5);
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  for (const auto& [expected, desired] :
       {std::pair{kLarge, std::int64_t{0}}, std::pair{std::int64_t{4}, kLarge}}) {
    const auto swapped = t.store().counters().swap(as_bytes("n"), expected, desired);
    ASSERT_TRUE(swapped);
    EXPECT_FALSE(swapped->done);
    EXPECT_EQ(swapped->number, 5);
    EXPECT_TRUE(swapped->in_cell);
  }
  EXPECT_EQ(t.store().counters().add(as_bytes("n"), INT64_MAX).error().code, Code::kOutOfRange);
  EXPECT_EQ(t.add(cell, 1), 6) << "it has ended";
  EXPECT_EQ(t.store().stats().one_sided_counters, 1U);
  const auto swapped = t.store().counters().swap(as_bytes("n"), 6, kLarge);
  ASSERT_TRUE(swapped && swapped->done);
  EXPECT_EQ(t.add(cell, 1), std::nullopt);
  EXPECT_EQ(t.number("n"), kLarge);
}

// ---- attack: clients add while the server ends the counter, again and again (CELL-3, CELL-4)

struct Attack {
  std::uint64_t lost = 0;  // additions that clients take for done and the last number lacks
  std::uint64_t void_counted = 0;
  std::uint64_t additions = 0;
};

// `end(cell)` is asked for the last number of each.
template <class End>
Attack attack(std::uint32_t rounds, End end) {
  CountersUnderTest t(rounds);
  std::atomic<std::uint32_t> current{0};
  std::vector<std::atomic<std::uint32_t>> applied(rounds);  // per cell, as clients see it
  for (std::uint32_t cell = 0; cell < rounds; ++cell)
    EXPECT_TRUE(*t.cells->begin(*t.cells->take(), 0));
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      for (;;) {
        const std::uint32_t cell = current.load();
        if (cell == rounds) return;
        // Every other one comes late, from a client that was stopped.
        if (t.add(cell, 1)) applied[cell].fetch_add(1);
        if (cell > 0 && t.add(cell - 1, 1)) applied[cell - 1].fetch_add(1);
      }
    });
  }
  std::vector<std::int64_t> last(rounds);
  for (std::uint32_t cell = 0; cell < rounds; ++cell) {
    while (applied[cell].load() < 3)
      std::this_thread::yield();
    last[cell] = end(t, cell);
    current.store(cell + 1);
  }
  for (auto& client : clients)
    client.join();
  Attack result;
  for (std::uint32_t cell = 0; cell < rounds; ++cell) {
    const auto told = static_cast<std::int64_t>(applied[cell].load());
    result.additions += applied[cell].load();
    if (told > last[cell]) ++result.lost;
    if (told < last[cell]) ++result.void_counted;
  }
  return result;
}

constexpr std::uint32_t kRounds = kSanitized ? 100 : 400;

TEST(OneSidedCounters, NothingIsLostOrCountedTwiceAtTheEnd) {
  const Attack result =
      attack(kRounds, [](CountersUnderTest& t, std::uint32_t cell) { return *t.cells->end(cell); });
  EXPECT_EQ(result.lost, 0U);
  EXPECT_EQ(result.void_counted, 0U);
  EXPECT_GE(result.additions, 3U * kRounds);
}

// The test of the test: a seal that is set by a store after the number was read loses additions.
TEST(OneSidedCounters, TheAttackSeesASealThatIsStored) {
  if (kSanitized) GTEST_SKIP() << "a figure of the plain build";
  std::uint64_t lost = 0;
  for (int i = 0; i < 20 && lost == 0; ++i) {
    lost += attack(kRounds, [](CountersUnderTest& t, std::uint32_t cell) {
              const std::uint64_t word = t.word(cell).load();
              t.word(cell).store(word + kCellSeal);
              return *cell_number(word);
            }).lost;
  }
  EXPECT_GT(lost, 0U);
}

}  // namespace
}  // namespace rkv::server
