// The same work twice: through the library, and as a C program would do it. callgrind finds each
// function by its name. Each function does its work `rounds` times. In each round, of either way,
// CountedDevice::complete() supplies the completions to be polled.
#pragma once

#include <cstdint>

#include "bench/verbs/counted_device.h"
#include "rkv/rdma/extended_completion.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::bench {

// Requests per doorbell, and completions per poll.
inline constexpr std::uint32_t kMany = 32;

// Arguments of the READs. The compiler does not know their values, so both ways must pass them and
// the library must check them.
struct Places {
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t bytes = 0;  // of each READ
};

// Makes the compiler store what it would keep in registers or drop: an array that somebody reads.
template <class Array>
[[gnu::always_inline]] inline void store_all(Array& array) {
  asm volatile("" : : "r"(&array) : "memory");
}

using InPlaceQueue = rdma::ExtendedCompletionQueue<rdma::WcField::kByteLength>;

extern "C" {
// One READ per doorbell, and kMany.
void plain_post_one(ibv_qp_ex* queue, const Places& places, std::uint64_t rounds);
void plain_post_many(ibv_qp_ex* queue, const Places& places, std::uint64_t rounds);
void wrapped_post_one(rdma::QueuePair& queue, const Places& places, std::uint64_t rounds);
void wrapped_post_many(rdma::QueuePair& queue, const Places& places, std::uint64_t rounds);
// One completion per poll, and kMany. Return the sum of the wr_ids.
std::uint64_t plain_poll_one(CountedDevice& device, std::uint64_t rounds);
std::uint64_t plain_poll_many(CountedDevice& device, std::uint64_t rounds);
std::uint64_t wrapped_poll_one(CountedDevice& device, rdma::CompletionQueue& queue,
                               std::uint64_t rounds);
std::uint64_t wrapped_poll_many(CountedDevice& device, rdma::CompletionQueue& queue,
                                std::uint64_t rounds);
// The same, with each completion read in place: status, wr_id and length. Return the sum of the
// wr_ids and lengths.
std::uint64_t plain_poll_in_place_one(CountedDevice& device, std::uint64_t rounds);
std::uint64_t plain_poll_in_place_many(CountedDevice& device, std::uint64_t rounds);
std::uint64_t wrapped_poll_in_place_one(CountedDevice& device, InPlaceQueue& queue,
                                        std::uint64_t rounds);
std::uint64_t wrapped_poll_in_place_many(CountedDevice& device, InPlaceQueue& queue,
                                         std::uint64_t rounds);
}

[[noreturn]] void failed();  // for errors of a device that cannot fail

}  // namespace rkv::bench
