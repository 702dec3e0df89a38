// An adaptive wait for completions: poll for a while, then yield the processor, then sleep. Polling
// reacts fastest when a completion comes soon. With few cores it delays the thread that would
// produce the completion.
//
//   AdaptiveWait policy({.max_polls = 2000});
//   RKV_ASSIGN_OR_RETURN(std::size_t count, wait_adaptively(queue, done, deadline, policy));
//
// The number of polls adapts: it doubles when polling found a completion, and halves when the wait
// ended in sleep. So a busy queue is polled and an idle one costs almost nothing.
//
// Some waits have no event: memory that a peer writes, or a queue pair that returns its work. For
// those, pause() itself yields or sleeps; its sleeps are short and grow:
//
//   for (AdaptiveWait policy({}); !there(); policy.pause())
//     if (deadline.passed()) return fail(...);
//
// Thread safety: one thread. hit() and miss() are the policy alone, without verbs.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "rkv/clock.h"
#include "rkv/rdma/completion.h"
#include "rkv/result.h"

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
    nap_ns_ = 0;
  }
  // Records a poll that found nothing where no event is raised: returns, yields, or sleeps up to a
  // millisecond. After its first sleep it sleeps on every call until a hit().
  void pause() {
    constexpr Nanos kFirstNapNs = 20'000;
    constexpr Nanos kLongestNapNs = 1'000'000;
    if (nap_ns_ == 0) {
      const Step step = miss();
      if (step == Step::kYield) sched_yield();
      if (step != Step::kSleep) return;
    }
    nap_ns_ = nap_ns_ == 0 ? kFirstNapNs : std::min(2 * nap_ns_, kLongestNapNs);
    const timespec nap{.tv_sec = 0, .tv_nsec = nap_ns_};
    ::nanosleep(&nap, nullptr);
  }
  std::uint32_t polls() const { return polls_; }  // the current budget

 private:
  AdaptiveWaitOptions options_;
  std::uint32_t polls_;
  std::uint64_t misses_ = 0;
  Nanos nap_ns_ = 0;  // length of the last sleep of pause(); 0: pause() does not sleep yet
};

// Fills `out` and returns the number of completions; 0 if the deadline passed first. Blocks.
// REQUIRES: `queue` has a channel; `out` is not empty.
inline Result<std::size_t> wait_adaptively(CompletionQueue& queue, std::span<WorkCompletion> out,
                                           const Deadline& deadline, AdaptiveWait& policy) {
  for (;;) {
    const Result<std::size_t> found = queue.poll(out);
    if (!found) return found;
    if (*found != 0) {
      policy.hit();
      return found;
    }
    switch (policy.miss()) {
      case AdaptiveWait::Step::kPoll:
        break;
      case AdaptiveWait::Step::kYield:
        if (deadline.passed()) return 0U;
        sched_yield();
        break;
      case AdaptiveWait::Step::kSleep:
        return queue.wait(out, deadline);
    }
  }
}

}  // namespace rkv::rdma
