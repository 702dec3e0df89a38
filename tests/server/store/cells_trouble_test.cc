// One-sided counters in trouble: a device that does not answer, shows its work late or does
// nothing, a log that has no room, clients that keep to no rule.
#include "tests/server/store/cells_fixture.h"

namespace rkv::server {
namespace {

// The seal is set and the server does not know: what comes next finds it, and counts nothing that
// was void.
TEST(OneSidedCounters, ASealThatWasNotAnsweredIsFound) {
  const auto sealed = [](CountersUnderTest& t) {
    t.trouble.silent_seals = 1;
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
    const auto added = t.store().counters().add(as_bytes("n"), 2);
    ASSERT_TRUE(added);
    EXPECT_EQ(added->number, 7);
    EXPECT_EQ(t.number("n"), 7);
  }
  {
    CountersUnderTest t;
    sealed(t);
    const auto swapped = t.store().counters().swap(as_bytes("n"), 5, 8);
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
    ASSERT_TRUE(t.store().counter_cells().sweep());
    EXPECT_EQ(t.number("n"), 5);
    EXPECT_EQ(t.store().stats().one_sided_counters, 0U);
  }
}

// A removal whose device fails after the seal has not happened, and is repeated.
TEST(OneSidedCounters, ACellThatWasNotScrubbedIsScrubbedByTheNextRemoval) {
  MemoryOptions options = small_memory();
  options.scrub = true;
  CountersUnderTest t(64, nullptr, options);
  const std::uint32_t cell = t.open("n");
  t.add(cell, 5);
  // A removal reads the cell, seals it, and reads it once more before it changes it.
  t.trouble.late = [&] {
    t.trouble.late = [&] { t.trouble.late = [&] { t.trouble.broken = true; }; };
  };
  EXPECT_EQ(t.store().remove(as_bytes("n")).error().code, Code::kInternal);
  EXPECT_EQ(t.word(cell), cell_word(5) + kCellSeal);
  t.trouble.broken = false;
  EXPECT_EQ(t.number("n"), 5);
  ASSERT_TRUE(t.store().remove(as_bytes("n")));
  EXPECT_EQ(t.word(cell), cell_word(0) + kCellSeal);
}

TEST(OneSidedCounters, ASealThatAClientSetsEndsTheCounter) {
  CountersUnderTest t;
  const std::uint32_t cell = t.open("n");
  t.add(cell, 3);
  t.word(cell).fetch_add(kCellSeal);
  EXPECT_EQ(t.store().counters().add(as_bytes("n"), 4)->number, 7);
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
  while (t.under.log->try_reserve(1, 10'000)) {
  }
  std::map<std::string, std::int64_t> logged;
  Status ended = t.store().counter_cells().end_all().status;
  EXPECT_FALSE(ended) << "the log is not too small";
  for (int turns = 0; !ended && turns < 100; ++turns) {
    logged.merge(drain(*t.under.log, nullptr));
    ended = t.store().counter_cells().end_all().status;
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
  EXPECT_EQ(t.store().counter_cells().sweep().error().code, Code::kIo);
  EXPECT_EQ(t.add(far, 1), std::nullopt) << "clients may take it anywhere";
  EXPECT_EQ(t.add(near, 1), 2);
  EXPECT_EQ(t.number("far"), kCellEndNumber);
  t.under.log->set_disk_state(DiskState::kOk);
  ASSERT_TRUE(t.store().counter_cells().sweep());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("far"), kCellEndNumber);
}

// One seal that is not answered keeps no other counter from being saved, and is asked for again.
TEST(OneSidedCounters, TheEndGoesOnWithTheOthersWhenOneFails) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  for (const char* key : {"1", "2", "3"})
    t.add(t.open(key), 5);
  drain(*t.under.log, nullptr);
  t.trouble.silent_seals = 1;
  const auto first = t.store().counter_cells().end_all();
  EXPECT_EQ(first.status.error().code, Code::kInternal);
  EXPECT_EQ(first.left, 1U);
  const auto logged = drain(*t.under.log, nullptr);
  EXPECT_EQ(logged.size(), 2U) << "the others are abandoned";
  const auto second = t.store().counter_cells().end_all();
  EXPECT_TRUE(second.status);
  EXPECT_EQ(second.left, 0U);
  const std::map<std::string, std::int64_t> rest = {{"1", 5}};
  EXPECT_EQ(drain(*t.under.log, nullptr), rest);
}

TEST(OneSidedCounters, ADeviceInTroubleKeepsNoOtherNetworksCountersOut) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const auto region = *t.transport->allocate(64, rdma::Access::kRemoteReadAtomic);
  const auto others = *Cells::create(*t.transport, *region, 8);
  const std::uint32_t network = t.store().counter_cells().add_network(*others);
  t.add(t.open("here"), 1);
  const auto there = t.store().counters().open(as_bytes("there"), true, network);
  ASSERT_TRUE(there && there->cell);
  std::atomic_ref(reinterpret_cast<std::uint64_t*>(region->bytes().data())[*there->cell])
      .fetch_add(2);
  drain(*t.under.log, nullptr);
  t.trouble.broken = true;
  EXPECT_EQ(t.store().counter_cells().sweep().error().code, Code::kInternal);
  const std::map<std::string, std::int64_t> expected = {{"there", 2}};
  EXPECT_EQ(drain(*t.under.log, nullptr), expected);
  t.trouble.broken = false;
  ASSERT_TRUE(t.store().counter_cells().sweep());
  EXPECT_EQ(drain(*t.under.log, nullptr).at("here"), 1);
}

// A client has the answer to its addition, a flush of it begins, and the processor would not see it
// yet (CELL-1).
TEST(OneSidedCounters, ASweepSeesWhatClientsWereToldThoughMemoryShowsItLate) {
  CountersUnderTest t(64, *CommitLog::create(CommitLog::kMinCapacityBytes));
  const std::uint32_t cell = t.open("n");
  drain(*t.under.log, nullptr);
  t.trouble.late = [&] { t.add(cell, 7); };
  ASSERT_TRUE(t.store().counter_cells().sweep());
  const std::map<std::string, std::int64_t> expected = {{"n", 7}};
  EXPECT_EQ(drain(*t.under.log, nullptr), expected);
}

}  // namespace
}  // namespace rkv::server
