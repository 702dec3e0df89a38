// Connection set-up: a request is sent from one host to the listener of another, and the answer is
// sent back.
//
// Thread safety: none.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "tests/sim/network/link.h"
#include "tests/sim/network/queue.h"

namespace rkv::rdma::sim {

// The state of one connection request, shared by both sides.
struct Handshake {
  enum class State : std::uint8_t { kPending, kAccepted, kRejected, kUnreachable };
  State state = State::kPending;
  bool abandoned = false;  // the connecting side no longer waits
  std::array<std::byte, 56> request{};
  std::string from;           // "client:1"
  Link::EndOptions active{};  // its queue has a reservation
  Link* link = nullptr;       // set by accept()
  std::vector<std::byte> answer;
  Rejection rejection;
  WaitPoint point;  // connect() waits here
};

// The text of Incoming::called() for the listener of a port.
inline std::string called_text(std::uint16_t port) {
  return "sim:" + std::to_string(port);
}

class SimListener final : public Listener {
 public:
  SimListener(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host, std::uint16_t port);
  ~SimListener() override;
  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override;
  std::uint16_t port() const override { return port_; }

  void arrive(std::shared_ptr<Handshake> handshake);
  void nudge() { fabric_->scheduler().notify(point_); }
  // Called when the host has stopped: drops all requests without an answer.
  void vanish();

 private:
  std::shared_ptr<Fabric> fabric_;
  std::shared_ptr<Host> host_;
  std::uint16_t port_;
  std::deque<std::shared_ptr<Handshake>> arrived_;
  WaitPoint point_;
  bool woken_ = false;
};

class SimIncoming final : public Incoming {
 public:
  SimIncoming(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host,
              std::shared_ptr<Handshake> handshake, std::uint16_t port)
      : fabric_(std::move(fabric)),
        host_(std::move(host)),
        handshake_(std::move(handshake)),
        port_(port) {}
  ~SimIncoming() override {
    if (!answered_) reject({});
  }
  Bytes private_data() const override { return handshake_->request; }
  const std::string& peer() const override { return handshake_->from; }
  std::string called() const override { return called_text(port_); }
  Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                             Bytes private_data, const Deadline& deadline) override;
  void reject(Bytes reason) override;

 private:
  std::shared_ptr<Fabric> fabric_;
  std::shared_ptr<Host> host_;
  std::shared_ptr<Handshake> handshake_;
  std::uint16_t port_;
  bool answered_ = false;
};

// The limits of an end, and the number of completions to reserve in its queue.
ConnectionLimits limits_of(const Faults& faults, const ConnectionOptions& options, bool active);
constexpr std::uint32_t completions_of(const ConnectionLimits& limits) {
  return limits.sends_in_flight + 1;  // plus kDisconnected
}

}  // namespace rkv::rdma::sim
