// CompletionRoom: what connections reserve in their queue before they exist, so that its
// completions never overrun it.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "rkv/result.h"

namespace rkv::rdma {

class CompletionRoom {
 public:
  CompletionRoom(std::uint32_t all, std::uint32_t taken) : all_(all), taken_(taken) {}

  Status reserve(std::uint32_t completions) {
    std::uint32_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (completions > all_ - taken) {
        return fail(Code::kBusy,
                    "the queue has no room for the completions of another connection: raise "
                    "QueueOptions::completions or lower ConnectionOptions::sends_in_flight");
      }
    } while (!taken_.compare_exchange_weak(taken, taken + completions, std::memory_order_relaxed));
    return {};
  }
  void unreserve(std::uint32_t completions) {
    taken_.fetch_sub(completions, std::memory_order_relaxed);
  }

 private:
  const std::uint32_t all_;
  std::atomic<std::uint32_t> taken_;
};

}  // namespace rkv::rdma
