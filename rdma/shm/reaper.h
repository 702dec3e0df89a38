// Closing what peers have made, and counting what they make us hold.
//
// The last close of a descriptor can wait for as long as its maker likes: a TCP socket that
// lingers, a file whose server does not answer. Nor is it only close(2): the kernel closes the
// descriptors that lie unread in a socket when that socket is closed, and those for which a
// receiver has no room, in the thread that does it. So no thread that serves anybody does either.
//
// Invariants
//  D1  A packet with descriptors that are not expected is never taken out of its socket: it is seen
//      there (peek_packet) and goes with the socket.
//  D2  A socket to a peer that we accepted, and every descriptor that one passed, is closed by a
//      Reaper's thread. A signal ends the waits there that a signal can end, lingering among them.
//  D3  What a signal cannot end is the flush of a file that was passed as memory (FUSE). Such
//      descriptors have a Reaper of their own, so that nothing else waits behind them.
//  D4  Peers make us hold a bounded number of descriptors (DescriptorBudget). It counts each until
//      it has been closed, and leaves the process as many for itself.
//
// Thread safety: all of it, but for PeerSocket and Charge, which belong to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "rdma/shm/memory.h"

namespace rkv::rdma::shm {

class Charge;

class DescriptorBudget : public std::enable_shared_from_this<DescriptorBudget> {
 public:
  // Half of this process's limit of open files.
  static std::size_t limit_of_process();

  explicit DescriptorBudget(std::size_t limit = limit_of_process()) : limit_(limit) {}
  // Sockets may take all of it, and kRefusals more that are told so and closed (is_overdrawn);
  // regions three quarters, so that clients that share memory do not keep others out. An empty
  // Charge: there is no room.
  static constexpr std::size_t kRefusals = 64;
  Charge take_socket();
  Charge take_regions(std::size_t count);
  // For what came without being asked for: it is held already, and counts whatever the limit is.
  Charge take_unasked(std::size_t count);
  bool is_overdrawn() const { return held() > limit(); }
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  std::size_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::size_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  // Held by whoever receives descriptors: a packet may bring 253 of them, more than it says, and
  // room for those is kept once and not for every thread.
  std::mutex& receiving() { return receiving_; }

 private:
  friend class Charge;
  Charge take(std::size_t count, std::size_t most);
  // Relaxed: these are counts, nothing is published by them.
  std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> held_ = 0;
  std::mutex receiving_;
};

// Descriptors that are counted; given back when it is destroyed.
class Charge {
 public:
  Charge() = default;
  ~Charge() { give_back(); }
  Charge(Charge&& other) noexcept
      : budget_(std::move(other.budget_)), count_(std::exchange(other.count_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(count_, other.count_);
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  explicit operator bool() const { return count_ != 0; }
  // One of them, for a descriptor that goes its own way.
  Charge split_one();

 private:
  friend class DescriptorBudget;
  Charge(std::shared_ptr<DescriptorBudget> budget, std::size_t count)
      : budget_(std::move(budget)), count_(count) {}
  void give_back();
  std::shared_ptr<DescriptorBudget> budget_;
  std::size_t count_ = 0;
};

// A thread that closes. It is started by the first close, and does not keep the process: one that
// is stuck when its Reaper is destroyed is left behind.
class Reaper {
 public:
  Reaper();
  ~Reaper();  // waits for what is there, a tenth of a second at most
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Never blocks, never fails. `charge` is given back when the descriptor has been closed.
  void close(Fd fd, Charge charge = {});

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread has it too
};

// The socket of a connection. One that was accepted is closed by a Reaper, our own call here.
class PeerSocket {
 public:
  PeerSocket() = default;
  explicit PeerSocket(Fd called) : fd_(std::move(called)) {}
  PeerSocket(Fd accepted, std::shared_ptr<Reaper> reaper, Charge charge)
      : fd_(std::move(accepted)), reaper_(std::move(reaper)), charge_(std::move(charge)) {}
  ~PeerSocket() { reset(); }
  PeerSocket(PeerSocket&&) noexcept = default;
  PeerSocket& operator=(PeerSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(reaper_, other.reaper_);
    std::swap(charge_, other.charge_);
    return *this;
  }
  PeerSocket(const PeerSocket&) = delete;
  PeerSocket& operator=(const PeerSocket&) = delete;
  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();  // the peer sees the end at once

 private:
  Fd fd_;
  std::shared_ptr<Reaper> reaper_;
  Charge charge_;
};

}  // namespace rkv::rdma::shm
