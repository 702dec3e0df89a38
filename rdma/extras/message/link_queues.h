// The completion queues of one message transport, one for each direction, and a descriptor.
//
// Thread safety: one thread at a time.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "rkv/rdma/completion.h"

namespace rkv::rdma::detail {

// Owns a descriptor; the destructor closes it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

class LinkQueues {
 public:
  static Result<LinkQueues> create(const Device& device, std::uint32_t sends,
                                   std::uint32_t receives);

  CompletionQueue& sends() { return sends_; }
  CompletionQueue& receives() { return receives_; }

  // Adds a descriptor that makes fd() readable.
  Status watch(int fd);
  int fd() const { return poller_.get(); }
  // A caller that wants to sleep calls arm(), then polls both queues, since earlier completions
  // raise no event. Then the next completion or the next event of a watched descriptor makes fd()
  // readable.
  Status arm();

 private:
  LinkQueues(CompletionChannel channel, CompletionQueue sends, CompletionQueue receives,
             Descriptor poller)
      : channel_(std::move(channel)),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        poller_(std::move(poller)) {}

  CompletionChannel channel_;
  CompletionQueue sends_;
  CompletionQueue receives_;
  Descriptor poller_;
};

}  // namespace rkv::rdma::detail
