// Closes descriptors that peers created, and counts the descriptors that peers make us hold.
//
// The last close of a descriptor can block for as long as its creator likes: a TCP socket that
// lingers, a file whose server does not answer. This is not limited to close(2). When a socket is
// closed, the closing thread also closes the descriptors that lie unread in it. A receiving thread
// closes the descriptors that do not fit. So a thread that serves peers must do none of these.
//
// Invariants
//  REAP-1  A packet with unexpected descriptors is never taken out of its socket: peek_packet()
//      detects it, and it is closed with the socket.
//  REAP-2  Only a Reaper's thread closes the socket of an accepted peer and the descriptors that
//      the peer passed. There a signal ends the waits that a signal can end, including lingering.
//  REAP-3  A signal cannot end the flush of a file that was passed as memory (FUSE). These
//      descriptors have a separate Reaper, so that nothing else waits behind them.
//  REAP-4  Peers make us hold a bounded number of descriptors (DescriptorBudget). The budget counts
//      each until it is closed, and leaves the process as many for itself.
//
// Thread safety: any thread, except PeerSocket and Charge, which belong to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "common/mutex.h"
#include "rdma/transport/host_memory.h"

namespace rkv::rdma::shm {

class Charge;

class DescriptorBudget : public std::enable_shared_from_this<DescriptorBudget> {
 public:
  // Half of this process's limit of open files, at most 65536.
  static std::size_t limit_of_process();

  explicit DescriptorBudget(std::size_t limit = limit_of_process()) : limit_(limit) {}
  // Sockets may take the whole budget, plus kRefusals sockets whose peers are refused with a reason
  // and closed (is_overdrawn). Regions may take three quarters, so that clients that share memory
  // do not keep others out. Returns an empty Charge if the budget is exhausted.
  static constexpr std::size_t kRefusals = 64;
  Charge take_socket();
  Charge take_regions(std::size_t count);
  // Charges descriptors that arrived unrequested: they are held already and count whatever the
  // limit is.
  Charge take_unasked(std::size_t count);
  bool is_overdrawn() const { return held() > limit(); }
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  std::size_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::size_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  // Hold this lock while receiving descriptors. A packet may bring 253 of them, more than it
  // announces. The reserve for those exists once, not for every thread.
  Mutex& receiving() RKV_RETURN_CAPABILITY(receiving_) { return receiving_; }

 private:
  friend class Charge;
  Charge take(std::size_t count, std::size_t most);
  // Relaxed: these are counts; they publish nothing.
  std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> held_ = 0;
  Mutex receiving_;
};

// Counted descriptors; the destructor returns them to the budget.
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
  // Splits off one descriptor that is closed separately.
  Charge split_one();

 private:
  friend class DescriptorBudget;
  Charge(std::shared_ptr<DescriptorBudget> budget, std::size_t count)
      : budget_(std::move(budget)), count_(count) {}
  void give_back();
  std::shared_ptr<DescriptorBudget> budget_;
  std::size_t count_ = 0;
};

// A thread that closes descriptors. The first close() starts it. The thread does not delay the end
// of the process: if it is stuck when its Reaper is destroyed, it is left behind.
class Reaper {
 public:
  Reaper();
  ~Reaper();  // waits for queued closes, a tenth of a second at most
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Never blocks, never fails. `charge` is returned when the descriptor has been closed.
  void close(Fd fd, Charge charge = {});

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

// The socket of a connection. A Reaper closes a socket that was accepted; a socket that called is
// closed here.
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
