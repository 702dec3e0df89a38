// Histories that no linearizable store can produce: each must be rejected for the right reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/history/checker.h"
#include "tests/history/scene.h"

namespace rkv::history {
namespace {

using ::testing::HasSubstr;

constexpr auto ok = Scene::ok;
constexpr auto failed = Scene::failed;
constexpr auto number = Scene::number;

class BadHistory : public ::testing::Test {
 protected:
  // Expects a rejection with this text, and a window of this many operations.
  void expect_rejected(const std::string& what, std::size_t window) {
    const auto violation = check(scene_.history());
    ASSERT_TRUE(violation) << "accepted";
    EXPECT_FALSE(violation->given_up);
    EXPECT_THAT(violation->what, HasSubstr(what)) << violation->text;
    EXPECT_EQ(violation->window.size(), window) << violation->text;
    EXPECT_THAT(violation->text, HasSubstr("==>"));
  }
  void expect_no_order(std::size_t window) { expect_rejected("no order", window); }

  Scene scene_;
};

TEST_F(BadHistory, StaleReadAfterAnAcknowledgedWrite) {
  scene_.put(0, 10, "a", 1);
  scene_.put(20, 30, "b", 2);
  scene_.get(40, 50, "a", 1);
  expect_no_order(2);
}

TEST_F(BadHistory, StaleReadWithoutVersions) {
  scene_.put(0, 10, "a", 0);
  scene_.put(20, 30, "b", 0);
  scene_.get(40, 50, "a", 0);
  expect_no_order(2);
}

TEST_F(BadHistory, AbsentAfterAnAcknowledgedWrite) {
  scene_.put(0, 10, "a", 1);
  scene_.get_absent(20, 30);
  expect_no_order(2);
}

TEST_F(BadHistory, LostUpdate) {
  // Two writes replace one version, both successfully.
  scene_.put(0, 10, "0", 1);
  scene_.put_if_version(20, 40, "1a", 1, ok(2));
  scene_.put_if_version(20, 40, "1b", 1, ok(3));
  expect_no_order(2);
}

TEST_F(BadHistory, ValueNeverWritten) {
  scene_.put(0, 10, "a", 1);
  scene_.get(20, 30, "x", 2);
  expect_rejected("nobody wrote", 1);
}

TEST_F(BadHistory, ValueOfAnotherKey) {
  scene_.on_key("other");
  scene_.put(0, 10, "a", 1);
  scene_.on_key("k");
  scene_.get(20, 30, "a", 0);
  expect_rejected("nobody wrote", 1);
}

TEST_F(BadHistory, ValueReadBeforeItWasWritten) {
  scene_.get(0, 10, "a", 1);
  scene_.put(20, 30, "a", 1);
  expect_rejected("version 1 was reported before", 2);
}

TEST_F(BadHistory, ValueReadBeforeItWasWrittenWithoutVersions) {
  scene_.get(0, 10, "a", 0);
  scene_.put(20, 30, "a", 0);
  expect_rejected("before it was written", 2);
}

TEST_F(BadHistory, RemovedKeySeenAgain) {
  scene_.put(0, 10, "a", 1);
  scene_.remove(20, 30, ok(2));
  scene_.get(40, 50, "a", 1);
  expect_no_order(2);
}

TEST_F(BadHistory, AbsentThenBackWithoutAWrite) {
  scene_.put(0, 10, "a", 1);
  scene_.remove(20, 100, ok(2));
  scene_.get_absent(30, 40);
  scene_.get(50, 60, "a", 1);
  expect_no_order(3);
}

TEST_F(BadHistory, TwoPutIfAbsentWithoutARemoveBetween) {
  scene_.put_if_absent(0, 30, "a", ok(1));
  scene_.put_if_absent(10, 40, "b", ok(2));
  expect_no_order(2);
}

TEST_F(BadHistory, PutIfAbsentRefusedWhereNothingWas) {
  scene_.put_if_absent(0, 10, "a", failed(Code::kConflict));
  expect_no_order(1);
}

TEST_F(BadHistory, PutIfVersionRefusedAlthoughItFitted) {
  scene_.put(0, 10, "a", 1);
  scene_.put_if_version(20, 30, "b", 1, failed(Code::kConflict));
  expect_no_order(2);
}

TEST_F(BadHistory, CounterLostAnIncrement) {
  scene_.incr(0, 10, 1, number(1, 1));
  scene_.incr(20, 40, 1, number(2, 2));
  scene_.incr(20, 40, 1, number(2, 3));
  expect_no_order(2);
}

TEST_F(BadHistory, CounterLostAnIncrementThatOnlyAReadShows) {
  scene_.incr(0, 10, 5, number(5, 0));
  scene_.incr(20, 30, 2, number(7, 0));
  scene_.get_number(40, 50, 5, 0);
  expect_no_order(2);
}

TEST_F(BadHistory, CounterCountedTwice) {
  scene_.incr(0, 10, 1, number(1, 1));
  scene_.incr(20, 30, 1, number(3, 2));
  expect_no_order(2);
}

TEST_F(BadHistory, UnansweredIncrementCountedTwice) {
  scene_.incr(0, 10, 1, number(1, 1));
  scene_.incr(20, 30, 1, Scene::info());
  scene_.get_number(40, 50, 3, 5);
  expect_no_order(3);
}

// By atomics and by requests, without versions.
TEST_F(BadHistory, OneSidedCounterLostAnIncrement) {
  scene_.open_counter(0, 10, ok(0));
  scene_.incr(20, 30, 2, number(2, 0));
  scene_.incr(25, 45, 3, number(3, 0));
  expect_no_order(3);
}

TEST_F(BadHistory, OneSidedCounterLostItsIncrementsWhenItWasOpenedAgain) {
  scene_.open_counter(0, 10, ok(0));
  scene_.incr(20, 30, 2, number(2, 0));
  scene_.open_counter(40, 50, ok(0));
  scene_.incr(60, 70, 2, number(2, 0));
  expect_no_order(4);
}

TEST_F(BadHistory, OpenedCounterIsAbsent) {
  scene_.open_counter(0, 10, ok(0));
  scene_.get_absent(20, 30);
  expect_no_order(2);
}

TEST_F(BadHistory, CounterOpenedWhereAValueIs) {
  scene_.put(0, 10, "a", 1);
  scene_.open_counter(20, 30, ok(0));
  expect_no_order(2);
}

TEST_F(BadHistory, UnansweredOpeningIsNoAddition) {
  scene_.incr(0, 10, 4, number(4, 1));
  scene_.open_counter(20, 30, Scene::info());
  scene_.get_number(40, 50, 0, 0);
  expect_no_order(3);
}

TEST_F(BadHistory, SwapOfAnotherNumber) {
  scene_.incr(0, 10, 4, number(4, 1));
  scene_.counter_cas(20, 30, 5, 9, number(9, 2));
  expect_no_order(2);
}

TEST_F(BadHistory, SwapRefusedWithTheExpectedNumber) {
  scene_.incr(0, 10, 4, number(4, 1));
  Answer refused = failed(Code::kConflict);
  refused.content = Content::of(std::int64_t{4});
  scene_.counter_cas(20, 30, 4, 9, refused);
  expect_no_order(1);
}

TEST_F(BadHistory, ReadsGoingBackBetweenTwoReaders) {
  scene_.put(0, 10, "a", 1);
  scene_.put(20, 100, "b", 2);
  scene_.get(30, 40, "b", 2);
  scene_.get(50, 60, "a", 1);
  expect_no_order(3);
}

TEST_F(BadHistory, ReadsGoingBackOverAnUnansweredWrite) {
  scene_.put(0, 10, "a", 1);
  scene_.put_info(20, 30, "b");
  scene_.get(40, 50, "b", 2);
  scene_.get(60, 70, "a", 1);
  expect_no_order(3);
}

TEST_F(BadHistory, UnansweredWriteThatWasSettledTakesEffect) {
  scene_.put(0, 10, "a", 1);
  scene_.put_info(20, 30, "b").until = 50 * Scene::kUs;
  scene_.get(60, 70, "a", 1);
  scene_.get(80, 90, "b", 2);
  expect_no_order(2);
}

TEST_F(BadHistory, UnansweredWriteBeforeItsCall) {
  scene_.get(0, 10, "b", 2);
  scene_.put_info(20, 30, "b");
  expect_rejected("before it was written", 2);
}

TEST_F(BadHistory, TtlKeyReturnedTooLate) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.get(230'100, 230'200, "a", 1, true);  // after 10 us + 30 ms + 200 ms
  expect_rejected("outlived", 2);
}

TEST_F(BadHistory, TtlKeyGoneTooEarly) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.get_absent(29'000, 29'900);
  expect_no_order(2);
}

TEST_F(BadHistory, TtlKeyBackAfterItHadExpired) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.get_absent(31'000, 31'010);
  scene_.get(32'000, 32'010, "a", 1, true);
  expect_no_order(2);
}

TEST_F(BadHistory, ATouchThatMakesAKey) {
  scene_.remove(0, 10, failed(Code::kNotFound));
  scene_.touch(20, 30, 0, ok(2));
  expect_no_order(2);
}

TEST_F(BadHistory, ATouchThatChangesTheValue) {
  scene_.put(0, 10, "a", 1);
  scene_.put(20, 30, "b", 2);
  scene_.touch(40, 50, 0, ok(3));
  scene_.get(60, 70, "a", 3);
  expect_no_order(3);
}

TEST_F(BadHistory, ATouchThatIsForgotten) {
  scene_.put(0, 10, "a", 1);
  scene_.touch(20, 30, 30, ok(2));
  scene_.get(40, 50, "a", 1);
  expect_no_order(2);
}

TEST_F(BadHistory, AKeyThatWasTouchedExpiresAsBefore) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.touch(20, 30, 0, ok(2));
  scene_.get_absent(500'000, 500'010);
  expect_no_order(3);
}

TEST_F(BadHistory, AKeyWithoutATtlExpires) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.put(20, 30, "b", 2);
  scene_.get_absent(40'000, 40'010);  // b has no time to live
  expect_no_order(2);
}

TEST_F(BadHistory, AFailedWriteObserved) {
  scene_.put(0, 10, "a", 1);
  scene_.put_failed(20, 30, "b", Code::kOutOfMemory);
  scene_.get(40, 50, "b", 2);
  expect_rejected("had failed", 2);
}

TEST_F(BadHistory, ARefusedConditionalWriteObserved) {
  scene_.put(0, 10, "a", 1);
  scene_.put_if_absent(20, 30, "b", failed(Code::kConflict));
  scene_.get(40, 50, "b", 2);
  expect_rejected("had failed", 2);
}

TEST_F(BadHistory, VersionGoingBack) {
  scene_.put(0, 10, "a", 5);
  scene_.put(20, 30, "b", 4);
  expect_rejected("version 5 was reported before", 2);
}

TEST_F(BadHistory, VersionGoingBackOverAllKeys) {
  scene_.put(0, 10, "a", 5);
  scene_.on_key("other");
  scene_.put(20, 30, "b", 4);
  expect_rejected("version 5 was reported before", 2);
}

TEST_F(BadHistory, VersionsAgainstTheOrderOfConcurrentWrites) {
  scene_.put(0, 100, "a", 1);
  scene_.put(0, 100, "b", 2);
  scene_.get(10, 20, "b", 2);
  scene_.get(30, 40, "a", 1);
  expect_no_order(4);
}

TEST_F(BadHistory, OneVersionNamesTwoValues) {
  scene_.put(0, 100, "a", 1);
  scene_.put_info(0, 100, "b");
  scene_.get(20, 30, "b", 1);
  expect_rejected("two values", 2);
}

TEST_F(BadHistory, TwoWritesWithOneVersion) {
  scene_.put(0, 100, "a", 1);
  scene_.put(0, 100, "b", 1);
  expect_rejected("two writes", 2);
}

TEST_F(BadHistory, OneVersionNamesTwoKeys) {
  scene_.put(0, 100, "a", 1);
  scene_.on_key("other");
  scene_.put(0, 100, "a", 0);
  scene_.get(20, 30, "a", 1);
  expect_rejected("two keys", 2);
}

TEST_F(BadHistory, RemoveOfWhatWasNot) {
  scene_.put(0, 10, "a", 1);
  scene_.remove(20, 30, failed(Code::kNotFound));
  expect_no_order(2);
}

TEST_F(BadHistory, CountedOnText) {
  scene_.put(0, 10, "a", 1);
  scene_.incr(20, 30, 1, number(1, 2));
  expect_no_order(2);
}

TEST_F(BadHistory, OnlyTheOffendingKeyIsShownAndNothingThatIsOver) {
  for (int i = 1; i <= 200; ++i) {
    scene_.on_key("good");
    scene_.put(i * 100, i * 100 + 10, "g" + std::to_string(i), static_cast<std::uint64_t>(2 * i));
    scene_.on_key("bad");
    scene_.put(i * 100 + 20, i * 100 + 30, "b" + std::to_string(i),
               static_cast<std::uint64_t>(2 * i + 1));
    scene_.get(i * 100 + 40, i * 100 + 50, "b" + std::to_string(i == 150 ? 149 : i), 0);
  }
  const auto violation = check(scene_.history());
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->key, "bad");
  EXPECT_EQ(violation->window.size(), 2U) << violation->text;
}

}  // namespace
}  // namespace rkv::history
