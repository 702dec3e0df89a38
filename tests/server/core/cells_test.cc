// One-sided counters in the store: cells, their ends, the sweep (server/cells.h, C1 to C4).
//
// Clients are played by atomics on the words, which is what a client's FETCH_AND_ADD is over shared
// memory.
#include "server/cells.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "tests/server/core/store_fixture.h"

namespace rkv::server {
namespace {

// A device that does what it is asked, and may not say so.
class MuteAtomics final : public rdma::Atomics {
 public:
  MuteAtomics(std::unique_ptr<rdma::Atomics> device, const std::uint32_t& silent)
      : device_(std::move(device)), silent_(silent) {}
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return say(device_->fetch_add(word, addend), addend == kCellSeal);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    return say(device_->compare_swap(word, expected, desired), (desired & kCellSeal) != 0);
  }

 private:
  Result<std::uint64_t> say(Result<std::uint64_t> word, bool seals) {
    if (!seals || told_++ >= silent_) return word;
    return fail(Code::kInternal, "no answer");
  }
  const std::unique_ptr<rdma::Atomics> device_;
  const std::uint32_t& silent_;
  std::uint32_t told_ = 0;
};

struct CountersUnderTest {
  explicit CountersUnderTest(std::uint32_t count = 64, std::unique_ptr<CommitLog> commits = nullptr)
      : transport(*rdma::open_shm({.directory = ::testing::TempDir()})),
        region(*transport->allocate(std::size_t{count} * 8, rdma::Access::kRemoteReadAtomic)),
        cells(Cells::create(
            std::make_unique<MuteAtomics>(*transport->create_atomics(*region), silent_seals),
            *region, count)),
        under(small_memory(), std::move(commits)) {
    network = under.store.add_cells(*cells);
  }
  std::atomic_ref<std::uint64_t> word(std::uint32_t cell) {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(region->bytes().data())[cell]);
  }
  // As a client does: what the number is now, or nothing: void.
  std::optional<std::int64_t> add(std::uint32_t cell, std::int64_t summand) {
    const auto old = cell_number(word(cell).fetch_add(static_cast<std::uint64_t>(summand)));
    if (!old) return std::nullopt;
    return *old + summand;
  }
  std::uint32_t open(std::string_view key, bool create = true) {
    const auto opened = store().open_counter(as_bytes(key), create, network);
    EXPECT_TRUE(opened && opened->cell);
    return opened && opened->cell ? *opened->cell : 0;
  }
  Result<GetResult> get(std::string_view key, std::int64_t* number) {
    std::vector<std::byte> out(kMaxInlineBytes);
    const auto got = store().get(as_bytes(key), out);
    if (got) *number = load_le<std::int64_t>(out.data());
    return got;
  }
  std::int64_t number(std::string_view key) {
    std::int64_t number = 0;
    const auto got = get(key, &number);
    EXPECT_TRUE(got && got->counter && got->value_length == kCounterBytes);
    return number;
  }
  Store& store() { return under.store; }

  std::uint32_t silent_seals = 0;  // of the first seals so many are not answered
  std::unique_ptr<rdma::Transport> transport;
  std::unique_ptr<rdma::Region> region;
  std::unique_ptr<Cells> cells;
  StoreUnderTest under;
  std::uint32_t network = 0;
};

TEST(OneSidedCounters, RequestsAndAtomicsChangeOneNumber) {
  CountersUnderTest t;
  ASSERT_TRUE(t.store().add(as_bytes("n"), 5));
  const std::uint32_t cell = t.open("n");
  EXPECT_EQ(t.open("n"), cell) << "opened once";
  EXPECT_EQ(t.add(cell, 3), 8);
  const auto added = t.store().add(as_bytes("n"), 2);
  ASSERT_TRUE(added) << to_string(added.error());
  EXPECT_EQ(added->number, 10);
  const auto swapped = t.store().swap(as_bytes("n"), 10, -4);
  ASSERT_TRUE(swapped && swapped->done);
  EXPECT_EQ(swapped->number, -4);
  const auto not_swapped = t.store().swap(as_bytes("n"), 10, 7);
  ASSERT_TRUE(not_swapped && !not_swapped->done);
  EXPECT_EQ(not_swapped->number, -4);
  EXPECT_EQ(t.add(cell, 0), -4);
  EXPECT_EQ(t.number("n"), -4);
}

TEST(OneSidedCounters, AnAbsentOneIsMadeOnlyWhenAskedTo) {
  CountersUnderTest t;
  EXPECT_EQ(t.store().open_counter(as_bytes("n"), false, t.network).error().code, Code::kNotFound);
  t.open("n");
  EXPECT_EQ(t.number("n"), 0);
  ASSERT_TRUE(t.under.put("plain", "value"));
  EXPECT_EQ(t.store().open_counter(as_bytes("plain"), true, t.network).error().code,
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
  const auto third = t.store().open_counter(as_bytes("c"), true, t.network);
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->cell);
  EXPECT_EQ(t.store().add(as_bytes("c"), 4)->number, 4);
  const auto elsewhere = t.store().open_counter(as_bytes("a"), true, t.network + 1);
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
  t.store().on_first_cell([&] { ++calls; });
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
  const auto added = t.store().add(as_bytes("n"), large);
  ASSERT_TRUE(added);
  EXPECT_EQ(added->number, large + 1);
  EXPECT_EQ(t.add(cell, 1), std::nullopt);
  EXPECT_EQ(t.number("n"), large + 1);
  EXPECT_EQ(t.store().add(as_bytes("n"), large).error().code, Code::kOutOfRange);
  const auto again = t.store().open_counter(as_bytes("n"), true, t.network);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->cell) << "too large for a cell";
  // By additions of clients alone: the next sweep takes it out.
  const std::uint32_t other = t.open("m");
  t.word(other).fetch_add(static_cast<std::uint64_t>(kCellEndNumber));
  EXPECT_TRUE(t.add(other, 1));
  ASSERT_TRUE(t.store().sweep_counters());
  EXPECT_EQ(t.add(other, 1), std::nullopt);
  EXPECT_EQ(t.number("m"), kCellEndNumber + 1);
  EXPECT_EQ(t.store().swap(as_bytes("m"), kCellEndNumber + 1, 0)->number, 0);
  EXPECT_EQ(t.number("m"), 0);
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
    EXPECT_EQ(t.store().open_counter(as_bytes("n"), true, t.network).error().code,
              Code::kOutOfMemory);
  }
  EXPECT_EQ(t.store().stats().counter_cells_taken, 0U);
  EXPECT_EQ(t.store().stats().one_sided_counters, 0U);
}

// What the log was told, by key.
std::map<std::string, std::int64_t> drain(CommitLog& log, std::vector<std::uint64_t>* versions) {
  std::map<std::string, std::int64_t> numbers;
  CommitLog::Entry entry;
  while (log.consume(&entry)) {
    const std::string key(as_text(entry.record.key));
    if (versions != nullptr) versions->push_back(entry.record.version.bits);
    if (entry.kind == CommitLog::Kind::kRemove) {
      numbers.erase(key);
      continue;
    }
    EXPECT_TRUE(entry.record.counter && !entry.record.in_cell);
    EXPECT_EQ(entry.record.value.size(), kCounterBytes);
    numbers[key] = load_le<std::int64_t>(entry.record.value.data());
  }
  log.advance();
  return numbers;
}

TEST(OneSidedCounters, TheSweepLogsWhatChanged) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  std::vector<std::uint64_t> versions;
  const std::uint32_t one = t.open("one");
  t.open("two");
  EXPECT_EQ(drain(*t.under.log, &versions).size(), 2U) << "they exist from the start";
  t.add(one, 41);
  t.add(one, 1);
  ASSERT_TRUE(t.store().sweep_counters());
  const auto changed = drain(*t.under.log, &versions);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed.at("one"), 42);
  ASSERT_TRUE(t.store().sweep_counters());
  EXPECT_TRUE(drain(*t.under.log, &versions).empty()) << "nothing has changed since";
  EXPECT_TRUE(std::ranges::is_sorted(versions));
  // One that ends for want of room in the cell is logged with its last number.
  t.word(one).fetch_add(static_cast<std::uint64_t>(kCellEndNumber));
  ASSERT_TRUE(t.store().sweep_counters());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("one"), kCellEndNumber + 42);
}

TEST(OneSidedCounters, TheEndTakesAllOutOfTheirCells) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::uint32_t one = t.open("one");
  const std::uint32_t two = t.open("two");
  t.open("three");
  ASSERT_TRUE(t.store().remove(as_bytes("three")));
  t.add(one, 1);
  ASSERT_TRUE(t.store().sweep_counters());
  t.add(one, 1);
  t.add(two, -1);
  ASSERT_TRUE(t.store().end_counters());
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
    const auto room = t.under.log->try_reserve(kMaxKeyBytes, kCounterBytes);
    if (!room) break;
    taken.push_back(*room);
  }
  EXPECT_EQ(t.store().sweep_counters().error().code, Code::kBusy);
  for (const auto& room : taken)
    t.under.log->unreserve(room);
  ASSERT_TRUE(t.store().sweep_counters());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("n"), 9);
}

TEST(OneSidedCounters, ALogThatIsAlwaysNearlyFullKeepsNoCounterOut) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::array<std::uint32_t, 3> cells = {t.open("0"), t.open("1"), t.open("2")};
  drain(*t.under.log, nullptr);
  std::vector<CommitLog::Reservation> others;
  while (const auto room = t.under.log->try_reserve(kMaxKeyBytes, kCounterBytes))
    others.push_back(*room);
  std::map<std::string, std::int64_t> logged;
  for (std::size_t turn = 0; turn < cells.size(); ++turn) {
    for (const std::uint32_t cell : cells)
      t.add(cell, 1);
    t.under.log->unreserve(others.back());  // room for one
    others.pop_back();
    EXPECT_EQ(t.store().sweep_counters().error().code, Code::kBusy);
    logged.merge(drain(*t.under.log, nullptr));
    others.push_back(*t.under.log->try_reserve(kMaxKeyBytes, kCounterBytes));
  }
  EXPECT_EQ(logged.size(), cells.size()) << "the first alone reach the log";
}

// The seal is set and the server does not know: what comes next finds it, and counts nothing that
// was void.
TEST(OneSidedCounters, ASealThatWasNotAnsweredIsFound) {
  const auto sealed = [](CountersUnderTest& t) {
    t.silent_seals = 1;
    const std::uint32_t cell = t.open("n");
    t.add(cell, 5);
    EXPECT_EQ(t.store().remove(as_bytes("n")).error().code, Code::kInternal);
    EXPECT_EQ(t.add(cell, 100), std::nullopt) << "the seal is there";
    return cell;
  };
  {
    CountersUnderTest t;
    sealed(t);
    EXPECT_EQ(t.number("n"), 5);
  }
  {
    CountersUnderTest t;
    sealed(t);
    const auto added = t.store().add(as_bytes("n"), 2);
    ASSERT_TRUE(added);
    EXPECT_EQ(added->number, 7);
    EXPECT_EQ(t.number("n"), 7);
  }
  {
    CountersUnderTest t;
    sealed(t);
    const auto swapped = t.store().swap(as_bytes("n"), 5, 8);
    ASSERT_TRUE(swapped && swapped->done);
    EXPECT_EQ(t.number("n"), 8);
  }
  {
    CountersUnderTest t;
    const std::uint32_t first = sealed(t);
    const std::uint32_t second = t.open("n");
    EXPECT_NE(second, first) << "clients would find it sealed again and again";
    EXPECT_EQ(t.add(second, 1), 6);
  }
  {
    CountersUnderTest t;
    sealed(t);
    ASSERT_TRUE(t.store().sweep_counters());
    EXPECT_EQ(t.number("n"), 5);
    EXPECT_EQ(t.store().stats().one_sided_counters, 0U);
  }
}

TEST(OneSidedCounters, ASealThatAClientSetsEndsTheCounter) {
  CountersUnderTest t;
  const std::uint32_t cell = t.open("n");
  t.add(cell, 3);
  t.word(cell).fetch_add(kCellSeal);
  EXPECT_EQ(t.store().add(as_bytes("n"), 4)->number, 7);
  EXPECT_EQ(t.number("n"), 7);
}

// More counters than the log has room for at a time: every turn must end some of the rest.
TEST(OneSidedCounters, TheEndComesForAllOfThemThroughASmallLog) {
  constexpr std::uint32_t kCounters = 2500;
  CountersUnderTest t(kCounters, *CommitLog::create(CommitLog::kMinCapacityBytes));
  for (std::uint32_t i = 0; i < kCounters; ++i) {
    t.add(t.open(std::to_string(i)), i);
    if (i % 100 == 0) drain(*t.under.log, nullptr);
  }
  drain(*t.under.log, nullptr);
  std::map<std::string, std::int64_t> logged;
  Status ended = t.store().end_counters();
  EXPECT_FALSE(ended) << "the log is not too small";
  for (int turns = 0; !ended && turns < 10; ++turns) {
    logged.merge(drain(*t.under.log, nullptr));
    ended = t.store().end_counters();
  }
  EXPECT_TRUE(ended) << "it begins again and again with the first";
  logged.merge(drain(*t.under.log, nullptr));
  ASSERT_EQ(logged.size(), kCounters);
  EXPECT_EQ(logged.at("2499"), 2499);
}

TEST(OneSidedCounters, ALogThatTakesNothingDoesNotLetANumberPassTheLimits) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::uint32_t near = t.open("near");
  const std::uint32_t far = t.open("far");
  t.add(near, 1);
  t.word(far).fetch_add(static_cast<std::uint64_t>(kCellEndNumber));
  t.under.log->set_disk_state(DiskState::kFailing);
  EXPECT_EQ(t.store().sweep_counters().error().code, Code::kIo);
  EXPECT_EQ(t.add(far, 1), std::nullopt) << "clients may take it anywhere";
  EXPECT_EQ(t.add(near, 1), 2);
  EXPECT_EQ(t.number("far"), kCellEndNumber);
  t.under.log->set_disk_state(DiskState::kWell);
  ASSERT_TRUE(t.store().sweep_counters());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("far"), kCellEndNumber);
}

// ---- attack: clients add while the server ends the counter, again and again (C3, C4)

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
