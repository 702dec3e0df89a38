// A device that only counts, for counting the instructions of its callers: its functions cost the
// same for each caller. libibverbs' functions to open, create and query are defined here too, so a
// program that contains this file has no other device.
//
//   CountedDevice device;
//   QueuePair qp = ...QueuePair::create(...) on Device::borrow(device.context())...;
//   device.complete(16);                    // the next polls find these
//
// At most one instance exists. Thread safety: one thread.
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
  Counts counts() const;  // since construction
};

}  // namespace rkv::bench
