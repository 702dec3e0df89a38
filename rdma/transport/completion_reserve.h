// CompletionReserve: reserves completion entries of a queue for each connection before it exists,
// so that the queue never overruns. The queue's own receives are reserved first.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

#include "rkv/rdma/accounting.h"

namespace rkv::rdma {

class CompletionReserve {
 public:
  using Reservation = CompletionBudget::Reservation;

  // REQUIRES: receives <= completions.
  CompletionReserve(std::uint32_t completions, std::uint32_t receives)
      : budget_(completions,
                "the queue has no room for the completions of another connection: raise "
                "QueueOptions::completions or lower ConnectionOptions::sends_in_flight"),
        receives_(*budget_.reserve(receives)) {}

  Result<Reservation> reserve(std::uint32_t completions) { return budget_.reserve(completions); }
  // Whether no connection holds a reservation, so none is bound to the queue.
  bool is_unused() const { return budget_.reserved() == receives_.entries(); }

 private:
  CompletionBudget budget_;
  const Reservation receives_;
};

}  // namespace rkv::rdma
