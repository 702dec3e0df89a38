// ShmListener: a Unix socket that no other server can have, and the callers that have not yet
// introduced themselves (strangers).
//
// Invariants
//  SHMLISTEN-1  The lock file is locked from before the socket is created until after it is
//      removed. So a socket that is found while holding the lock was left by a server that has
//      died.
//  SHMLISTEN-2  A stranger introduces itself with its first packet. Silent strangers, at most
//      kMaxStrangers, wait for at most kPatience and delay nobody. If there are more, the process
//      that has most of them loses its oldest.
//  SHMLISTEN-3  The memory of a connection is bounded by the acceptor's receive and send limits,
//      whatever the caller claims to accept.
//  SHMLISTEN-4  While callers cannot be accepted for lack of descriptors or memory, the socket is
//      tried again every kPause. It is not polled meanwhile, because waiting callers keep it
//      readable.
//
// Thread safety: one thread, except wake().
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/transport/shm/protocol.h"
#include "rdma/transport/shm/reaper.h"
#include "rdma/transport/shm/shared.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::shm {

class ShmListener final : public Listener {
 public:
  static constexpr std::size_t kMaxStrangers = 64;
  static constexpr Nanos kPatience = 2'000 * kNanosPerMs;
  static constexpr Nanos kPause = 50 * kNanosPerMs;

  // Port 0: any. kConflict: another server has the port.
  static Result<std::unique_ptr<Listener>> listen(std::shared_ptr<Shared> shared,
                                                  std::uint16_t port);
  ~ShmListener() override;
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override;
  std::uint16_t port() const override { return port_; }

 private:
  struct Stranger {
    PeerSocket socket;
    Nanos since;
    int pid;
  };

  ShmListener(std::shared_ptr<Shared> shared, std::uint16_t port, Fd lock, std::string path)
      : shared_(std::move(shared)), port_(port), lock_(std::move(lock)), path_(std::move(path)) {}
  static Result<std::unique_ptr<Listener>> listen_on(std::shared_ptr<Shared> shared,
                                                     const std::string& directory,
                                                     std::uint16_t port);
  Status open();
  Status watch(int fd);
  void take_callers();
  Fd take_caller(Nanos now);
  void pause(Nanos now, int error);
  void resume(Nanos now);
  void make_room_among_strangers();
  // Returns whether the stranger is finished: introduced, or refused.
  bool hear(Stranger& stranger);
  void hear_stranger(int fd);
  void forget_the_silent(Nanos now);

  std::shared_ptr<Shared> shared_;
  std::uint16_t port_;
  Fd lock_;
  std::string path_;
  Fd socket_;
  Waker waker_;
  Fd epoll_;
  Nanos paused_until_ = 0;           // (SHMLISTEN-4) 0: not paused
  std::vector<Stranger> strangers_;  // oldest first
  std::deque<std::unique_ptr<Incoming>> introduced_;
};

}  // namespace rkv::rdma::shm
