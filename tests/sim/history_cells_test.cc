// The model of one-sided counters: which changes a crash may take back.
#include <gtest/gtest.h>

#include <tuple>

#include "common/bytes.h"
#include "tests/sim/history.h"

namespace rkv::sim {
namespace {

class CellHistoryTest : public ::testing::Test {
 protected:
  static constexpr Nanos kToLog = 100;
  using End = History::End;

  CellHistoryTest() { begin(0); }

  // Starts a server that finds this number.
  void begin(std::int64_t number) {
    history_ = History();
    history_.count_in_cells(0, kToLog);
    history_.server_starts(2, 5, holding(number), keys_);
  }
  // Each number has its own version.
  static Disk::Records holding(std::int64_t number) {
    std::string bytes(sizeof number, 0);
    store_le(reinterpret_cast<std::byte*>(bytes.data()), number);
    const Version version = Version::of(1, 1 + static_cast<std::uint64_t>(number));
    return {{"a", {.version = version, .value = bytes, .counter = true}}};
  }
  std::size_t push(Op op) {
    if (op.client < 0) op.client = next_client_++;
    return history_.begin(op);
  }
  std::size_t add(Nanos called, Nanos returned, std::int64_t summand, std::int64_t sum,
                  int client = -1) {
    return push({.client = client,
                 .kind = Op::Kind::kAdd,
                 .called = called,
                 .returned = returned,
                 .outcome = sum == 0 ? Op::Outcome::kUnknown : Op::Outcome::kDone,
                 .number = summand,
                 .sum = sum});
  }
  void get(Nanos called, Nanos returned, std::int64_t number) {
    const std::size_t op = push({.called = called, .returned = returned});
    history_.answered_number(op, number, {});
  }
  void flush(Nanos called, Nanos returned, std::uint32_t boot, int client = -1) {
    push({.client = client,
          .kind = Op::Kind::kFlush,
          .called = called,
          .returned = returned,
          .outcome = boot == 0 ? Op::Outcome::kStale : Op::Outcome::kDone,
          .version = boot == 0 ? Version{} : Version::of(boot, 1)});
  }
  void restart(Nanos when, End end, std::int64_t number) {
    history_.server_ends(when, end, holding(number), keys_);
    history_.server_starts(3, when + 10, holding(number), keys_);
  }
  bool good() { return !history_.check(keys_.size(), 0); }

  const std::vector<std::string> keys_ = {"a"};
  History history_;
  int next_client_ = 0;
};

TEST_F(CellHistoryTest, NumbersWithoutVersions) {
  begin(7);
  add(20, 30, 5, 12);
  get(31, 40, 12);
  add(35, 50, 1, 0);  // outcome unknown
  get(60, 70, 13);
  EXPECT_TRUE(good());
  get(80, 90, 12);
  EXPECT_FALSE(good());
}

TEST_F(CellHistoryTest, ASwapThatWasNotDoneTellsTheNumber) {
  for (const std::int64_t told : {5, 6}) {
    begin(0);
    add(20, 30, 5, 5);
    push({.kind = Op::Kind::kSwap,
          .called = 40,
          .returned = 50,
          .outcome = Op::Outcome::kConflict,
          .number = 9,
          .if_number = 4,
          .sum = told});
    EXPECT_EQ(good(), told == 5);
  }
}

TEST_F(CellHistoryTest, ACrashTakesWhatIsYoung) {
  add(20, 30, 5, 5);
  restart(31, End::kProcess, 0);
  get(50, 60, 0);
  EXPECT_TRUE(good());
}

TEST_F(CellHistoryTest, ACrashOfTheProcessTakesNothingOld) {
  for (const End end : {End::kProcess, End::kMachine}) {
    begin(0);
    add(20, 30, 5, 5);
    restart(31 + kToLog, end, 0);
    EXPECT_EQ(good(), end == End::kMachine);
  }
}

TEST_F(CellHistoryTest, AFlushSavesWhatWasAnsweredBeforeIt) {
  for (const Nanos flushed : {25, 35}) {
    begin(0);
    add(20, 30, 5, 5);
    flush(flushed, 40, 2);
    restart(41, End::kMachine, 0);
    EXPECT_EQ(good(), flushed == 25);
  }
}

TEST_F(CellHistoryTest, AStopSavesEverything) {
  for (const std::int64_t found : {0, 5, 6}) {
    begin(0);
    add(20, 30, 5, 5);
    restart(31, End::kStopped, found);
    EXPECT_EQ(good(), found == 5) << found;
  }
}

TEST_F(CellHistoryTest, ANumberThatTheCounterNeverHad) {
  for (const std::int64_t found : {5, 8, 9, 3}) {
    begin(0);
    add(20, 30, 5, 5);
    add(40, 50, 3, 8);
    restart(51, End::kMachine, found);
    EXPECT_EQ(good(), found == 5 || found == 8) << found;
  }
}

TEST_F(CellHistoryTest, ADurableAdditionIsThereAfterItsKindOfEnd) {
  for (const auto& [durability, end, promised] :
       {std::tuple{Durability::kDefault, End::kProcess, false},
        std::tuple{Durability::kWal, End::kProcess, true},
        std::tuple{Durability::kWal, End::kMachine, false},
        std::tuple{Durability::kSync, End::kMachine, true}}) {
    begin(0);
    history_[add(20, 30, 5, 5)].durability = durability;
    restart(31, end, 0);
    EXPECT_EQ(good(), !promised) << to_string(durability) << " " << static_cast<int>(end);
  }
}

// A change with unknown outcome may appear, but not in a later server.
TEST_F(CellHistoryTest, AnUnknownAdditionEndsWithItsServer) {
  for (const std::int64_t read : {0, 5}) {
    begin(0);
    add(20, 30, 5, 0);
    restart(31, End::kMachine, 0);
    get(50, 60, read);
    EXPECT_EQ(good(), read == 0);
  }
}

TEST_F(CellHistoryTest, AFlushThatKeepsQuietAboutALostAddition) {
  static constexpr int kClient = 77;
  for (const bool told : {false, true}) {
    begin(0);
    add(20, 30, 5, 5, kClient);
    restart(31, End::kMachine, 0);
    if (told) flush(50, 60, 0, kClient);
    flush(70, 80, 3, kClient);
    EXPECT_EQ(good(), told);
  }
}

TEST_F(CellHistoryTest, ALossThatCannotBe) {
  static constexpr int kClient = 77;
  add(20, 30, 5, 5, kClient);
  flush(50, 60, 0, kClient);
  EXPECT_FALSE(good());
}

TEST_F(CellHistoryTest, ACounterThatIsGone) {
  history_.server_ends(31, End::kMachine, {}, keys_);
  EXPECT_FALSE(good());
}

}  // namespace
}  // namespace rkv::sim
