// The completion queues of one message transport: its own, or its part of a shared one
// (shared_queue.h).
//
// Thread safety: one thread at a time.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <span>
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
  LinkQueues() = default;
  LinkQueues(const LinkQueues&) = delete;
  LinkQueues& operator=(const LinkQueues&) = delete;
  // REQUIRES: the queue pair no longer exists.
  virtual ~LinkQueues() = default;

  virtual CompletionQueue& sends() = 0;
  virtual CompletionQueue& receives() = 0;
  // Called once, before the queue pair posts anything.
  virtual Status join(std::uint32_t qp_num) = 0;
  // The wr_ids of requests. Polled completions have the number again. REQUIRES: join().
  virtual std::uint64_t send_id(std::uint32_t number) const = 0;
  virtual std::uint64_t receive_id(std::uint32_t number) const = 0;
  virtual Result<std::size_t> poll_sends(std::span<WorkCompletion> out) = 0;
  virtual Result<std::size_t> poll_receives(std::span<WorkCompletion> out) = 0;

  // Adds a descriptor that makes fd() readable.
  virtual Status watch(int fd) = 0;
  virtual int fd() const = 0;
  // A caller that wants to sleep calls arm(), then polls both queues, since earlier completions
  // raise no event, and then sleeps_on(). After sleeps_on(true) the next completion or the next
  // event of a watched descriptor makes fd() readable. arm() returns false if the caller must not
  // sleep, for a reason that raises no event.
  virtual Result<bool> arm() = 0;
  virtual void sleeps_on(bool asleep) = 0;
};

// One queue for each direction, and a descriptor.
class OwnQueues final : public LinkQueues {
 public:
  static Result<std::unique_ptr<LinkQueues>> create(const Device& device, std::uint32_t sends,
                                                    std::uint32_t receives);

  CompletionQueue& sends() override { return sends_; }
  CompletionQueue& receives() override { return receives_; }
  Status join(std::uint32_t /*qp_num*/) override { return {}; }
  std::uint64_t send_id(std::uint32_t number) const override { return number; }
  std::uint64_t receive_id(std::uint32_t number) const override { return number; }
  Result<std::size_t> poll_sends(std::span<WorkCompletion> out) override {
    return sends_.poll(out);
  }
  Result<std::size_t> poll_receives(std::span<WorkCompletion> out) override {
    return receives_.poll(out);
  }
  Status watch(int fd) override;
  int fd() const override { return poller_.get(); }
  Result<bool> arm() override;
  void sleeps_on(bool /*asleep*/) override {}

 private:
  OwnQueues(CompletionChannel channel, CompletionQueue sends, CompletionQueue receives,
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
