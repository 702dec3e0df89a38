// A device that is stuck, and the callers that wait for it.
#include "rdma/transport/verbs/fail_fast.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/clock.h"
#include "tests/support/manual_clock.h"

namespace rkv::rdma::verbs {
namespace {

class Device final : public Atomics {
 public:
  Device(ManualClock& clock, const std::int64_t& takes_ms, const bool& works, int& calls)
      : clock_(clock), takes_ms_(takes_ms), works_(works), calls_(calls) {}
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    RKV_RETURN_IF_ERROR(answer());
    return std::exchange(*word, *word + addend);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    RKV_RETURN_IF_ERROR(answer());
    return *word == expected ? std::exchange(*word, desired) : *word;
  }

 private:
  Status answer() {
    ++calls_;
    clock_.advance(takes_ms_ * kNanosPerMs);
    if (!works_) return fail(Code::kInternal, "no answer");
    return {};
  }
  ManualClock& clock_;
  const std::int64_t& takes_ms_;
  const bool& works_;
  int& calls_;
};

class FailFastTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  std::int64_t takes_ms_ = 0;
  bool works_ = true;
  int calls_ = 0;
  std::uint64_t word_ = 7;
  std::unique_ptr<Atomics> atomics_ =
      fail_fast(std::make_unique<Device>(clock_, takes_ms_, works_, calls_), clock_);
};

TEST_F(FailFastTest, WhatTheDeviceAnswersIsPassedOn) {
  EXPECT_EQ(*atomics_->fetch_add(&word_, 3), 7U);
  EXPECT_EQ(*atomics_->compare_swap(&word_, 10, 4), 10U);
  EXPECT_EQ(*atomics_->compare_swap(&word_, 10, 5), 4U);
  takes_ms_ = 2000;
  EXPECT_EQ(*atomics_->fetch_add(&word_, 1), 4U) << "slow is not stuck";
  takes_ms_ = 0;
  EXPECT_EQ(*atomics_->fetch_add(&word_, 0), 5U);
}

TEST_F(FailFastTest, AStuckDeviceIsWaitedForOnceASecond) {
  works_ = false;
  takes_ms_ = 2000;
  EXPECT_EQ(atomics_->fetch_add(&word_, 1).error().code, Code::kInternal);
  const Nanos waited = clock_.now();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(atomics_->fetch_add(&word_, 1).error().code, Code::kInternal);
    EXPECT_EQ(atomics_->compare_swap(&word_, 7, 8).error().code, Code::kInternal);
  }
  EXPECT_EQ(clock_.now(), waited) << "each waits for a device that is known to be stuck";
  EXPECT_EQ(calls_, 1);
  works_ = true;
  takes_ms_ = 0;
  EXPECT_FALSE(atomics_->fetch_add(&word_, 1));
  clock_.advance(kPauseMs * kNanosPerMs);
  EXPECT_EQ(*atomics_->fetch_add(&word_, 1), 7U) << "never asked again";
}

TEST_F(FailFastTest, ADeviceThatSaysNoAtOnceIsAskedAgainAtOnce) {
  works_ = false;
  EXPECT_FALSE(atomics_->fetch_add(&word_, 1));
  works_ = true;
  EXPECT_TRUE(atomics_->fetch_add(&word_, 1));
}

}  // namespace
}  // namespace rkv::rdma::verbs
