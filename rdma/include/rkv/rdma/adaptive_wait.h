// How to wait for completions: poll a while, give the processor away, and only then sleep. Polling
// is quickest when something comes soon and starves the one that would bring it when cores are few.
//
//   AdaptiveWait policy({.max_polls = 2000});
//   RKV_ASSIGN_OR_RETURN(std::size_t count, wait_adaptively(queue, done, deadline, policy));
//
// The number of polls adapts: it doubles when something came while polling, and is halved when the
// wait ended in sleep. So a busy queue is polled and an idle one costs nearly nothing.
//
// Where nothing raises an event - memory that a peer writes, a queue pair that gives back its work
// - pause() takes the step itself, and its sleeps are short ones that grow:
//
//   for (AdaptiveWait policy({}); !there(); policy.pause())
//     if (deadline.passed()) return fail(...);
//
// Thread safety: one thread. The policy alone, without verbs, is hit() and miss().
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
  std::uint32_t min_polls = 16;    // a budget never below this; 0 is allowed: sleep at once
  std::uint32_t max_polls = 1024;  // nor above; some 20 ns each on hardware
  std::uint32_t yields = 4;        // times the processor is given away between polls, before sleep
};

class AdaptiveWait {
 public:
  enum class Step : unsigned char { kPoll, kYield, kSleep };

  explicit AdaptiveWait(const AdaptiveWaitOptions& options)
      : options_(options), polls_(std::max(options.min_polls, options.max_polls / 4)) {
    options_.max_polls = std::max(options.min_polls, options.max_polls);
    polls_ = std::min(polls_, options_.max_polls);
  }

  // A poll found nothing: what to do before the next one. After kSleep the round begins anew.
  Step miss() {
    const std::uint64_t tried = misses_++;
    if (tried < polls_) return Step::kPoll;
    if (tried < std::uint64_t{polls_} + options_.yields) return Step::kYield;
    misses_ = 0;
    polls_ = std::max(options_.min_polls, polls_ / 2);
    return Step::kSleep;
  }
  // A poll found something.
  void hit() {
    // At the first poll nobody waited: that says nothing about how long to.
    if (misses_ != 0) {
      const std::uint64_t doubled = std::max<std::uint64_t>(1, std::uint64_t{polls_} * 2);
      polls_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.max_polls, doubled));
    }
    misses_ = 0;
    nap_ns_ = 0;
  }
  // A poll found nothing, and no event will tell: polls on, yields, or sleeps up to a millisecond.
  // Once it sleeps it does so until a hit().
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
  std::uint32_t polls() const { return polls_; }  // the present budget

 private:
  AdaptiveWaitOptions options_;
  std::uint32_t polls_;
  std::uint64_t misses_ = 0;
  Nanos nap_ns_ = 0;  // the last one of pause(); 0: it does not sleep yet
};

// Fills `out`; 0 when the deadline passed first. Blocks. REQUIRES: a queue with a channel, room in
// `out`.
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
