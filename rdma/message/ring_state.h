// What is behind both transports with a ring: invariants in rkv/rdma/message/ring_transport.h, the
// arithmetic in ring.h.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "rdma/message/link.h"
#include "rdma/message/ring.h"
#include "rkv/rdma/lease.h"
#include "rkv/rdma/message/ring_transport.h"

namespace rkv::rdma::detail {

// Credits that the peer has not reaped: each tells of a quarter of the ring or of the slots, and
// the peer cannot have sent more than one ring and all slots without having heard (R5). Four and
// four.
inline constexpr std::uint32_t kCreditReceives = 8;
// Credits whose completion we have not reaped; more of them wait.
inline constexpr std::uint32_t kMostCredits = 8;

// What a request in the send queue is, in the upper half of its wr_id.
inline constexpr std::uint64_t kData = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kCredit = std::uint64_t{2} << 32;
inline constexpr std::uint64_t kHead = std::uint64_t{3} << 32;

// The small region: what is received besides records, what is sent besides them, what is read.
inline constexpr std::size_t kCreditBytes = 8;
inline constexpr std::size_t kHeadBytes = 16;

Status validate(const RingOptions& options);

class RingState {
 public:
  static Result<std::unique_ptr<RingState>> make(TransportKind kind, const Device& device,
                                                 const RingOptions& options);

  Link& link() { return link_; }
  const Link& link() const { return link_; }
  Token token() const;
  Status meet(const Token& peer);
  Status post_receives();
  // Opens the ring by a window, when it is one, and waits for the key of the peer's.
  Status begin(const Deadline& deadline);
  // And no WRITE lands any more.
  Status disconnect();

  Result<std::size_t> send(std::span<const Bytes> pieces);
  Result<std::size_t> poll_sends();
  Result<std::size_t> poll_receives(std::span<Received> out);
  Bytes view(std::uint32_t index) const;
  Status release(std::uint32_t index);
  Result<bool> arm(Interest interest);
  bool poll_disconnect() { return link_.ended(); }
  SocketAddress local_address() const { return link_.local_address(); }
  SocketAddress peer_address() const { return link_.peer_address(); }
  int fd() const { return link_.fd(); }
  // Until poll_sends() has told of them.
  std::size_t in_flight() const { return sender_->in_flight() + untold_; }
  std::size_t max_message() const { return sender_->shape().max_record - kRecordHeader; }
  std::size_t window() const { return sender_->shape().slots; }
  bool uses_window() const { return windows_; }
  const RingTransport::Counters& counters() const { return counters_; }

 private:
  struct Memory {
    MemoryRegion ring;     // the peer writes into it, by its key or that of a window
    MemoryRegion staging;  // what we write, at the same place as in the peer's ring
    MemoryRegion small;
    MemoryRegion head;
  };

  RingState(TransportKind kind, bool windows, const RingOptions& options, Memory memory, Link link);
  std::uint32_t longest() const;
  Status post_receive(std::uint32_t index);
  Status checked(const Status& posted);
  void lied(const Error& error);
  Status ask_for_head();
  Status tell();
  void publish(const Freed& freed);
  void take_head();
  void take_freed(std::uint64_t word);
  Status open_window(const Deadline& deadline);
  Status take_key(const WorkCompletion& one);
  void take_send(const WorkCompletion& one);
  Status take_receive(const WorkCompletion& one);
  Status reap_sends();
  Status reap_receives();
  Status reap();
  Status set_timer(Nanos pause_ns);
  RegisteredSpan credit_buffer(std::uint64_t number) const;
  RegisteredSpan head_answer() const;
  bool failed() { return !link_.usable() && link_.ended() && !link_.ended_cleanly(); }

  TransportKind kind_;
  bool windows_;
  RingOptions options_;
  Memory memory_;
  Bytes ring_;  // its bytes, which outlive its registration
  Descriptor timer_;
  Link link_;
  // Windows end before their queue pair does.
  std::optional<Lessor> lessor_;
  std::optional<Lease> lease_;
  bool key_due_ = false;  // the peer's ring has a window, whose key is its first message
  RemoteSpan peer_ring_;
  RemoteSpan peer_head_;
  std::optional<RingSender> sender_;  // both since meet()
  std::optional<RingReceiver> receiver_;
  std::uint32_t waiting_ = 0;  // records that have come and were not asked for
  std::uint32_t next_ = 0;     // the index of the first of them
  std::size_t untold_ = 0;     // sends that are reaped, for poll_sends()
  std::uint32_t refused_ = 0;  // length of the record that was refused last, 0: none
  std::uint64_t credits_sent_ = 0;
  std::uint64_t credits_done_ = 0;
  bool lied_ = false;  // what comes from the peer is not looked at any more
  bool reading_head_ = false;
  bool timer_set_ = false;
  unsigned torn_in_a_row_ = 0;
  Nanos pause_ns_ = 0;
  Nanos ask_at_ = 0;  // before that the head is not read again
  RingTransport::Counters counters_;
};

// The two kinds, as dial() and answer() take them.
struct CreditRing : RingState {
  static constexpr TransportKind kKind = TransportKind::kCreditRing;
  static auto make(const Device& device, const RingOptions& options) {
    return RingState::make(kKind, device, options);
  }
};
struct ReadRing : RingState {
  static constexpr TransportKind kKind = TransportKind::kReadRing;
  static auto make(const Device& device, const RingOptions& options) {
    return RingState::make(kKind, device, options);
  }
};

}  // namespace rkv::rdma::detail
