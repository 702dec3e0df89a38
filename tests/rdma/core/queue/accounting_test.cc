// The accounting of send queue slots and completion queue entries, against a model of the device;
// and the policy that chooses between polling and sleep.
#include "rkv/rdma/accounting.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "rkv/rdma/adaptive_wait.h"

namespace rkv::rdma {
namespace {

// A send queue by the specification: requests are executed in order; a signaled request gives a
// completion; after a failure each request gives one, signaled or not. Taking a completion out
// frees the slots up to its request.
class ModelQueue {
 public:
  explicit ModelQueue(std::uint32_t slots) : slots_(slots) {}
  bool post(std::uint32_t number, bool signaled) {
    if (held_ == slots_) return false;  // ENOMEM
    waiting_.push_back({number, signaled});
    ++held_;
    return true;
  }
  void execute(std::size_t count) {
    for (; count != 0 && !waiting_.empty(); --count) {
      ++silent_;
      if (waiting_.front().signaled || failed_) {
        done_.push_back({waiting_.front().number, silent_});
        silent_ = 0;
      }
      waiting_.pop_front();
    }
  }
  void fail() { failed_ = true; }
  std::optional<std::uint32_t> poll() {
    if (done_.empty()) return std::nullopt;
    const auto [number, frees] = done_.front();
    done_.pop_front();
    held_ -= frees;
    return number;
  }
  std::uint32_t held() const { return held_; }

 private:
  struct Request {
    std::uint32_t number;
    bool signaled;
  };
  struct Done {
    std::uint32_t number;
    std::uint32_t frees;
  };
  std::uint32_t slots_;
  std::uint32_t held_ = 0;
  std::uint32_t silent_ = 0;  // executed since the last completion
  bool failed_ = false;
  std::deque<Request> waiting_;
  std::deque<Done> done_;
};

// Returns the error of using the slots against the model, or nullptr. `honest`: the signaled flag
// is obeyed; else it is ignored, to prove that this check notices.
const char* run(std::uint32_t slots_count, std::uint32_t every, const std::vector<int>& steps,
                bool honest) {
  SendSlots slots({.slots = slots_count, .signal_every = every});
  ModelQueue device(slots_count);
  const auto take_out = [&] {
    const auto number = device.poll();
    if (!number) return false;
    slots.complete(*number);
    return true;
  };
  for (const int step : steps) {
    if (step % 4 != 0) {
      if (slots.free() != 0) {
        const auto slot = slots.take(step % 64 == 1);
        if (!device.post(slot.number, slot.signaled && honest)) return "the send queue overran";
      } else {
        // Full: whatever the device has executed, a completion must be available.
        device.execute(slots_count);
        if (!take_out()) return "all slots are taken and none will ever come back";
      }
    } else if (step % 16 == 0) {
      device.execute(static_cast<std::size_t>(step) % 7);
    } else {
      take_out();
    }
    if (slots.outstanding() != device.held()) return "slots and device disagree";
  }
  device.fail();
  // Unsignaled requests at the very end cannot be known to have completed; one more request shows
  // it.
  if (slots.free() == 0) {
    device.execute(slots_count);
    if (!take_out()) return "all slots are taken and none will ever come back";
  }
  const auto last = slots.take(true);
  if (!device.post(last.number, true)) return "the send queue overran";
  device.execute(slots_count);
  while (take_out()) {
  }
  return slots.outstanding() == 0 ? nullptr : "slots were lost";
}

RC_GTEST_PROP(SendSlots, AgreeWithADevice, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 40);
  const auto every = *rc::gen::inRange<std::uint32_t>(0, 60);
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000));
  const char* wrong = run(count, every, steps, true);
  if (wrong != nullptr) RC_FAIL(wrong);
}

TEST(SendSlots, TheModelNoticesWhenNobodySignals) {
  EXPECT_STREQ(run(4, 2, std::vector<int>(6, 3), false),
               "all slots are taken and none will ever come back");
}

TEST(SendSlots, SignalEveryFew) {
  SendSlots slots({.slots = 16, .signal_every = 4});
  std::string pattern;
  for (int i = 0; i < 12; ++i)
    pattern += slots.take().signaled ? 'S' : '.';
  EXPECT_EQ(pattern, "...S...S...S");
  EXPECT_EQ(slots.signaled(), 3U);
  EXPECT_EQ(slots.complete(7), 8U);
  EXPECT_EQ(slots.free(), 12U);
  EXPECT_EQ(slots.complete(7), 0U) << "a completion counts once";
  EXPECT_EQ(slots.complete(500), 0U) << "of a request that was never made";
}

TEST(SendSlots, AnIntervalAboveTheSlotsIsCutToThem) {
  SendSlots slots({.slots = 3, .signal_every = 100});
  EXPECT_FALSE(slots.take().signaled);
  EXPECT_FALSE(slots.take().signaled);
  EXPECT_TRUE(slots.take().signaled);
  EXPECT_EQ(slots.free(), 0U);
  EXPECT_DEATH(slots.take(), "more requests than the send queue has slots");
}

TEST(SendSlots, WhatIsGivenBackWasNeverTaken) {
  SendSlots slots({.slots = 8, .signal_every = 4});
  for (int i = 0; i < 4; ++i)
    slots.take();
  slots.give_back(2);  // one of these two is signaled
  EXPECT_EQ(slots.outstanding(), 2U);
  const auto next = slots.take();
  EXPECT_EQ(next.number, 2U);
  EXPECT_TRUE(next.signaled) << "or the two that are left might never come back";
  EXPECT_DEATH(slots.give_back(9), "given back");
}

TEST(SendSlots, NumbersWrapAround) {
  SendSlots slots({.slots = 4, .first_number = std::numeric_limits<std::uint32_t>::max() - 1});
  for (const std::uint32_t number : {0xFFFF'FFFEU, 0xFFFF'FFFFU, 0U, 1U})
    EXPECT_EQ(slots.take().number, number);
  EXPECT_EQ(slots.complete(2), 0U);
  EXPECT_EQ(slots.complete(0), 3U) << "and those before the wrap";
  EXPECT_EQ(slots.complete(0xFFFF'FFFF), 0U);
  EXPECT_EQ(slots.complete(1), 1U);
  EXPECT_EQ(slots.posted(), 4U);
}

TEST(CompletionBudget, RefusesWhatDoesNotFitAndGetsRoomBack) {
  CompletionBudget budget(100);
  auto first = budget.reserve(60);
  ASSERT_TRUE(first);
  const auto refused = budget.reserve(41);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBusy);
  EXPECT_TRUE(budget.reserve(40));  // succeeds at once
  EXPECT_EQ(budget.reserved(), 60U);
  {
    const CompletionBudget::Reservation moved = std::move(*first);
    EXPECT_EQ(moved.entries(), 60U);
  }
  EXPECT_EQ(budget.reserved(), 0U);
}

TEST(CompletionBudget, AReservationThatIsAssignedToGivesItsRoomBackAtOnce) {
  CompletionBudget budget(100);
  auto kept = budget.reserve(60);
  auto other = budget.reserve(10);
  ASSERT_TRUE(kept && other);
  *kept = std::move(*other);
  EXPECT_EQ(budget.reserved(), 10U);
  EXPECT_EQ(kept->entries(), 10U);
}

TEST(CompletionBudget, MayNotEndBeforeItsReservations) {
  EXPECT_DEATH(
      {
        auto budget = std::make_unique<CompletionBudget>(8);
        const auto kept = budget->reserve(1);
        budget.reset();
      },
      "before its reservations");
}

std::string steps_until_sleep(AdaptiveWait& policy) {
  std::string out;
  for (;;) {
    switch (policy.miss()) {
      case AdaptiveWait::Step::kPoll:
        out += 'p';
        break;
      case AdaptiveWait::Step::kYield:
        out += 'y';
        break;
      case AdaptiveWait::Step::kSleep:
        return out + 's';
    }
  }
}

TEST(AdaptiveWaits, PollThenYieldThenSleep) {
  AdaptiveWait policy({.min_polls = 2, .max_polls = 16, .yields = 3});
  EXPECT_EQ(steps_until_sleep(policy), "ppppyyys");  // starts with a quarter of the maximum
  EXPECT_EQ(steps_until_sleep(policy), "ppyyys");    // the polls were useless: half as many
  EXPECT_EQ(steps_until_sleep(policy), "ppyyys");    // never below the minimum
}

TEST(AdaptiveWaits, PollLongerWherePollingPays) {
  AdaptiveWait policy({.min_polls = 1, .max_polls = 10, .yields = 0});
  EXPECT_EQ(policy.polls(), 2U);
  policy.hit();
  EXPECT_EQ(policy.polls(), 2U) << "found at once: nothing was learnt";
  for (const std::uint32_t expected : {4U, 8U, 10U, 10U}) {
    EXPECT_EQ(policy.miss(), AdaptiveWait::Step::kPoll);
    policy.hit();
    EXPECT_EQ(policy.polls(), expected);
  }
}

TEST(AdaptiveWaits, NoBudgetMeansSleepAtOnceAndStaysSo) {
  AdaptiveWait policy({.min_polls = 0, .max_polls = 0, .yields = 0});
  EXPECT_EQ(policy.miss(), AdaptiveWait::Step::kSleep);
  policy.hit();
  EXPECT_EQ(policy.miss(), AdaptiveWait::Step::kSleep);
}

}  // namespace
}  // namespace rkv::rdma
