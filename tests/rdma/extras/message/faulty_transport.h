// Wraps a transport and injects faults.
//
//   FaultyTransport faulty(std::move(transport), {.refuse_one_in = 3, .short_accept_bytes = 100});
//   faulty.faults().disconnect_after_sends = 10;   // may be changed at any time
//
// The transport keeps MSG-1 to MSG-7 with all of these faults: any network may behave so.
//
// Thread safety and buffers: those of the transport inside.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "rkv/rdma/message/transport.h"

namespace rkv::rdma::testing {

struct Faults {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t disconnect_after_sends = kNever;  // sends before the connection is cut
  std::uint64_t disconnect_after_receives = kNever;
  std::uint32_t refuse_one_in = 0;  // refuse one in this many sends ("no room"); 0 none, 1 all
  std::size_t short_accept_bytes = std::numeric_limits<std::size_t>::max();  // longest message
  std::size_t receive_at_a_time = std::numeric_limits<std::size_t>::max();
  std::uint64_t seed = 1;  // selects which sends are refused
};

template <MessageTransport T>
class FaultyTransport {
 public:
  explicit FaultyTransport(T inner, Faults faults = {})
      : inner_(std::move(inner)), faults_(faults), random_(faults.seed) {}

  Faults& faults() { return faults_; }
  T& inner() { return inner_; }
  std::uint64_t refusals() const { return refusals_; }

  Result<std::size_t> send_copy(Bytes message) { return send_gather({&message, 1}); }
  Result<std::size_t> send_gather(std::span<const Bytes> pieces) {
    if (sent_ >= faults_.disconnect_after_sends) RKV_RETURN_IF_ERROR(inner_.disconnect());
    refused_ = refuses();
    if (refused_) return 0U;
    // One message of at most short_accept_bytes: the first pieces, the last of them truncated.
    std::array<Bytes, kPieces> fewer;
    std::size_t count = 0;
    std::size_t room = faults_.short_accept_bytes;
    for (; count < pieces.size() && count < kPieces && room != 0; ++count) {
      fewer[count] = pieces[count].first(std::min(room, pieces[count].size()));
      room -= fewer[count].size();
    }
    RKV_ASSIGN_OR_RETURN(const std::size_t taken,
                         inner_.send_gather(std::span<const Bytes>(fewer).first(count)));
    if (taken != 0) ++sent_;
    return taken;
  }
  Result<std::size_t> poll_sends() { return inner_.poll_sends(); }
  Result<std::size_t> poll_receives(std::span<Received> out) {
    if (received_ >= faults_.disconnect_after_receives) RKV_RETURN_IF_ERROR(inner_.disconnect());
    out = out.first(std::min(out.size(), faults_.receive_at_a_time));
    RKV_ASSIGN_OR_RETURN(const std::size_t count, inner_.poll_receives(out));
    received_ += count;
    return count;
  }
  Bytes view(std::uint32_t index) const { return inner_.view(index); }
  Status release(std::uint32_t index) { return inner_.release(index); }
  bool poll_disconnect() { return inner_.poll_disconnect(); }
  Status disconnect() { return inner_.disconnect(); }
  SocketAddress local_address() const { return inner_.local_address(); }
  SocketAddress peer_address() const { return inner_.peer_address(); }
  std::size_t max_message() const {
    return std::min(inner_.max_message(), faults_.short_accept_bytes);
  }
  std::size_t sends_in_flight() const { return inner_.sends_in_flight(); }
  std::size_t receive_window() const { return inner_.receive_window(); }
  int fd() const { return inner_.fd(); }
  Result<bool> arm(Interest interest) {
    RKV_ASSIGN_OR_RETURN(const bool quiet, inner_.arm(interest));
    // An injected refusal ends by itself and raises no event, so a waiter for space must not sleep.
    return quiet && !(refused_ && has(interest, Interest::kRoom));
  }

 private:
  static constexpr std::size_t kPieces = 64;

  bool refuses() {
    if (faults_.refuse_one_in == 0) return false;
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's constants
    const bool yes = (random_ >> 33) % faults_.refuse_one_in == 0;
    refusals_ += yes ? 1 : 0;
    return yes;
  }

  T inner_;
  Faults faults_;
  std::uint64_t random_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t refusals_ = 0;
  bool refused_ = false;
};

// Creates faulty transports around the transports that `Inner` creates.
template <TransportBuilder Inner>
struct FaultyBuilder {
  using Transport = FaultyTransport<typename Inner::Transport>;
  using Listener = typename Inner::Listener;

  Inner inner;
  Faults faults;

  Result<Listener> listen(const SocketAddress& local) const { return inner.listen(local); }
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const {
    RKV_ASSIGN_OR_RETURN(auto made, inner.connect(peer, deadline));
    return Transport(std::move(made), faults);
  }
  Result<Transport> accept(Listener& listener, const Deadline& deadline) const {
    RKV_ASSIGN_OR_RETURN(auto made, inner.accept(listener, deadline));
    return Transport(std::move(made), faults);
  }
};

}  // namespace rkv::rdma::testing
