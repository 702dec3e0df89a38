// A device that does nothing but count, for counting the instructions on this side of it: its
// functions cost the same whoever calls them. What libibverbs would do for opening, making and
// asking is defined here as well, so a program with this in it has no other device.
//
//   CountedDevice device;
//   QueuePair qp = ...QueuePair::create(...) on Device::borrow(device.context())...;
//   device.complete(16);                    // the next polls find these
//
// One at a time. Thread safety: one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rkv::bench {

struct Counts {
  std::uint64_t requests = 0;
  std::uint64_t pieces = 0;
  std::uint64_t doorbells = 0;
  std::uint64_t completions = 0;
};

class CountedDevice {
 public:
  CountedDevice();
  CountedDevice(const CountedDevice&) = delete;
  CountedDevice& operator=(const CountedDevice&) = delete;

  ibv_context* context();
  ibv_qp_ex* queue();
  ibv_cq_ex* completions();
  void complete(std::uint64_t count);
  Counts counts() const;  // since it was made
};

}  // namespace rkv::bench
