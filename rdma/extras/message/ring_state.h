// The state of a credit ring. Invariants: rkv/rdma/message/credit_ring.h; arithmetic: ring.h.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "rdma/extras/message/link.h"
#include "rdma/extras/message/ring.h"
#include "rkv/rdma/lease.h"
#include "rkv/rdma/message/credit_ring.h"

namespace rkv::rdma::detail {

// Receives for credits that this side has not reaped. Each credit reports a quarter of the ring or
// of the slots. Without a report the peer cannot be further ahead than one ring and all slots
// (RING-5): four and four.
inline constexpr std::uint32_t kCreditReceives = 8;
// The limit for credits whose completions are not reaped; further credits wait.
inline constexpr std::uint32_t kMostCredits = 8;

// The kind of a request in the send queue: its number.
inline constexpr std::uint32_t kData = 1;
inline constexpr std::uint32_t kCredit = 2;

// The small region has the credits that were received and sent.
inline constexpr std::size_t kCreditBytes = 8;

Status validate(const RingOptions& options);

class RingState {
 public:
  static constexpr TransportKind kKind = TransportKind::kCreditRing;

  static Result<std::unique_ptr<RingState>> make(const Device& device, const RingOptions& options);

  Link& link() { return link_; }
  const Link& link() const { return link_; }
  Token token() const;
  Status meet(const Token& peer);
  Status post_receives();
  // Opens the ring by a window, if one is used, and waits for the key of the peer's ring if that
  // has a window. try_begin() does not wait for the key, but returns whether it is there; its
  // deadline is for the window.
  Status begin(const Deadline& deadline);
  Result<bool> try_begin(const Deadline& deadline);
  // Disconnects, and ends the peer's access: no WRITE lands after this call.
  Status disconnect();

  Result<std::size_t> send(std::span<const Bytes> pieces);
  Result<std::size_t> poll_sends();
  Result<std::size_t> poll_receives(std::span<Received> out);
  Bytes view(std::uint32_t index) const;
  Status release(std::uint32_t index);
  Result<bool> arm(Interest interest) {
    return link_.arm([&] { return is_quiet(interest); });
  }
  bool poll_disconnect() { return link_.ended(); }
  SocketAddress local_address() const { return link_.local_address(); }
  SocketAddress peer_address() const { return link_.peer_address(); }
  int fd() const { return link_.fd(); }
  // Sends in flight, including those that are reaped but not yet reported by poll_sends().
  std::size_t in_flight() const { return sender_->in_flight() + unreported_; }
  std::size_t max_message() const { return sender_->shape().max_record - kRecordHeader; }
  std::size_t window() const { return sender_->shape().slots; }
  bool uses_window() const { return windows_; }
  const CreditRingTransport::Counters& counters() const { return counters_; }

 private:
  struct Memory {
    MemoryRegion ring;     // written by the peer, by its own key or a window's
    MemoryRegion staging;  // source of WRITEs, at the same offset as in the peer's ring
    MemoryRegion small;
  };

  RingState(bool windows, const RingOptions& options, Memory memory, Link link);
  std::uint32_t longest() const;
  Status post_receive(std::uint32_t index);
  Status checked(const Status& posted);
  void lied(const Error& error);
  Status tell();
  void take_freed(std::uint64_t word);
  Status open(const Deadline& deadline);
  Status open_window(const Deadline& deadline);
  Status take_key(const WorkCompletion& one);
  void take_send(const WorkCompletion& one);
  Status take_receive(const WorkCompletion& one);
  Status reap_sends();
  Status reap_receives();
  Status reap();
  // Polls both queues. False if there is an event of interest.
  Result<bool> is_quiet(Interest interest);
  RegisteredSpan credit_buffer(std::uint64_t number) const;
  bool failed() { return !link_.usable() && link_.ended() && !link_.ended_cleanly(); }

  bool windows_;
  RingOptions options_;
  Memory memory_;
  Bytes ring_;  // the ring's bytes, which outlive its registration
  Link link_;
  // After link_, so that windows are destroyed before their queue pair.
  std::optional<Lessor> lessor_;
  std::optional<Lease> lease_;
  bool opened_ = false;
  bool key_due_ = false;  // the peer's ring has a window; its first message is the key
  RemoteSpan peer_ring_;
  std::optional<RingSender> sender_;  // sender_ and receiver_ are set by meet()
  std::optional<RingReceiver> receiver_;
  std::uint32_t waiting_ = 0;   // records that arrived and were not returned yet
  std::uint32_t next_ = 0;      // the index of the first of them
  std::size_t unreported_ = 0;  // reaped sends that poll_sends() has not reported
  std::uint32_t refused_ = 0;   // length of the last refused record; 0: none
  std::uint64_t credits_sent_ = 0;
  std::uint64_t credits_done_ = 0;
  bool lied_ = false;  // ignore all further input of the peer
  CreditRingTransport::Counters counters_;
};

}  // namespace rkv::rdma::detail
