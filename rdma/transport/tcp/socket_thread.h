// SocketThread: the one thread of a process that takes the part of an adapter: it answers peers
// whatever the threads of the program do.
//
// This thread reads the sockets of accepted connections (kOwn). A connection that this process has
// opened is read by its queue's thread as long as that polls, which saves a wake-up. If the queue's
// thread does not poll, this thread reads such a socket (kStandIn), kAbsent after something has
// come.
//
// Invariants:
//  TCPTHREAD-1  No call of a Watched is under way, and none begins, after remove() has returned.
//  TCPTHREAD-2  A socket is watched until remove(). But a readable kStandIn socket wakes the thread
//      only once per kAbsent.
//
// Thread safety: any thread. Calls of a Watched come from this thread, which must not call
// remove().
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/mutex.h"
#include "rdma/transport/waker.h"
#include "rkv/clock.h"
#include "rkv/result.h"

namespace rkv::rdma::tcp {

class Watched {
 public:
  // Called when a watched event of the socket has occurred, the socket has ended, or a moment of
  // call_at() has come.
  virtual void on_socket() = 0;
  // Rises whenever the queue's thread looks after the connection. kStandIn only.
  virtual std::uint64_t looks() const = 0;

 protected:
  ~Watched() = default;
};

class SocketThread {
 public:
  static constexpr Nanos kAbsent = 5 * kNanosPerMs;
  enum class Care : std::uint8_t { kOwn, kStandIn };

  SocketThread() = default;
  ~SocketThread();
  SocketThread(const SocketThread&) = delete;
  SocketThread& operator=(const SocketThread&) = delete;

  // Starts the thread, as the first add() also does. kBusy: the system has no descriptor or thread
  // left.
  Status start();
  // Returns a number for one socket. Calls for the socket may come before add() returns.
  std::uint64_t new_number() { return last_number_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // kBusy: as for start().
  Status add(std::uint64_t number, int socket, Care care, Watched& watched);
  // Blocks until no call is under way.
  void remove(std::uint64_t number);
  // From now on the socket is watched for `events` of epoll; 0: for nothing, not even its end.
  void watch(std::uint64_t number, std::uint32_t events);
  void call_at(std::uint64_t number, Nanos moment);

 private:
  struct Socket {
    int fd = -1;
    Care care = Care::kOwn;
    Watched* watched = nullptr;
    std::uint32_t events = 0;
    bool is_watched = true;
    Nanos look_at = 0;        // kStandIn: when to look; 0: the socket is armed
    std::uint64_t looks = 0;  // at the last event
    Nanos call_at = 0;        // 0: never
  };

  Status start_locked() RKV_REQUIRES(mutex_);
  void set(Nanos& moment, Nanos to, std::uint64_t number) RKV_REQUIRES(mutex_);
  Status arm(std::uint64_t number, const Socket& socket, int how);
  void event(std::uint64_t number);
  void run();
  int timeout_ms() RKV_REQUIRES(mutex_);
  void look_at_the_due();
  void call(std::uint64_t number);

  Mutex mutex_;
  ConditionVariable called_;
  std::uint64_t calling_ RKV_GUARDED_BY(mutex_) = 0;  // number of the call under way
  std::unordered_map<std::uint64_t, Socket> sockets_ RKV_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> last_number_{0};
  using Moments = std::multiset<std::pair<Nanos, std::uint64_t>>;
  Moments moments_ RKV_GUARDED_BY(mutex_);           // to look or call
  Moments::node_type spare_ RKV_GUARDED_BY(mutex_);  // node of a removed entry
  std::vector<std::uint64_t> due_;                   // used by the thread; kept to save allocations
  Fd epoll_;
  Waker waker_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace rkv::rdma::tcp
