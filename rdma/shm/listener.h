// ShmListener: a Unix socket that nobody else can have, and the strangers who knock on it.
//
// Invariants
//  L1  The lock file's lock is held from before the socket is made until after it is removed: a
//      socket found there under the lock was left by a server that has died.
//  L2  A stranger gets one packet to say who he is. Whoever says nothing waits with at most
//      kMaxStrangers others, for at most kPatience, and holds up nobody.
//  L3  The memory of a connection is bounded by what its acceptor receives and sends, whatever the
//      caller says that it can take.
//
// Thread safety: one thread, except wake().
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/shm/protocol.h"
#include "rdma/shm/shared.h"
#include "rdma/waker.h"

namespace rkv::rdma::shm {

class ShmListener final : public Listener {
 public:
  static constexpr std::size_t kMaxStrangers = 64;
  static constexpr Nanos kPatience = 2'000 * kNanosPerMs;

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
    Fd socket;
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
  void refuse_one_caller();
  // Whether the stranger is done with: introduced, or turned away.
  bool hear(Stranger& stranger);
  void hear_stranger(int fd);
  void forget_the_silent(Nanos now);

  std::shared_ptr<Shared> shared_;
  std::uint16_t port_;
  Fd lock_;
  std::string path_;
  Fd socket_;
  Waker waker_;
  Fd spare_;  // given up for a moment where descriptors have run out
  Fd epoll_;
  std::vector<Stranger> strangers_;  // oldest first
  std::deque<std::unique_ptr<Incoming>> introduced_;
};

}  // namespace rkv::rdma::shm
