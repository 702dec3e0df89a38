// bench_verbs_overhead: posts and polls on a device that only counts, through the library and as a
// C program would do; see README.md. Run it under callgrind, which finds the loops by their names.
#include <cstdio>
#include <stdexcept>

#include "bench/program.h"
#include "bench/verbs/loops.h"

namespace rkv::bench {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // a piece has less than 2 GiB

json to_json(const Counts& counts) {
  return {{"requests", counts.requests},
          {"pieces", counts.pieces},
          {"doorbells", counts.doorbells},
          {"completions", counts.completions}};
}

// Addresses that are never accessed.
Places places(const Arguments& given) {
  if (given["bytes"] > kMostBytes) throw Misuse("--bytes must be at most 1073741824");
  return {.local = 0x10000,
          .remote = 0x20000,
          .local_key = 1,
          .remote_key = 2,
          .bytes = static_cast<std::uint32_t>(given["bytes"])};
}

json plain(const Places& where, std::uint64_t rounds) {
  CountedDevice device;
  plain_post_one(device.queue(), where, rounds);
  plain_post_many(device.queue(), where, rounds);
  const std::uint64_t sum = plain_poll_one(device, rounds) + plain_poll_many(device, rounds) +
                            plain_poll_in_place_one(device, rounds) +
                            plain_poll_in_place_many(device, rounds);
  json out = to_json(device.counts());
  out["sum"] = sum;
  return out;
}

json wrapped(const Places& where, std::uint64_t rounds) {
  CountedDevice device;
  const rdma::Device borrowed = rdma::Device::borrow(device.context());
  const auto pd = value_or_give_up("allocate", rdma::ProtectionDomain::allocate(borrowed));
  auto queue = value_or_give_up("create", rdma::CompletionQueue::create(borrowed, {}));
  auto prepared = value_or_give_up("create", rdma::QueuePair::create(pd, queue, queue, {}));
  auto in_place = value_or_give_up("create", InPlaceQueue::create(borrowed, {}));
  auto qp = value_or_give_up("into_queue_pair", std::move(prepared).into_queue_pair());
  wrapped_post_one(qp, where, rounds);
  wrapped_post_many(qp, where, rounds);
  const std::uint64_t sum = wrapped_poll_one(device, queue, rounds) +
                            wrapped_poll_many(device, queue, rounds) +
                            wrapped_poll_in_place_one(device, in_place, rounds) +
                            wrapped_poll_in_place_many(device, in_place, rounds);
  json out = to_json(device.counts());
  out["sum"] = sum;
  return out;
}

json loops(const Arguments& given) {
  const std::uint64_t rounds = given["rounds"];
  const Places where = places(given);
  return {{"many", kMany}, {"plain", plain(where, rounds)}, {"wrapped", wrapped(where, rounds)}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(
      argc, argv,
      {.name = "bench_verbs_overhead",
       .purpose = "Posts and polls through the verbs library and without it.",
       .flags = {{"rounds", "rounds of each loop", 1000}, {"bytes", "size of each READ", 64}},
       .phases = {{"loops", rkv::bench::loops}}});
}
