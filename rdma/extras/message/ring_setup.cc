// Opening and closing a ring for its peer: memory, the agreement of both sides, and the window, if
// used.
#include <algorithm>
#include <array>
#include <bit>

#include "common/bytes.h"
#include "rdma/extras/message/ring_state.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {

Status validate(const RingOptions& options) {
  if (!std::has_single_bit(options.ring_bytes) || options.ring_bytes < 4096 ||
      options.ring_bytes > kMaxRingBytes) {
    return fail(Code::kInvalidArgument, "ring_bytes is a power of two from 4096 to 1073741824");
  }
  if (!std::has_single_bit(options.slots) || options.slots > 8192) {
    return fail(Code::kInvalidArgument, "slots is a power of two from 1 to 8192");
  }
  return {};
}

namespace {
Result<bool> choose_windows(const Device& device, LeasePolicy policy) {
  if (policy == LeasePolicy::kDisableWindows) return false;
  RKV_ASSIGN_OR_RETURN(const WindowSupport support, window_support(device));
  if (policy == LeasePolicy::kAuto) return support.type_two && support.trustworthy;
  if (support.type_two) return true;
  return fail_call(Code::kUnsupported, "ibv_alloc_mw", 0,
                   "this device has no type 2 memory windows");
}
}  // namespace

RingState::RingState(bool windows, const RingOptions& options, Memory memory, Link link)
    : windows_(windows),
      options_(options),
      memory_(std::move(memory)),
      ring_(memory_.ring.bytes()),
      link_(std::move(link)) {}

Result<std::unique_ptr<RingState>> RingState::make(const Device& device,
                                                   const RingOptions& options) {
  RKV_ASSIGN_OR_RETURN(const bool windows, choose_windows(device, options.access));
  const std::uint32_t receives = options.slots + kCreditReceives;
  RKV_ASSIGN_OR_RETURN(
      Link link, Link::create(device, {.send_length = options.slots + kMostCredits + 2,
                                       .receive_length = receives,
                                       .remote_access = AccessFlags::kRemoteWrite,
                                       .operations = SendOps::kWriteImm | SendOps::kSend |
                                                     (windows ? kWindowOps : SendOps::kNone)}));
  const ProtectionDomain& domain = link.domain();
  RKV_ASSIGN_OR_RETURN(
      MemoryRegion ring,
      MemoryRegion::allocate(domain, options.ring_bytes,
                             AccessFlags::kLocalWrite |
                                 (windows ? AccessFlags::kBindWindow : AccessFlags::kRemoteWrite)));
  // The source of WRITEs into the used part of the peer's ring. It is as long as this side's ring,
  // so no peer can make this side allocate more.
  RKV_ASSIGN_OR_RETURN(MemoryRegion staging, MemoryRegion::allocate(domain, options.ring_bytes,
                                                                    AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(MemoryRegion small,
                       MemoryRegion::allocate(domain, kCreditBytes * (receives + kMostCredits),
                                              AccessFlags::kLocalWrite));
  return std::unique_ptr<RingState>(new RingState(
      windows, options, {std::move(ring), std::move(staging), std::move(small)}, std::move(link)));
}

Token RingState::token() const {
  return {.kind = kKind,
          .sequenced = options_.sequenced,
          .key_follows = windows_,
          .max_message = longest(),
          .slots = options_.slots,
          .ring = {.address = memory_.ring.remote().address,
                   .length = options_.ring_bytes,
                   .rkey = windows_ ? 0 : memory_.ring.rkey()}};
}

std::uint32_t RingState::longest() const {
  return longest_message(options_.ring_bytes, options_.message_bytes);
}

Status RingState::meet(const Token& peer) {
  RingShape shape{
      .capacity = std::min(options_.ring_bytes, static_cast<std::uint32_t>(peer.ring.length)),
      .slots = std::min(options_.slots, peer.slots)};
  // Each side has limited its message length by its own ring, but not by the peer's.
  shape.max_record =
      std::min({longest(), peer.max_message, shape.capacity / 4 - kRecordHeader}) + kRecordHeader;
  shape.sequenced = options_.sequenced || peer.sequenced ||
                    RingShape::needs_sequence(shape.capacity, shape.max_record);
  peer_ring_ = peer.ring;
  key_due_ = peer.key_follows;
  sender_.emplace(shape);
  receiver_.emplace(shape);
  return {};
}

Status RingState::post_receive(std::uint32_t index) {
  const std::array<ReceiveRequest, 1> one = {
      {{.wr_id = index, .buffer = memory_.small.local(index * kCreditBytes, kCreditBytes)}}};
  return link_.post_receives(one);
}

Status RingState::post_receives() {
  for (std::uint32_t i = 0; i < options_.slots + kCreditReceives; ++i)
    RKV_RETURN_IF_ERROR(post_receive(i));
  return {};
}

// Takes the steps that need nothing from the peer.
Status RingState::open(const Deadline& deadline) {
  if (windows_) RKV_RETURN_IF_ERROR(open_window(deadline));
  opened_ = true;
  return {};
}

Result<bool> RingState::try_begin(const Deadline& deadline) {
  if (!opened_) RKV_RETURN_IF_ERROR(open(deadline));
  while (key_due_) {
    RKV_ASSIGN_OR_RETURN(const bool quiet, link_.arm([this]() -> Result<bool> {
      RKV_RETURN_IF_ERROR(reap());
      return key_due_ && !link_.ended();
    }));
    if (!key_due_) break;
    if (link_.ended()) return std::unexpected(link_.error());
    if (quiet) return false;
  }
  return true;
}

Status RingState::begin(const Deadline& deadline) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(const bool begun, try_begin(deadline));
    if (begun) return {};
    RKV_ASSIGN_OR_RETURN(const bool woken, wait_readable(link_.fd(), deadline));
    if (!woken) return fail(Code::kTimeout, "the peer did not send the key of its ring in time");
  }
}

// The key is sent like a credit: it takes a credit's place in the send queue.
Status RingState::open_window(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(
      lessor_, Lessor::create(link_.domain(), link_.queue_pair(), link_.sends(), memory_.ring,
                              {.policy = LeasePolicy::kRequireWindows,
                               .others = [this](const WorkCompletion& one) { take_send(one); }}));
  RKV_ASSIGN_OR_RETURN(
      lease_, lessor_->grant(
                  {.offset = 0, .length = options_.ring_bytes, .access = AccessFlags::kRemoteWrite},
                  deadline));
  const RegisteredSpan key = credit_buffer(credits_sent_);
  store_le(key.bytes().data(), std::uint64_t{lease_->remote().rkey});
  Batch batch = link_.queue_pair().batch();
  batch.send(kCredit, OpFlags::kSignaled, key);
  RKV_RETURN_IF_ERROR(checked(std::move(batch).submit()));
  ++credits_sent_;
  return {};
}

Status RingState::take_key(const WorkCompletion& one) {
  const auto index = static_cast<std::uint32_t>(one.wr_id);
  const auto word =
      load_le<std::uint64_t>(memory_.small.bytes().data() + std::size_t{index} * kCreditBytes);
  if (one.kind != WorkKind::kReceive || one.byte_length != kCreditBytes || one.has_immediate ||
      one.has_invalidated || word > 0xFFFF'FFFF) {
    return fail(Code::kCorrupt, "the peer's first message is not the key of its ring");
  }
  key_due_ = false;
  peer_ring_.rkey = static_cast<std::uint32_t>(word);
  return checked(post_receive(index));
}

// Ends the queue pair first: a peer that still writes then sees the end of the connection, not a
// refusal.
Status RingState::disconnect() {
  const Status disconnected = link_.disconnect();
  lease_.reset();
  // The bytes stay readable for held messages.
  if (memory_.ring.raw() != nullptr) RKV_RETURN_IF_ERROR(memory_.ring.deregister());
  return disconnected;
}

}  // namespace rkv::rdma::detail
