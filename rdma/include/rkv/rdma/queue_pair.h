// Reliable connected queue pair: states, and work posted in batches with one doorbell each.
//
//   RKV_ASSIGN_OR_RETURN(QueuePair qp, QueuePair::create(pd, cq, cq, {.send_length = 128}));
//   ... connect it by the connection manager (cm.h) or by connect_directly() ...
//   Batch batch = qp.batch();
//   batch.read(1, OpFlags::kNone, local_a, remote_a);
//   batch.read(2, OpFlags::kSignaled, local_b, remote_b);
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());   // dropped without submit(): nothing is
//   posted
//
// Who counts: the caller. Never have more than send_length requests posted whose completion (or
// that of a later signaled one) has not been polled, nor more on a completion queue than it holds.
// A request that is not signaled frees its slot only when a later signaled one completes: signal at
// least one in send_length.
//
// Buffers named in a request belong to the device until its completion, or that of a later signaled
// request, has been polled, or the queue pair is destroyed. Inline data is copied at once.
//
// Thread safety: one thread at a time; to_error() alone may be called by any thread.
// Source: ibv_create_qp_ex(3), ibv_wr_post(3), ibv_modify_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/srq.h"
#include "rkv/rdma/timers.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct QueuePairOptions {
  std::uint32_t send_length = 128;
  std::uint32_t receive_length = 128;  // ignored with a shared receive queue
  std::uint32_t send_sge = 1;          // pieces of one request
  std::uint32_t receive_sge = 1;
  std::uint32_t inline_bytes = 0;              // longest inline message
  const SharedReceiveQueue* shared = nullptr;  // receives come from there
  SendOps operations = kAllSendOps;            // fewer lets a device without atomics be used
};

// What two sides tell each other to connect without a connection manager.
struct Endpoint {
  std::uint32_t qp_num = 0;
  std::uint32_t packet_sequence = 0;  // 24 bits, random per connection: stale packets must not fit
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t mtu_bytes = 1024;
};

struct ConnectionParameters {
  AccessFlags remote_access = AccessFlags::kNone;  // what the peer may do to our regions
  AckTimeout ack_timeout = kDefaultAckTimeout;
  std::uint8_t retry_count = kMaxRetryCount;
  std::uint8_t rnr_retry = kRnrRetryForever;
  RnrTimer rnr_timer = kDefaultRnrTimer;
  // Outstanding READs and atomics in each direction; 0 is the device's maximum. Never more than
  // the peer answers: the requester's is cut down to the peer's.
  std::uint8_t reads_as_initiator = 0;
  std::uint8_t reads_as_responder = 0;
};

class QueuePair;

// Work requests that start together. Open at most one per queue pair at a time.
class RKV_EXPORT Batch {
 public:
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    if (queue_ != nullptr) ibv_wr_abort(queue_);
  }

  // The local span is the destination; as many bytes are read as it is long.
  void read(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& to, const RemoteSpan& from) {
    begin(wr_id, flags, from, to.size());
    ibv_wr_rdma_read(queue_, from.rkey, from.address);
    set(to);
  }
  void write(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& from, const RemoteSpan& to) {
    begin(wr_id, flags, to, from.size());
    ibv_wr_rdma_write(queue_, to.rkey, to.address);
    set(from);
  }
  // Consumes a receive of the peer's, which completes with `immediate`.
  void write_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& from,
                       const RemoteSpan& to, std::uint32_t immediate);
  // The 8-byte old value goes to `old_value`. The remote word is 8-byte aligned, or the peer's
  // device refuses.
  void compare_swap(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& old_value,
                    const RemoteSpan& word, std::uint64_t expected, std::uint64_t desired) {
    RKV_CHECK(old_value.size() == 8, "the old value of an atomic is 8 bytes long");
    begin(wr_id, flags, word, 8);
    ibv_wr_atomic_cmp_swp(queue_, word.rkey, word.address, expected, desired);
    set(old_value);
  }
  void fetch_add(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& old_value,
                 const RemoteSpan& word, std::uint64_t addend) {
    RKV_CHECK(old_value.size() == 8, "the old value of an atomic is 8 bytes long");
    begin(wr_id, flags, word, 8);
    ibv_wr_atomic_fetch_add(queue_, word.rkey, word.address, addend);
    set(old_value);
  }
  void send(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message) {
    begin(wr_id, flags);
    ibv_wr_send(queue_);
    set(message);
  }
  void send_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message,
                      std::uint32_t immediate);

  // Inline: the bytes are copied now, so they need no registration and may be reused at once. At
  // most the queue pair's inline_bytes() in all. Pieces are gathered here, into one buffer.
  void send_inline(std::uint64_t wr_id, OpFlags flags, Bytes message);
  void send_inline(std::uint64_t wr_id, OpFlags flags, std::span<const Bytes> pieces);
  void write_inline(std::uint64_t wr_id, OpFlags flags, Bytes from, const RemoteSpan& to);

  std::uint32_t count() const { return count_; }
  // Rings the doorbell once: every request starts, or on an error none. kOutOfMemory: the send
  // queue is full. An empty batch is nothing. Does not block.
  Status submit() &&;

 private:
  friend class QueuePair;
  Batch(ibv_qp_ex* queue, std::uint32_t inline_bytes) : queue_(queue), inline_bytes_(inline_bytes) {
    ibv_wr_start(queue_);
  }
  void begin(std::uint64_t wr_id, OpFlags flags) {
    RKV_CHECK(queue_ != nullptr, "an operation on a batch that has been submitted");
    queue_->wr_id = wr_id;
    queue_->wr_flags = std::to_underlying(flags);
    ++count_;
  }
  void begin(std::uint64_t wr_id, OpFlags flags, const RemoteSpan& remote, std::size_t length) {
    RKV_CHECK(length <= remote.length, "a request reaches past its remote span");
    begin(wr_id, flags);
  }
  void set(const RegisteredSpan& local) {
    const ibv_sge piece = local.sge();
    ibv_wr_set_sge(queue_, piece.lkey, piece.addr, piece.length);
  }

  ibv_qp_ex* queue_;
  std::uint32_t inline_bytes_;
  std::uint32_t count_ = 0;
};

namespace detail {
struct QueuePairState;
}

class RKV_EXPORT QueuePair {
 public:
  // In state RESET. kUnsupported where the provider has no extended work requests.
  static Result<QueuePair> create(const ProtectionDomain& pd, const CompletionQueue& sends,
                                  const CompletionQueue& receives, const QueuePairOptions& options);
  QueuePair(QueuePair&&) noexcept;
  QueuePair& operator=(QueuePair&&) noexcept;
  ~QueuePair();

  [[nodiscard]] Batch batch() { return {extended_, inline_bytes_}; }
  // Receives of this queue pair's own; not with a shared receive queue. On an error those before it
  // have been posted.
  Status post_receives(std::span<const ReceiveRequest> requests);

  // One request with several local pieces, at most the options' send_sge; a doorbell of its own,
  // not with a batch open. Through the older ibv_post_send(3): rdma-core's SoftRoCE provider takes
  // the length of the first piece for all of them when a list comes by ibv_wr_set_sge_list.
  Status post_read(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> to,
                   const RemoteSpan& from);
  Status post_send(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> message);

  // Any set of attributes, for what the functions below do not cover (ibv_modify_qp(3)).
  // kInvalidArgument: the error says whether the transition, its mask or a value is to blame, and
  // explain_modify() which attributes.
  Status modify(ibv_qp_attr attributes, int mask);
  // What modify() would say of these in the state that the queue pair has now: a sentence
  // (transitions.h). A query, no change.
  Result<std::string> explain_modify(const ibv_qp_attr& attributes, int mask) const;
  // What the peer may do from now on. In state RTS this is a gate: 0 refuses READs and atomics
  // (which kill the connection), messages still pass.
  Status set_remote_access(AccessFlags access);
  // Everything outstanding and everything posted later completes as flushed. Any thread.
  Status to_error();
  Result<ibv_qp_state> state() const;
  struct Queried {
    ibv_qp_attr attributes;
    ibv_qp_init_attr created;
  };
  Result<Queried> query(int mask) const;  // ibv_query_qp(3)

  // Connecting without a connection manager: exchange endpoints by any means, then both sides call
  // connect_directly(). RoCE: `gid` comes from Device::routable_gid().
  Result<Endpoint> endpoint(std::uint8_t port, const GidEntry& gid) const;
  Status connect_directly(std::uint8_t port, const GidEntry& gid, const Endpoint& self,
                          const Endpoint& peer, const ConnectionParameters& parameters);

  std::uint32_t number() const;
  std::uint32_t inline_bytes() const { return inline_bytes_; }  // what the device granted
  std::uint32_t send_length() const;
  bool has_shared_receive_queue() const;
  const Device& device() const;
  ibv_qp* raw() const;

 private:
  explicit QueuePair(std::unique_ptr<detail::QueuePairState> state);
  std::unique_ptr<detail::QueuePairState> state_;
  ibv_qp_ex* extended_ = nullptr;
  std::uint32_t inline_bytes_ = 0;
};

// The READ depths that `parameters` ask of a device: 0 becomes the device's maximum, more than
// that is cut down. 254 at most, since 255 means "whatever" to librdmacm.
struct ReadDepths {
  std::uint8_t initiator;
  std::uint8_t responder;
};
RKV_EXPORT ReadDepths read_depths(const ConnectionParameters& parameters,
                                  const DeviceAttributes& device);

}  // namespace rkv::rdma
