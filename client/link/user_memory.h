// UserMemory: registered memory of the program that embeds a client. Long values are READ straight
// into it.
//
// Invariants:
//  USERMEM-1  The memory of a buffer is registered as long as its owner or an operation holds it.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "common/mutex.h"
#include "rdma/transport/transport.h"
#include "rkv/result.h"

namespace rkv::client {

// One buffer. It keeps the transport alive, and may outlive the client.
class UserBuffer {
 public:
  UserBuffer(std::shared_ptr<rdma::Transport> transport, std::unique_ptr<rdma::Region> region)
      : transport_(std::move(transport)), region_(std::move(region)) {}

  std::span<std::byte> bytes() const { return region_->bytes(); }
  const rdma::Region& region() const { return *region_; }
  const rdma::Transport* transport() const { return transport_.get(); }

 private:
  const std::shared_ptr<rdma::Transport> transport_;
  const std::unique_ptr<rdma::Region> region_;
};

// The buffers of a client's connections, which share one transport.
class UserMemory {
 public:
  explicit UserMemory(std::shared_ptr<rdma::Transport> transport)
      : transport_(std::move(transport)) {}

  // Registers memory, zeroed and page-aligned. kInvalidArgument: 0 bytes. Other errors are the
  // transport's.
  Result<std::shared_ptr<UserBuffer>> allocate(std::size_t bytes, rdma::Access access);
  // The owner of the buffer is gone: find() does not return it any more.
  void forget(const UserBuffer& buffer);
  // Returns the buffer that all these bytes lie in; null: none.
  std::shared_ptr<UserBuffer> find(std::span<std::byte> bytes);

 private:
  const std::shared_ptr<rdma::Transport> transport_;
  std::atomic<bool> is_used_ = false;  // a buffer was allocated: most programs have none
  Mutex mutex_;
  std::map<std::byte*, std::shared_ptr<UserBuffer>> buffers_ RKV_GUARDED_BY(mutex_);  // by address
};

}  // namespace rkv::client
