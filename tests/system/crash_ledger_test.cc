// The ledger that judges the crash rounds: what it must allow, and what it must catch.
#include "tests/system/crash_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/layout.h"
#include "tests/system/cell_ledger.h"

namespace rkv::testing_support {
namespace {

using Outcome = CrashLedger::Outcome;
using Shown = CrashLedger::Shown;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kBoot = 3;
constexpr std::uint64_t version(std::uint64_t sequence, std::uint32_t boot = kBoot) {
  return Version::of(boot, sequence).bits;
}

class CrashLedgerTest : public ::testing::Test {
 protected:
  std::string put(std::size_t key, std::uint64_t sequence, Durability asked = Durability::kMemory,
                  Outcome outcome = Outcome::kDone) {
    const std::string value = ledger_.begin(key, 20, asked);
    ledger_.end(key, outcome, outcome == Outcome::kDone ? version(sequence) : 0);
    return value;
  }
  void remove(std::size_t key, std::uint64_t sequence, Durability asked = Durability::kMemory,
              Outcome outcome = Outcome::kDone) {
    ledger_.begin(key, 0, asked);
    ledger_.end(key, outcome, outcome == Outcome::kDone ? version(sequence) : 0);
  }
  static Shown of(const std::string& value, std::uint64_t sequence) {
    return {.value = value, .version = version(sequence)};
  }
  auto check(const Shown& a, const Shown& b = {}) { return ledger_.check({a, b}, kBoot); }

  CrashLedger ledger_{2};
};

// Whether it was acknowledged, or given up in doubt: once a restart has shown another state it is
// over.
TEST_F(CrashLedgerTest, WhatARestartDidNotShowNeverComesBack) {
  for (const Outcome outcome : {Outcome::kDone, Outcome::kUnknown}) {
    const std::string lost = put(0, 1, Durability::kMemory, outcome);
    EXPECT_THAT(check({}), IsEmpty());
    ledger_.go_on_from({{}, {}});
    ledger_.told_durable(0, lost, version(1));
    EXPECT_THAT(check({}), Contains(HasSubstr("(LEDGER-5)")));
    EXPECT_THAT(check(of(lost, 1)), Contains(HasSubstr("(LEDGER-1)")));
    ledger_.go_on_from({{}, {}});
  }
}

TEST_F(CrashLedgerTest, AWriteInMemoryMayBeLostOrNot) {
  const std::string first = put(0, 1);
  EXPECT_THAT(check({}), IsEmpty());
  EXPECT_THAT(check(of(first, 1)), IsEmpty());
}

TEST_F(CrashLedgerTest, ADurableWriteMayNotBeLost) {
  for (const Durability level : {Durability::kWal, Durability::kSync}) {
    const std::uint64_t at = level == Durability::kWal ? 1 : 11;
    put(0, at);
    const std::string durable = put(0, at + 1, level);
    const std::string later = put(0, at + 2);
    EXPECT_THAT(check({}), ElementsAre(HasSubstr("LEDGER-2")));
    EXPECT_THAT(check(of(durable, at + 1)), IsEmpty());
    EXPECT_THAT(check(of(later, at + 2)), IsEmpty());
  }
}

TEST_F(CrashLedgerTest, AnOlderValueThanADurableOneIsCaught) {
  const std::string old = put(0, 1, Durability::kSync);
  put(0, 2, Durability::kWal);
  EXPECT_THAT(check(of(old, 1)), ElementsAre(HasSubstr("LEDGER-2")));
}

TEST_F(CrashLedgerTest, ADurableRemovalMayNotBeUndone) {
  const std::string old = put(0, 1, Durability::kSync);
  remove(0, 2, Durability::kSync);
  EXPECT_THAT(check({}), IsEmpty());
  EXPECT_THAT(check(of(old, 1)), ElementsAre(HasSubstr("LEDGER-2")));
  remove(1, 3);
  const std::string again = put(1, 4, Durability::kWal);
  EXPECT_THAT(check({}, {}), ElementsAre(HasSubstr("key 1: is missing")));
  EXPECT_THAT(check({}, of(again, 4)), IsEmpty());
}

TEST_F(CrashLedgerTest, AWriteOfUnknownOutcomeMayBeThere) {
  const std::string durable = put(0, 1, Durability::kSync);
  const std::string unknown = put(0, 0, Durability::kSync, Outcome::kUnknown);
  EXPECT_THAT(check(of(durable, 1)), IsEmpty());
  EXPECT_THAT(check(of(unknown, 5)), IsEmpty());
  remove(0, 0, Durability::kMemory, Outcome::kUnknown);
  EXPECT_THAT(check({}), IsEmpty());
}

TEST_F(CrashLedgerTest, WhatWasNeverWrittenIsCaught) {
  const std::string refused = put(0, 0, Durability::kSync, Outcome::kRefused);
  EXPECT_THAT(check(of(refused, 1)), ElementsAre(HasSubstr("LEDGER-1")));
  const std::string whole = put(0, 1);
  EXPECT_THAT(check(of(whole + "x", 1)), ElementsAre(HasSubstr("LEDGER-1")));
  EXPECT_THAT(check(of(whole.substr(1), 1)), ElementsAre(HasSubstr("LEDGER-1")));
  EXPECT_THAT(check(of("0/0/", 1)), ElementsAre(HasSubstr("LEDGER-1")));
  EXPECT_THAT(check({}, of(whole, 1)), Contains(HasSubstr("key 1: shows"))) << "another key's";
  EXPECT_THAT(check(of(whole, 2)), ElementsAre(HasSubstr("LEDGER-1"))) << "another version";
}

TEST_F(CrashLedgerTest, AHoleInTheCommitOrderIsCaught) {
  const std::string first = put(0, 1);
  const std::string later = put(1, 2);
  EXPECT_THAT(check({}, of(later, 2)), ElementsAre(HasSubstr("LEDGER-3")));
  EXPECT_THAT(check(of(first, 1)), IsEmpty());
  EXPECT_THAT(check(of(first, 1), of(later, 2)), IsEmpty());
}

TEST_F(CrashLedgerTest, WhatAGetWasToldIsDurableMayNotBeLost) {
  const std::string first = put(0, 1);
  const std::string second = put(0, 2);
  ledger_.told_durable(0, second, version(2));
  EXPECT_THAT(check(of(second, 2)), IsEmpty());
  EXPECT_THAT(check(of(first, 1)), ElementsAre(HasSubstr("LEDGER-2")));
  EXPECT_THAT(check({}), ElementsAre(HasSubstr("LEDGER-2")));
}

TEST_F(CrashLedgerTest, VersionsThatGoBackAreCaught) {
  put(0, 5);
  put(0, 4);
  const auto broken = check({});
  EXPECT_THAT(broken, ElementsAre(HasSubstr("LEDGER-4")));
}

TEST_F(CrashLedgerTest, WhatARestartShowedIsWhatTheNextMustKeep) {
  const std::string first = put(0, 1);
  put(0, 2);
  ledger_.go_on_from({of(first, 1), {}});
  EXPECT_THAT(ledger_.check({of(first, 1), {}}, kBoot + 1), IsEmpty());
  EXPECT_THAT(ledger_.check({{}, {}}, kBoot + 1), ElementsAre(HasSubstr("LEDGER-2")));
  ledger_.begin(0, 20, Durability::kMemory);
  ledger_.end(0, Outcome::kDone, version(2));
  EXPECT_THAT(ledger_.check({of(first, 1), {}}, kBoot + 1), ElementsAre(HasSubstr("LEDGER-4")))
      << "a version that was lost is not given again";
}

TEST(CounterLedger, AllowsWhatMayHaveHappened) {
  CounterLedger counter;
  counter.begin();
  counter.done(1, Durability::kSync);
  counter.begin();
  counter.done(2, Durability::kMemory);
  counter.begin();  // no answer
  counter.begin();
  counter.refused();
  EXPECT_FALSE(counter.allows(0));
  for (const std::int64_t number : {1, 2, 3})
    EXPECT_TRUE(counter.allows(number));
  EXPECT_FALSE(counter.allows(4));
  counter.go_on_from(2);
  EXPECT_FALSE(counter.allows(1));
  EXPECT_FALSE(counter.allows(3));
}

TEST(CellLedger, SaysHowLongAgoTheOldestLostAdditionWasAnswered) {
  CellLedger counter;
  counter.go_on_from(10, 0);
  for (std::int64_t i = 1; i <= 5; ++i) {
    counter.begin();
    counter.done(10 + i, 1000 * i);
  }
  EXPECT_EQ(counter.lost(15, 5500), 0);
  EXPECT_EQ(counter.lost(14, 5500), 500);
  EXPECT_EQ(counter.lost(12, 5500), 2500);
  EXPECT_EQ(counter.lost(10, 5500), 4500);
  EXPECT_EQ(counter.lost(13, 3500), 0) << "by memory that nobody saves any more";
}

TEST(CellLedger, KnowsWhichNumbersTheCounterHad) {
  CellLedger counter;
  counter.begin();
  counter.done(1, 1000);
  counter.begin();  // no answer
  counter.begin();
  counter.refused();
  EXPECT_FALSE(counter.existed(-1));
  for (const std::int64_t number : {0, 1, 2})
    EXPECT_TRUE(counter.existed(number));
  EXPECT_FALSE(counter.existed(3));
}

TEST(CellLedger, GoesOnWithWhatWasAddedAfterTheRestart) {
  CellLedger counter;
  for (const std::int64_t number : {1, 2, 3}) {
    counter.begin();
    counter.done(number, 1000 * number);
  }
  counter.begin();
  counter.done(3, 5000);  // to a server that had kept 2
  counter.go_on_from(3, 4000);
  EXPECT_FALSE(counter.existed(1));
  EXPECT_TRUE(counter.existed(2)) << "new, and lost by the next kill";
  EXPECT_TRUE(counter.existed(3));
  EXPECT_FALSE(counter.existed(4));
  EXPECT_EQ(counter.lost(2, 9000), 4000);
  counter.go_on_from(3, 9000);
  EXPECT_FALSE(counter.existed(2));
}

}  // namespace
}  // namespace rkv::testing_support
