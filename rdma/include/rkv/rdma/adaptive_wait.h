// An adaptive wait for completions: poll for a while, then yield the processor, then sleep. Polling
// reacts fastest when a completion comes soon. With few cores it delays the thread that would
// produce the completion.
//
//   AdaptiveWait policy({.max_polls = 2000});    // one for many waits
//   ...
//   while (!found()) {                           // found() polls
//     const AdaptiveWait::Step next = policy.miss();
//     if (next == AdaptiveWait::Step::kYield) sched_yield();
//     if (next == AdaptiveWait::Step::kSleep) wait_for_an_event();
//   }
//   policy.hit();
//
// The number of polls adapts: it doubles when polling found a completion, and halves when the wait
// ended in sleep. So a busy queue is polled and an idle one costs almost nothing.
//
// Thread safety: one thread. The class only decides; it calls no verb and does not sleep itself.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rkv::rdma {

struct AdaptiveWaitOptions {
  std::uint32_t min_polls = 16;  // lower limit of the poll budget; 0 is allowed: sleep at once
  // Upper limit of the poll budget; a poll takes some 20 ns on hardware.
  std::uint32_t max_polls = 1024;
  std::uint32_t yields = 4;  // sched_yield() calls between polls before sleeping
};

class AdaptiveWait {
 public:
  enum class Step : unsigned char { kPoll, kYield, kSleep };

  explicit AdaptiveWait(const AdaptiveWaitOptions& options)
      : options_(options), polls_(std::max(options.min_polls, options.max_polls / 4)) {
    options_.max_polls = std::max(options.min_polls, options.max_polls);
    polls_ = std::min(polls_, options_.max_polls);
  }

  // Records a poll that found nothing; returns the step before the next poll. After kSleep the
  // sequence restarts with kPoll.
  Step miss() {
    const std::uint64_t tried = misses_++;
    if (tried < polls_) return Step::kPoll;
    if (tried < std::uint64_t{polls_} + options_.yields) return Step::kYield;
    misses_ = 0;
    polls_ = std::max(options_.min_polls, polls_ / 2);
    return Step::kSleep;
  }
  // Records a poll that found something.
  void hit() {
    // A hit at the first poll needed no wait, so the budget stays.
    if (misses_ != 0) {
      const std::uint64_t doubled = std::max<std::uint64_t>(1, std::uint64_t{polls_} * 2);
      polls_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.max_polls, doubled));
    }
    misses_ = 0;
  }
  std::uint32_t polls() const { return polls_; }  // the current budget

 private:
  AdaptiveWaitOptions options_;
  std::uint32_t polls_;
  std::uint64_t misses_ = 0;
};

}  // namespace rkv::rdma
