// Facts about the networks, their workers and their devices. Endpoints fills them in.
//
// Thread safety: values. The objects that WorkerFacts points to may be read while the worker runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rdma/choose.h"
#include "server/clients/network/refusal_reason.h"
#include "server/request/message_buffers.h"
#include "server/request/timings.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

struct WorkerFacts {
  std::string_view transport;  // "verbs", "tcp", "shm"; static
  std::uint32_t number = 0;    // index among the workers of its transport
  const WorkerCounters* counters = nullptr;
  const Timings* timings = nullptr;
  const MessageBuffers* room = nullptr;
  std::uint32_t clients = 0;
  std::uint64_t reported_reads = 0;
};

using RefusalCounts = std::array<std::uint64_t, kRefusalReasons>;  // by RefusalReason

// A network by which clients connect, and the state of its device.
struct EndpointFacts {
  std::string_view transport;  // "verbs", "tcp", "shm"; static
  std::string device{};        // description of the device, or of the last one if it was lost
  rdma::DeviceState state = rdma::DeviceState::kServing;
  std::string why{};         // a sentence without a full stop; may be empty
  std::uint64_t losses = 0;  // devices lost so far

  bool serves() const { return state == rdma::DeviceState::kServing; }
};

}  // namespace rkv::server
