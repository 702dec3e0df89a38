// The same work by the library. Inlined into each loop, as in plain.cc: the compiler knows the
// number of requests there.
#include <array>

#include "bench/verbs/loops.h"

namespace rkv::bench {
namespace {

using rdma::OpFlags;
using rdma::RegisteredSpan;
using rdma::RemoteSpan;

[[gnu::always_inline]] inline void post(rdma::QueuePair& queue, const Places& places,
                                        std::uint64_t rounds, std::uint32_t count) {
  const std::size_t bytes = places.bytes;
  const auto local = RegisteredSpan::unchecked(
      {reinterpret_cast<std::byte*>(places.local), kMany * bytes}, places.local_key);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto batch = queue.batch();
    for (std::uint32_t i = 0; i < count; ++i) {
      batch.read(
          i, i + 1 == count ? OpFlags::kSignaled : OpFlags::kNone, local.subspan(i * bytes, bytes),
          RemoteSpan{
              .address = places.remote + i * bytes, .length = bytes, .rkey = places.remote_key});
    }
    if (!std::move(batch).submit()) failed();
  }
}

[[gnu::always_inline]] inline std::uint64_t poll(CountedDevice& device,
                                                 rdma::CompletionQueue& queue, std::uint64_t rounds,
                                                 std::uint32_t count) {
  std::array<rdma::WorkCompletion, kMany> done;
  std::uint64_t sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    device.complete(count);
    const auto found = queue.poll(std::span(done).first(count));
    if (!found) failed();
    store_all(done);
    for (const rdma::WorkCompletion& one : std::span(done).first(*found)) {
      if (!one.ok()) failed();
      sum += one.wr_id;
    }
  }
  return sum;
}

[[gnu::always_inline]] inline std::uint64_t poll_in_place(CountedDevice& device,
                                                          InPlaceQueue& queue, std::uint64_t rounds,
                                                          std::uint32_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    device.complete(count);
    for (auto& one : queue.poll(count)) {
      if (!one.ok()) failed();
      sum += one.wr_id() + one.byte_length();
    }
  }
  return sum;
}

}  // namespace

void wrapped_post_one(rdma::QueuePair& queue, const Places& places, std::uint64_t rounds) {
  post(queue, places, rounds, 1);
}
void wrapped_post_many(rdma::QueuePair& queue, const Places& places, std::uint64_t rounds) {
  post(queue, places, rounds, kMany);
}
std::uint64_t wrapped_poll_one(CountedDevice& device, rdma::CompletionQueue& queue,
                               std::uint64_t rounds) {
  return poll(device, queue, rounds, 1);
}
std::uint64_t wrapped_poll_many(CountedDevice& device, rdma::CompletionQueue& queue,
                                std::uint64_t rounds) {
  return poll(device, queue, rounds, kMany);
}
std::uint64_t wrapped_poll_in_place_one(CountedDevice& device, InPlaceQueue& queue,
                                        std::uint64_t rounds) {
  return poll_in_place(device, queue, rounds, 1);
}
std::uint64_t wrapped_poll_in_place_many(CountedDevice& device, InPlaceQueue& queue,
                                         std::uint64_t rounds) {
  return poll_in_place(device, queue, rounds, kMany);
}

}  // namespace rkv::bench
