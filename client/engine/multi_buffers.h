// What MultiGet and MultiPut keep from call to call, to save allocations.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/engine/getter.h"
#include "client/link/large_buffers.h"
#include "rdma/transport/transport.h"
#include "rkv/options.h"

namespace rkv::client {

struct MultiGetBuffers {
  explicit MultiGetBuffers(const ClientOptions& options) {
    batch.reserve(2 * std::size_t{options.reads_in_flight} + options.requests_in_flight);
    free_lanes.reserve(options.reads_in_flight);
  }
  std::vector<rdma::Operation> batch;
  std::vector<GetLane*> free_lanes;
};

// One PUT in flight, or refused with "later" and to be sent again.
struct PutSlot {
  enum class State : std::uint8_t { kFree, kSent, kAgain };
  State state = State::kFree;
  std::size_t index = 0;                  // of the item
  LargeBuffers::Buffer* value = nullptr;  // where the server READs a large value
};

struct MultiPutBuffers {
  explicit MultiPutBuffers(const ClientOptions& options) : slots(options.requests_in_flight) {
    batch.reserve(slots.size());
    batched.reserve(slots.size());
  }
  std::vector<PutSlot> slots;
  std::vector<rdma::Operation> batch;
  std::vector<PutSlot*> batched;  // slots whose requests the batch holds
};

}  // namespace rkv::client
