// Histories that look wrong and are right: each must be accepted.
#include <gtest/gtest.h>

#include "tests/history/checker.h"
#include "tests/history/scene.h"

namespace rkv::history {
namespace {

constexpr auto ok = Scene::ok;
constexpr auto failed = Scene::failed;
constexpr auto number = Scene::number;

class GoodHistory : public ::testing::Test {
 protected:
  ~GoodHistory() override {
    const auto violation = check(scene_.history());
    EXPECT_FALSE(violation) << violation->text;
  }
  Scene scene_;
};

TEST_F(GoodHistory, NothingAtAll) {}

TEST_F(GoodHistory, ConcurrentReadersSeeOldAndNew) {
  scene_.put(0, 10, "a", 1);
  scene_.put(20, 100, "b", 2);
  scene_.get(30, 60, "a", 1);
  scene_.get(30, 40, "b", 2);
  scene_.get(70, 80, "b", 2);
}

TEST_F(GoodHistory, AWriteThatWasCalledLaterCommittedFirst) {
  scene_.put(0, 100, "a", 2);
  scene_.put(50, 90, "b", 1);
  scene_.get(60, 70, "b", 1);
  scene_.get(110, 120, "a", 2);
}

TEST_F(GoodHistory, WhatTouchesOverlaps) {
  scene_.put(0, 10, "a", 1);
  scene_.put(10, 20, "b", 2);
  scene_.get(20, 30, "a", 1);
}

TEST_F(GoodHistory, UnansweredWriteThatTookEffectLate) {
  scene_.put(0, 10, "a", 1);
  scene_.put_info(20, 30, "b");
  scene_.get(40, 50, "a", 1);
  scene_.put(60, 70, "c", 2);
  scene_.get(80, 90, "c", 2);
  scene_.get(100, 110, "b", 3);
}

TEST_F(GoodHistory, UnansweredWriteThatNeverDid) {
  scene_.put(0, 10, "a", 1);
  scene_.put_info(20, 30, "b");
  scene_.get(40, 50, "a", 1);
}

TEST_F(GoodHistory, UnansweredWriteThatOnlyAConflictShows) {
  scene_.put_info(0, 10, "a");
  scene_.put_if_absent(20, 30, "b", failed(Code::kConflict));
  scene_.remove(40, 50, ok(7));
  scene_.get_absent(60, 70);
}

TEST_F(GoodHistory, UnansweredRemove) {
  scene_.put(0, 10, "a", 1);
  scene_.remove(20, 30, Scene::info());
  scene_.get(40, 50, "a", 1);
  scene_.put_if_absent(60, 70, "b", ok(3));
}

TEST_F(GoodHistory, UnansweredWriteSettledBeforeItsEnd) {
  scene_.put(0, 10, "a", 1);
  scene_.put_info(20, 30, "b").until = 70 * Scene::kUs;
  scene_.get(40, 50, "a", 1);
  scene_.get(60, 70, "b", 2);
}

TEST_F(GoodHistory, UnansweredIncrementsInAnyNumber) {
  for (int i = 0; i < 60; ++i)
    scene_.incr(i, i + 1, 1, Scene::info());
  scene_.get_number(100, 110, 17, 40);
  scene_.incr(120, 130, 10, number(30, 60));
  scene_.get_number(140, 150, 33, 70);
}

TEST_F(GoodHistory, UnansweredIncrementsOfManySizes) {
  for (int i = 0; i < 12; ++i)
    scene_.incr(i, i + 1, std::int64_t{1} << i, Scene::info());
  scene_.get_number(100, 110, 0b101100111, 40);
  scene_.get_number(140, 150, 0b111101100111, 70);
}

TEST_F(GoodHistory, ManyUnansweredWritesAndFewSeen) {
  std::uint64_t version = 0;
  for (int i = 0; i < 200; ++i) {
    scene_.put_info(i * 100, i * 100 + 10, "i" + std::to_string(i));
    scene_.put(i * 100 + 20, i * 100 + 30, "p" + std::to_string(i), version += 10);
    if (i % 7 == 0)
      scene_.get(i * 100 + 40, i * 100 + 50, "i" + std::to_string(i / 2), version + 5);
  }
}

TEST_F(GoodHistory, FailedForAnotherReasonSaysNothing) {
  scene_.put(0, 10, "a", 1);
  scene_.put_failed(20, 30, "b", Code::kOutOfMemory);
  scene_.add(20, 30, {.f = Function::kGet}, failed(Code::kTimeout));
  scene_.get(40, 50, "a", 1);
}

TEST_F(GoodHistory, ConditionsJudgedAgainstTheStateOfTheirInstant) {
  scene_.put(0, 10, "a", 1);
  scene_.put_if_version(20, 60, "b", 1, ok(2));
  scene_.put_if_version(20, 60, "c", 1, failed(Code::kConflict));
  scene_.remove(20, 90, ok(3));
  scene_.put_if_version(70, 90, "d", 2, failed(Code::kNotFound));
  scene_.put_if_absent(80, 100, "e", ok(4));
  scene_.get(110, 120, "e", 4);
}

TEST_F(GoodHistory, TheVersionOfAnUnansweredWriteIsUsedInACondition) {
  scene_.put_info(0, 10, "a");
  scene_.get(20, 30, "a", 3);
  scene_.put_if_version(40, 50, "b", 3, ok(4));
}

TEST_F(GoodHistory, CountersAreDifferentFromText) {
  scene_.incr(0, 10, 3, number(3, 1));
  scene_.put_failed(20, 30, "a", Code::kWrongType);
  scene_.put_if_absent(20, 30, "a", failed(Code::kConflict));
  scene_.counter_cas(40, 50, 3, 8, number(8, 2));
  Answer refused = failed(Code::kConflict);
  refused.content = Content::of(std::int64_t{8});
  refused.version = 2;
  scene_.counter_cas(60, 70, 3, 9, refused);
  scene_.incr(80, 90, INT64_MAX, failed(Code::kOutOfRange));
  scene_.remove(100, 110, ok(3));
  scene_.put(120, 130, "a", 4);
  scene_.incr(140, 150, 1, failed(Code::kWrongType));
}

TEST_F(GoodHistory, AnOpenedCounterHasANewVersionOrNot) {
  scene_.incr(0, 10, 4, number(4, 1));
  scene_.open_counter(20, 30, ok(0));
  scene_.get_number(40, 50, 4, 1);  // no cell was free for it
  scene_.open_counter(60, 70, ok(0));
  scene_.incr(80, 90, 3, number(7, 0));
  scene_.add(100, 110, {.f = Function::kRemoveIfVersion, .if_version = 1}, failed(Code::kConflict));
  scene_.open_counter(120, 130, Scene::info());
  scene_.get_number(140, 150, 7, 9);  // the server has taken the counter back
  scene_.remove(160, 170, ok(10));
  scene_.get_absent(180, 190);
  scene_.get_number(200, 210, 0, 0);  // opened only now
}

TEST_F(GoodHistory, CountersAreOpenedBesideOthersOperations) {
  scene_.open_counter(0, 100, ok(0));
  scene_.put_failed(0, 100, "a", Code::kWrongType);
  scene_.get_absent(0, 100);
  scene_.get_number(0, 100, 0, 0);
  scene_.incr(0, 100, 2, number(2, 0));
  scene_.remove(200, 210, ok(5));
  scene_.put(220, 230, "a", 6);
  scene_.open_counter(240, 250, failed(Code::kWrongType));
}

TEST_F(GoodHistory, ConcurrentIncrements) {
  scene_.incr(0, 100, 1, number(3, 3));
  scene_.incr(0, 100, 1, number(1, 1));
  scene_.incr(0, 100, 1, number(2, 2));
  scene_.get_number(10, 90, 2, 2);
}

TEST_F(GoodHistory, ATtlKeyGoesAnyTimeAfterItsEnd) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.get(29'000, 29'010, "a", 1, true);
  scene_.get(150'000, 150'010, "a", 1, true);
  scene_.get(229'000, 240'000, "a", 1, true);
  scene_.get_absent(230'100, 230'110);
}

TEST_F(GoodHistory, ATtlKeyGoesAsSoonAsItsTimeHasCome) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.get_absent(29'000, 30'010);
  scene_.put_if_absent(30'020, 30'030, "b", ok(5));
}

TEST_F(GoodHistory, APutWithoutATtlEndsIt) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.put(20, 30, "b", 2);
  scene_.get(500'000, 500'010, "b", 2);
}

TEST_F(GoodHistory, ATouchKeepsTheValueAndSetsItsTimeToLive) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.touch(20, 30, 0, ok(2));
  scene_.get(500'000, 500'010, "a", 2);
  scene_.touch(500'020, 500'030, 30, ok(3));
  scene_.get(500'040, 500'050, "a", 3, true);
  scene_.get_absent(900'000, 900'010);
  scene_.touch(900'020, 900'030, 30, failed(Code::kNotFound));
}

TEST_F(GoodHistory, AnUnansweredTouchMayHaveExtendedALife) {
  scene_.put(0, 10, "a", 1, 30);
  scene_.touch(20, 30, 0, Scene::info());
  scene_.get(500'000, 500'010, "a", 2);
}

TEST_F(GoodHistory, AnUnansweredPutWithATtlTookEffectLate) {
  scene_.add(0, 10, {.f = Function::kPut, .text = "a", .ttl = std::chrono::milliseconds(30)},
             Scene::info());
  scene_.get_absent(600'000, 600'010);
  scene_.get(700'000, 700'010, "a", 1, true);
  scene_.get_absent(700'020, 700'030);
}

TEST_F(GoodHistory, ARestartMayBringBackAnEarlierContent) {
  scene_.put(0, 10, "a", 1);
  scene_.put(20, 30, "b", 2);
  scene_.add(40, 50, {.f = Function::kRestart},
             {.outcome = Outcome::kOk, .content = Content::of("a"), .version = 1});
  scene_.get(60, 70, "a", 1);
  scene_.put_if_version(80, 90, "c", 1, ok(3));
}

}  // namespace
}  // namespace rkv::history
