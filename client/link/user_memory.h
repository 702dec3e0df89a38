// Registered memory of the program that embeds a client: long values are READ straight into it.
//
// Invariants:
//  USERMEM-1  While an operation holds a buffer, the buffer is registered. The destructor of a
//      buffer waits until no operation holds it.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "common/mutex.h"
#include "rdma/transport/transport.h"
#include "rkv/result.h"

namespace rkv::client {

class UserMemory;

// One buffer. It keeps the transport alive, and may outlive the client.
class UserBuffer {
 public:
  UserBuffer(std::shared_ptr<UserMemory> memory, std::unique_ptr<rdma::Region> region);
  ~UserBuffer();
  UserBuffer(const UserBuffer&) = delete;
  UserBuffer& operator=(const UserBuffer&) = delete;

  std::span<std::byte> bytes() const { return region_->bytes(); }
  const rdma::Region& region() const { return *region_; }
  const rdma::Transport* transport() const;
  // An operation that holds the buffer calls it, once.
  void leave();

 private:
  friend class UserMemory;
  const std::shared_ptr<UserMemory> memory_;
  const std::unique_ptr<rdma::Region> region_;
  std::size_t holders_ = 0;  // guarded by memory_->mutex_
};

// The buffers of a client's connections, which have one transport.
class UserMemory : public std::enable_shared_from_this<UserMemory> {
 public:
  explicit UserMemory(std::shared_ptr<rdma::Transport> transport)
      : transport_(std::move(transport)) {}

  // Registers memory, zeroed and page-aligned. kInvalidArgument: 0 bytes. Other errors are the
  // transport's.
  Result<std::unique_ptr<UserBuffer>> allocate(std::size_t bytes, rdma::Access access);
  // The buffer that all these bytes lie in, for an operation to hold; null: none.
  UserBuffer* enter(std::span<std::byte> bytes);

 private:
  friend class UserBuffer;
  const std::shared_ptr<rdma::Transport> transport_;
  std::atomic<bool> is_used_ = false;  // a buffer was allocated: most programs have none
  Mutex mutex_;
  ConditionVariable left_;
  std::vector<UserBuffer*> buffers_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::client
