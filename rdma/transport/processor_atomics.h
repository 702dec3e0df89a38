// ProcessorAtomics: changes words that peers change too, for transports where the peers' changes
// are also instructions of this host's processors: shared memory and TCP.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "rdma/transport/transport.h"

namespace rkv::rdma {

class ProcessorAtomics final : public Atomics {
 public:
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return std::atomic_ref(*word).fetch_add(addend, std::memory_order_seq_cst);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    std::atomic_ref(*word).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
    return expected;
  }
};

}  // namespace rkv::rdma
