#include "rkv/rdma/message/ring_transport.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/random.h"
#include "rdma/message/ring_state.h"
#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/read_ring.h"

namespace rkv::rdma {
namespace detail {
namespace {

// What a request in the send queue is, in the upper half of its wr_id.
constexpr std::uint64_t kData = std::uint64_t{1} << 32;
constexpr std::uint64_t kCredit = std::uint64_t{2} << 32;
constexpr std::uint64_t kHead = std::uint64_t{3} << 32;

// The small region: what is received besides records, what is sent besides them, what is read.
constexpr std::size_t kCreditBytes = 8;
constexpr std::size_t kHeadBytes = 16;
constexpr std::uint64_t kHeadSeed = 0x68656164;

// The first READ that brought no room is followed by a pause of this length, the next by twice as
// long and so on: about a round trip of a fast network, and what nobody minds who waits anyway.
constexpr Nanos kShortestPauseNs = 20'000;
constexpr Nanos kLongestPauseNs = 1'000'000;
const SteadyClock kClock;
// A peer whose head never has its hash is not in the middle of a store.
constexpr unsigned kTornInARow = 1000;

std::uint64_t word_of(const Freed& freed) {
  return std::uint64_t{freed.count} << 32 | freed.position;
}
Freed freed_of(std::uint64_t word) {
  return {.position = static_cast<std::uint32_t>(word),
          .count = static_cast<std::uint32_t>(word >> 32)};
}

}  // namespace

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
                   "this device has no memory windows of type two");
}
}  // namespace

RingState::RingState(TransportKind kind, bool windows, const RingOptions& options, Memory memory,
                     Link link)
    : kind_(kind),
      windows_(windows),
      options_(options),
      memory_(std::move(memory)),
      ring_(memory_.ring.bytes()),
      link_(std::move(link)) {}

Result<std::unique_ptr<RingState>> RingState::make(TransportKind kind, const Device& device,
                                                   const RingOptions& options) {
  const bool reads = kind == TransportKind::kReadRing;
  RKV_ASSIGN_OR_RETURN(const bool windows, choose_windows(device, options.access));
  const std::uint32_t receives = options.slots + kCreditReceives;
  RKV_ASSIGN_OR_RETURN(
      Link link, Link::create(device, {.send_length = options.slots + kMostCredits + 2,
                                       .receive_length = receives,
                                       .remote_access = reads ? AccessFlags::kRemoteWrite |
                                                                    AccessFlags::kRemoteRead
                                                              : AccessFlags::kRemoteWrite,
                                       .operations = SendOps::kWriteImm | SendOps::kSend |
                                                     (reads ? SendOps::kRead : SendOps::kNone) |
                                                     (windows ? kWindowOps : SendOps::kNone)}));
  const ProtectionDomain& domain = link.domain();
  RKV_ASSIGN_OR_RETURN(
      MemoryRegion ring,
      MemoryRegion::allocate(domain, options.ring_bytes,
                             AccessFlags::kLocalWrite |
                                 (windows ? AccessFlags::kBindWindow : AccessFlags::kRemoteWrite)));
  // Of the ring of the peer's, as much as ours: no peer can make us allocate more.
  RKV_ASSIGN_OR_RETURN(MemoryRegion staging, MemoryRegion::allocate(domain, options.ring_bytes,
                                                                    AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(
      MemoryRegion small,
      MemoryRegion::allocate(domain, kCreditBytes * (receives + kMostCredits) + kHeadBytes,
                             AccessFlags::kLocalWrite));
  // A page of its own: the peer may read all of it.
  RKV_ASSIGN_OR_RETURN(
      MemoryRegion head,
      MemoryRegion::allocate(
          domain, Token::kHeadLineBytes,
          reads ? AccessFlags::kLocalWrite | AccessFlags::kRemoteRead : AccessFlags::kLocalWrite));
  std::unique_ptr<RingState> out(new RingState(
      kind, windows, options,
      {std::move(ring), std::move(staging), std::move(small), std::move(head)}, std::move(link)));
  out->publish({});
  if (reads) {
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    RKV_RETURN_IF_ERROR(from_minus_one("timerfd_create", timer));
    out->timer_ = Descriptor(timer);
  }
  return out;
}

Token RingState::token() const {
  Token out{.kind = kind_,
            .sequenced = options_.sequenced,
            .key_follows = windows_,
            .max_message = longest(),
            .slots = options_.slots,
            .ring = {.address = memory_.ring.remote().address,
                     .length = options_.ring_bytes,
                     .rkey = windows_ ? 0 : memory_.ring.rkey()}};
  if (kind_ == TransportKind::kReadRing) {
    out.head = {.address = memory_.head.remote().address,
                .length = Token::kHeadLineBytes,
                .rkey = memory_.head.rkey()};
  }
  return out;
}

std::uint32_t RingState::longest() const {
  return longest_message(options_.ring_bytes, options_.message_bytes);
}

Status RingState::meet(const Token& peer) {
  RingShape shape{
      .capacity = std::min(options_.ring_bytes, static_cast<std::uint32_t>(peer.ring.length)),
      .slots = std::min(options_.slots, peer.slots)};
  // Each side has cut its own to its ring, but not to that of the other.
  shape.max_record =
      std::min({longest(), peer.max_message, shape.capacity / 4 - kRecordHeader}) + kRecordHeader;
  shape.sequenced = options_.sequenced || peer.sequenced ||
                    RingShape::needs_sequence(shape.capacity, shape.max_record);
  peer_ring_ = peer.ring;
  key_due_ = peer.key_follows;
  peer_head_ = peer.head;
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

Status RingState::begin(const Deadline& deadline) {
  if (timer_.get() >= 0) RKV_RETURN_IF_ERROR(link_.watch(timer_.get()));
  if (windows_) RKV_RETURN_IF_ERROR(open_window(deadline));
  while (key_due_) {
    RKV_RETURN_IF_ERROR(link_.arm());
    RKV_RETURN_IF_ERROR(reap());
    if (!key_due_) break;
    if (link_.ended()) return std::unexpected(link_.error());
    RKV_ASSIGN_OR_RETURN(const bool woken, wait_readable(link_.fd(), deadline));
    if (!woken) return fail(Code::kTimeout, "the peer did not tell the key of its ring");
  }
  return {};
}

// The key is told as a credit would be: it takes a credit's place in the send queue.
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
      word > 0xFFFF'FFFF) {
    return fail(Code::kCorrupt, "the peer's first message is not the key of its ring");
  }
  key_due_ = false;
  peer_ring_.rkey = static_cast<std::uint32_t>(word);
  return checked(post_receive(index));
}

// The queue pair first: a peer that still writes sees the end of the connection, not a refusal.
Status RingState::disconnect() {
  const Status told = link_.disconnect();
  lease_.reset();
  // The bytes stay: messages that are held may be read.
  if (memory_.ring.raw() != nullptr) RKV_RETURN_IF_ERROR(memory_.ring.deregister());
  return told;
}

Status RingState::checked(const Status& posted) {
  if (!posted) link_.fail(posted.error());
  return posted;
}

void RingState::lied(const Error& error) {
  lied_ = true;
  link_.fail(error);
}

Result<std::size_t> RingState::send(std::span<const Bytes> pieces) {
  if (!link_.usable()) return std::unexpected(link_.error());
  std::size_t whole = 0;
  for (const Bytes piece : pieces)
    whole += piece.size();
  if (whole == 0) return fail(Code::kInvalidArgument, "a message has at least one byte");
  const auto length = static_cast<std::uint32_t>(std::min(whole, max_message()) + kRecordHeader);
  const std::optional<Placing> placing = sender_->place(length);
  refused_ = placing ? 0 : length;
  if (!placing) {
    ++counters_.times_refused;
    RKV_RETURN_IF_ERROR(ask_for_head());
    return 0U;
  }
  const RegisteredSpan record = memory_.staging.local(placing->offset, length);
  std::byte* to = record.bytes().data();
  store_le(to, word_of(receiver_->freed()));
  receiver_->told();
  std::size_t room = length - kRecordHeader;
  to += kRecordHeader;
  for (const Bytes piece : pieces) {
    const std::size_t part = std::min(piece.size(), room);
    if (part != 0) std::memcpy(to, piece.data(), part);
    to += part;
    room -= part;
  }
  Batch batch = link_.queue_pair().batch();
  // meet() has made the ring no larger than the peer's: the place is inside.
  batch.write_immediate(kData, OpFlags::kSignaled, record,
                        *peer_ring_.subspan(placing->offset, length),
                        sender_->doorbell_of(*placing, length));
  RKV_RETURN_IF_ERROR(checked(std::move(batch).submit()));
  sender_->sent(*placing);
  return length - kRecordHeader;
}

// Also the heartbeat of a writer that is blocked: nobody tells it, so it asks.
Status RingState::ask_for_head() {
  if (kind_ != TransportKind::kReadRing || reading_head_ || kClock.now() < ask_at_) return {};
  Batch batch = link_.queue_pair().batch();
  batch.read(kHead, OpFlags::kSignaled, head_answer(), *peer_head_.subspan(0, kHeadBytes));
  RKV_RETURN_IF_ERROR(checked(std::move(batch).submit()));
  reading_head_ = true;
  ++counters_.heads_read;
  return {};
}

RegisteredSpan RingState::credit_buffer(std::uint64_t number) const {
  const std::size_t index = options_.slots + kCreditReceives + number % kMostCredits;
  return memory_.small.local(index * kCreditBytes, kCreditBytes);
}
RegisteredSpan RingState::head_answer() const {
  return memory_.small.local(memory_.small.size() - kHeadBytes, kHeadBytes);
}

// Stores what is free where the peer reads it. The hash goes first or last, it does not matter: a
// READ may take the bytes in any order, and only both of one store fit together.
void RingState::publish(const Freed& freed) {
  auto* line = reinterpret_cast<std::uint64_t*>(memory_.head.bytes().data());
  store_word(line, word_of(freed), std::memory_order_release);
  store_word(line + 1, mix64(word_of(freed) ^ kHeadSeed), std::memory_order_release);
}

void RingState::take_head() {
  reading_head_ = false;
  const std::byte* answer = head_answer().bytes().data();
  const auto word = load_le<std::uint64_t>(answer);
  if (load_le<std::uint64_t>(answer + 8) != mix64(word ^ kHeadSeed)) {
    ++counters_.heads_torn;
    if (++torn_in_a_row_ == kTornInARow) {
      lied({.code = Code::kCorrupt, .text = "the peer's head never has its hash"});
    }
    return;
  }
  torn_in_a_row_ = 0;
  const Freed before = sender_->known();
  take_freed(word);
  const bool news = before != sender_->known();
  pause_ns_ = news ? 0 : std::clamp(2 * pause_ns_, kShortestPauseNs, kLongestPauseNs);
  ask_at_ = news ? 0 : kClock.now() + pause_ns_;
}

void RingState::take_freed(std::uint64_t word) {
  if (sender_->freed(freed_of(word))) return;
  lied({.code = Code::kCorrupt, .text = "the peer frees what it was never sent"});
}

Status RingState::tell() {
  if (kind_ != TransportKind::kCreditRing || !receiver_->must_tell() || !link_.usable() ||
      credits_sent_ - credits_done_ == kMostCredits) {
    return {};
  }
  const RegisteredSpan credit = credit_buffer(credits_sent_);
  store_le(credit.bytes().data(), word_of(receiver_->freed()));
  Batch batch = link_.queue_pair().batch();
  batch.send(kCredit, OpFlags::kSignaled, credit);
  RKV_RETURN_IF_ERROR(checked(std::move(batch).submit()));
  receiver_->told();
  ++credits_sent_;
  ++counters_.credits_sent;
  return {};
}

Status RingState::reap_sends() {
  std::array<WorkCompletion, 16> done;
  std::size_t count = done.size();
  while (count == done.size()) {
    RKV_ASSIGN_OR_RETURN(count, link_.poll_sends(done));
    for (const WorkCompletion& one : std::span(done).first(count))
      take_send(one);
  }
  return {};
}

void RingState::take_send(const WorkCompletion& one) {
  if (!one.ok()) link_.note(one.wr_id == kHead ? "RDMA READ" : "RDMA WRITE", one.status);
  if (one.wr_id == kData) {
    sender_->reaped();
    if (one.ok()) ++untold_;  // else nobody knows whether the peer has it
  } else if (one.wr_id == kCredit) {
    ++credits_done_;
  } else if (one.wr_id == kHead && one.ok()) {
    take_head();
  }
}

Status RingState::take_receive(const WorkCompletion& one) {
  if (key_due_) return take_key(one);
  const auto index = static_cast<std::uint32_t>(one.wr_id);
  if (one.kind == WorkKind::kReceiveOfWrite && one.has_immediate) {
    const std::optional<std::uint32_t> record = receiver_->arrived(one.immediate);
    if (!record) return fail(Code::kCorrupt, "the peer rang for a record that cannot be");
    take_freed(load_le<std::uint64_t>(ring_.data() + receiver_->record(*record).offset));
    ++waiting_;
  } else if (one.kind == WorkKind::kReceive && one.byte_length == kCreditBytes &&
             !one.has_immediate && kind_ == TransportKind::kCreditRing) {
    take_freed(load_le<std::uint64_t>(memory_.small.bytes().data() + index * kCreditBytes));
  } else {
    return fail(Code::kCorrupt, "the peer sent what is neither a record nor a credit");
  }
  return link_.usable() ? checked(post_receive(index)) : Status{};
}

Status RingState::reap_receives() {
  std::array<WorkCompletion, 16> come;
  std::size_t count = come.size();
  // Receives are posted again meanwhile: no more than were there at first, or a peer that never
  // stops would keep us here. What comes after arm() raises an event of its own.
  std::size_t left = options_.slots + kCreditReceives;
  for (; count == come.size() && left != 0; left -= count) {
    RKV_ASSIGN_OR_RETURN(count,
                         link_.poll_receives(std::span(come).first(std::min(left, come.size()))));
    for (const WorkCompletion& one : std::span(come).first(count)) {
      if (!one.ok()) {
        link_.note("receive", one.status);
      } else if (!lied_) {
        const Status taken = take_receive(one);
        if (!taken) lied(taken.error());
      }
    }
  }
  return {};
}

// Both queues: credits come by the one and leave by the other.
Status RingState::reap() {
  RKV_RETURN_IF_ERROR(reap_sends());
  RKV_RETURN_IF_ERROR(reap_receives());
  // When it fails, the link keeps the reason, and what has come is delivered first (T6).
  std::ignore = tell();
  return {};
}

Result<std::size_t> RingState::poll_sends() {
  RKV_RETURN_IF_ERROR(reap());
  const std::size_t fresh = std::exchange(untold_, 0U);
  if (fresh == 0 && failed()) return std::unexpected(link_.error());
  return fresh;
}

Result<std::size_t> RingState::poll_receives(std::span<Received> out) {
  RKV_RETURN_IF_ERROR(reap());
  std::size_t count = 0;
  for (; count < out.size() && waiting_ != 0; ++count, --waiting_) {
    receiver_->lend(next_);
    out[count] = {.index = next_, .length = receiver_->record(next_).length - kRecordHeader};
    ++next_;
  }
  if (count == 0 && waiting_ == 0 && failed()) return std::unexpected(link_.error());
  return count;
}

Bytes RingState::view(std::uint32_t index) const {
  RKV_CHECK(receiver_->is_lent(index), "view() of a message that is not held");
  const RingReceiver::Record& record = receiver_->record(index);
  return ring_.subspan(record.offset + kRecordHeader, record.length - kRecordHeader);
}

Status RingState::release(std::uint32_t index) {
  RKV_CHECK(receiver_->is_lent(index), "release() of a message that is not held");
  receiver_->release(index);
  if (kind_ == TransportKind::kReadRing) publish(receiver_->freed());
  return tell();
}

// A pause of 0 stops the timer; setting it makes it forget that it has rung.
Status RingState::set_timer(Nanos pause_ns) {
  if (timer_.get() < 0 || (pause_ns == 0 && !timer_set_)) return {};
  timer_set_ = pause_ns != 0;
  itimerspec when{};
  when.it_value.tv_nsec = pause_ns;
  return from_minus_one("timerfd_settime", timerfd_settime(timer_.get(), 0, &when, nullptr));
}

Result<bool> RingState::arm(Interest interest) {
  RKV_RETURN_IF_ERROR(link_.arm());
  RKV_RETURN_IF_ERROR(reap());
  RKV_RETURN_IF_ERROR(set_timer(0));
  if (link_.ended()) return false;
  if (has(interest, Interest::kMessages) && waiting_ != 0) return false;
  if (has(interest, Interest::kSent) && untold_ != 0) return false;
  if (!has(interest, Interest::kRoom) || refused_ == 0) return true;
  if (sender_->place(refused_)) return false;
  // The READ has come back without enough: the next refusal asks again, after a while.
  if (kind_ == TransportKind::kReadRing && !reading_head_) {
    RKV_RETURN_IF_ERROR(set_timer(std::max<Nanos>(ask_at_ - kClock.now(), 1)));
  }
  return true;
}

}  // namespace detail

RingTransport::RingTransport(std::unique_ptr<detail::RingState> state) : state_(std::move(state)) {}
RingTransport::RingTransport(RingTransport&&) noexcept = default;
RingTransport& RingTransport::operator=(RingTransport&&) noexcept = default;
RingTransport::~RingTransport() = default;

Result<std::size_t> RingTransport::send_copy(Bytes message) {
  return state_->send({&message, 1});
}
Result<std::size_t> RingTransport::send_gather(std::span<const Bytes> pieces) {
  return state_->send(pieces);
}
Result<std::size_t> RingTransport::poll_sends() {
  return state_->poll_sends();
}
Result<std::size_t> RingTransport::poll_receives(std::span<Received> out) {
  return state_->poll_receives(out);
}
Bytes RingTransport::view(std::uint32_t index) const {
  return state_->view(index);
}
Status RingTransport::release(std::uint32_t index) {
  return state_->release(index);
}
bool RingTransport::poll_disconnect() {
  return state_->link().ended();
}
Status RingTransport::disconnect() {
  return state_->disconnect();
}
SocketAddress RingTransport::local_address() const {
  return state_->link().connection().id.local_address();
}
SocketAddress RingTransport::peer_address() const {
  return state_->link().connection().id.peer_address();
}
std::size_t RingTransport::max_message() const {
  return state_->max_message();
}
std::size_t RingTransport::sends_in_flight() const {
  return state_->in_flight();
}
std::size_t RingTransport::receive_window() const {
  return state_->window();
}
int RingTransport::fd() const {
  return state_->link().fd();
}
Result<bool> RingTransport::arm(Interest interest) {
  return state_->arm(interest);
}
const RingTransport::Counters& RingTransport::counters() const {
  return state_->counters();
}
bool RingTransport::uses_window() const {
  return state_->uses_window();
}
const QueuePair& RingTransport::queue_pair() const {
  return state_->link().queue_pair();
}

Result<CreditRingTransport> CreditRingBuilder::connect(const SocketAddress& peer,
                                                       const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::dial<detail::CreditRing>(options, peer, deadline));
  return CreditRingTransport(std::move(state));
}
Result<CreditRingTransport> CreditRingBuilder::accept(CmListener& listener,
                                                      const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::answer<detail::CreditRing>(options, listener, deadline));
  return CreditRingTransport(std::move(state));
}
Result<ReadRingTransport> ReadRingBuilder::connect(const SocketAddress& peer,
                                                   const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::dial<detail::ReadRing>(options, peer, deadline));
  return ReadRingTransport(std::move(state));
}
Result<ReadRingTransport> ReadRingBuilder::accept(CmListener& listener,
                                                  const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::answer<detail::ReadRing>(options, listener, deadline));
  return ReadRingTransport(std::move(state));
}

}  // namespace rkv::rdma
