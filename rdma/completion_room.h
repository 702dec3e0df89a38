// CompletionRoom: what connections reserve in their queue before they exist, so that its
// completions never overrun it. The queue's own receives come first.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

#include "rkv/rdma/accounting.h"

namespace rkv::rdma {

class CompletionRoom {
 public:
  using Reservation = CompletionBudget::Reservation;

  // REQUIRES: receives <= completions.
  CompletionRoom(std::uint32_t completions, std::uint32_t receives)
      : budget_(completions,
                "the queue has no room for the completions of another connection: raise "
                "QueueOptions::completions or lower ConnectionOptions::sends_in_flight"),
        receives_(*budget_.reserve(receives)) {}

  Result<Reservation> reserve(std::uint32_t completions) { return budget_.reserve(completions); }
  // Whether no connection has any: none is bound to the queue.
  bool is_unused() const { return budget_.reserved() == receives_.entries(); }

 private:
  CompletionBudget budget_;
  const Reservation receives_;
};

}  // namespace rkv::rdma
