// Registered memory for large values on their way in or out. Buffers are allocated when they are
// first needed, and kept for the next use, up to a total limit.
//
// The server may READ a buffer (a put), or READs land in it (a get). A buffer is handed to another
// operation only when the previous operation was answered, or when its connection was closed
// (ARENA-1).
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "rdma/transport/transport.h"
#include "rkv/result.h"

namespace rkv::client {

class LargeBuffers {
 public:
  struct Buffer {
    std::unique_ptr<rdma::Region> region;
    bool taken = false;
    MutableBytes bytes() const { return region->bytes(); }
  };

  // `limit_bytes`: at least kMaxValueBytes, so that one value always fits.
  LargeBuffers(rdma::Transport& transport, std::size_t limit_bytes)
      : transport_(&transport), limit_bytes_(limit_bytes) {}

  // Takes a buffer of at least `length` bytes, 1 to kMaxValueBytes. kBusy: the limit is reached;
  // give a buffer back first. Other errors are the transport's: the memory cannot be registered.
  Result<Buffer*> take(std::size_t length);
  void give_back(Buffer* buffer) {
    if (buffer != nullptr) buffer->taken = false;
  }

 private:
  static constexpr std::size_t kLeastBytes = std::size_t{256} << 10;
  static constexpr std::size_t kMostBuffers = 128;

  rdma::Transport* transport_;
  std::size_t limit_bytes_;
  std::size_t held_bytes_ = 0;
  std::vector<std::unique_ptr<Buffer>> all_;
};

}  // namespace rkv::client
