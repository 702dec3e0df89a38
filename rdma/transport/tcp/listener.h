// TcpListener: a listening socket, and the callers that have not said hello yet (strangers).
//
// Invariants:
//  TCPLISTEN-1  Silent strangers, at most kMaxStrangers, wait for at most kPatience and delay
//      nobody. If there are more, the host that has most of them loses its oldest.
//  TCPLISTEN-2  While callers cannot be accepted for lack of descriptors or memory, the socket is
//      tried again every kPause, and not polled meanwhile.
//
// Thread safety: one thread, except wake().
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "rdma/transport/tcp/incoming.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::tcp {

class TcpListener final : public Listener {
 public:
  static constexpr std::size_t kMaxStrangers = 256;
  static constexpr Nanos kPatience = 2 * kNanosPerSecond;
  static constexpr Nanos kPause = 50 * kNanosPerMs;

  static Result<std::unique_ptr<Listener>> listen(const std::string& address);

  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override { waker_.wake(); }
  std::uint16_t port() const override { return port_; }

 private:
  struct Stranger {
    Fd socket;
    Nanos since = 0;
    std::string host;
    std::array<std::byte, kHelloBytes> said{};
    std::size_t length = 0;
  };

  Status open(Fd socket);
  void take_callers(Nanos now);
  void make_room();
  bool hear(Stranger& stranger);
  int timeout_ms(const Deadline& deadline) const;

  Fd socket_;
  std::uint16_t port_ = 0;
  Waker waker_;
  Nanos paused_until_ = 0;
  std::vector<Stranger> strangers_;  // oldest first
  std::deque<std::unique_ptr<Incoming>> introduced_;
};

}  // namespace rkv::rdma::tcp
