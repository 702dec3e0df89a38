// Arena: the registered memory of a client, in one region. It has a staging area for the map, a
// line for looks beside it, and a GetMemory for each GET in flight. It also has a small buffer for
// each request, and a few large buffers, which GETs of long records and long requests share.
//
// Invariants:
//  ARENA-1  A buffer is handed to another operation only when the completion of the previous
//      operation was seen, or when its connection was closed (Link::close drains).
//
// Thread safety: none. Nothing allocates after create().
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "client/get/get.h"
#include "common/wire.h"
#include "rdma/transport/transport.h"

namespace rkv::client {

class Arena {
 public:
  static constexpr std::size_t kStagingBytes = std::size_t{64} << 10;
  static constexpr std::size_t kLookBytes = 64;
  static constexpr std::size_t kRequestBytes = 4096;
  static constexpr std::size_t kLargeBuffers = 8;
  static constexpr std::size_t kLargeBytes =
      round_up(std::max(kMaxInlineRecordBytes, kMaxMessageBytes), 4096);
  static_assert(kLargeBytes >= GetMachine::kLargeBufferBytes);

  // Length of the region.
  static std::size_t region_bytes(std::size_t gets, std::size_t requests);
  static Result<Arena> create(rdma::Transport& transport, std::size_t gets, std::size_t requests);

  std::uint32_t local_key() const { return region_->local_key(); }
  // Key for the server, which READs long requests; 0 if the server READs no requests.
  std::uint32_t remote_key() const { return region_->remote_key(); }
  MutableBytes staging() const { return staging_; }
  MutableBytes look() const { return look_; }
  GetMemory& get_memory(std::size_t index) const { return gets_[index]; }
  MutableBytes request(std::size_t index) const {
    return requests_.subspan(index * kRequestBytes, kRequestBytes);
  }
  // Returns a large buffer, or an empty span if all are in use.
  MutableBytes take_large();
  void give_back_large(MutableBytes large);

 private:
  Arena() = default;

  std::unique_ptr<rdma::Region> region_;
  MutableBytes staging_;
  MutableBytes look_;
  GetMemory* gets_ = nullptr;
  MutableBytes requests_;
  std::vector<MutableBytes> free_large_;
};

}  // namespace rkv::client
