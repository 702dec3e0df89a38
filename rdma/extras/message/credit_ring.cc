#include "rkv/rdma/message/credit_ring.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/bytes.h"
#include "rdma/extras/message/ring_state.h"
#include "rdma/extras/message/transport_of.h"

namespace rkv::rdma {
namespace detail {
namespace {

std::uint64_t word_of(const Freed& freed) {
  return std::uint64_t{freed.count} << 32 | freed.position;
}
Freed freed_of(std::uint64_t word) {
  return {.position = static_cast<std::uint32_t>(word),
          .count = static_cast<std::uint32_t>(word >> 32)};
}

}  // namespace

Status RingState::checked(const Status& posted) {
  if (!posted) link_.fail(posted.error());
  return posted;
}

void RingState::lied(const Error& error) {
  lied_ = true;
  link_.fail(error);
  lease_.reset();  // the peer may have unbound the window, and none may stay unbound (lease.h)
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
  if (!placing) return 0U;
  const RegisteredSpan record = memory_.staging.local(placing->offset, length);
  std::byte* to = record.bytes().data();
  store_le(to, word_of(receiver_->freed()));
  receiver_->announced();
  std::size_t room = length - kRecordHeader;
  to += kRecordHeader;
  for (const Bytes piece : pieces) {
    const std::size_t part = std::min(piece.size(), room);
    if (part != 0) std::memcpy(to, piece.data(), part);
    to += part;
    room -= part;
  }
  Batch batch = link_.queue_pair().batch();
  // meet() limited the ring to the peer's length, so the place is inside.
  batch.op(kData)
      .signaled()
      .immediate(sender_->doorbell_of(*placing, length))
      .write(record, *peer_ring_.subspan(placing->offset, length));
  RKV_RETURN_IF_ERROR(checked(std::move(batch).submit()));
  sender_->sent(*placing);
  return length - kRecordHeader;
}

RegisteredSpan RingState::credit_buffer(std::uint64_t number) const {
  const std::size_t index = options_.slots + kCreditReceives + number % kMostCredits;
  return memory_.small.local(index * kCreditBytes, kCreditBytes);
}
void RingState::take_freed(std::uint64_t word) {
  if (sender_->freed(freed_of(word))) return;
  lied({.code = Code::kCorrupt, .text = "the peer freed messages that were not sent to it"});
}

Status RingState::tell() {
  if (!receiver_->must_tell() || !link_.usable() || credits_sent_ - credits_done_ == kMostCredits) {
    return {};
  }
  const RegisteredSpan credit = credit_buffer(credits_sent_);
  store_le(credit.bytes().data(), word_of(receiver_->freed()));
  Batch batch = link_.queue_pair().batch();
  batch.send(kCredit, OpFlags::kSignaled, credit);
  RKV_RETURN_IF_ERROR(checked(std::move(batch).submit()));
  receiver_->announced();
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
  if (!one.ok()) link_.note_send(one.wr_id == kData ? "RDMA WRITE" : "SEND", one.status);
  if (one.wr_id == kData) {
    sender_->reaped();
    if (one.ok()) ++unreported_;  // after an error it is unknown whether the peer has the message
  } else if (one.wr_id == kCredit) {
    ++credits_done_;
  }
}

Status RingState::take_receive(const WorkCompletion& one) {
  if (key_due_) return take_key(one);
  const auto index = static_cast<std::uint32_t>(one.wr_id);
  if (one.kind == WorkKind::kReceiveOfWrite && one.has_immediate) {
    const std::optional<std::uint32_t> record = receiver_->arrived(one.immediate);
    if (!record) return fail(Code::kCorrupt, "the peer announced an invalid record");
    take_freed(load_le<std::uint64_t>(ring_.data() + receiver_->record(*record).offset));
    ++waiting_;
  } else if (one.kind == WorkKind::kReceive && one.byte_length == kCreditBytes &&
             !one.has_immediate && !one.has_invalidated) {
    take_freed(load_le<std::uint64_t>(memory_.small.bytes().data() + index * kCreditBytes));
  } else {
    return fail(Code::kCorrupt, "the peer's message is neither a record nor a credit");
  }
  return link_.usable() ? checked(post_receive(index)) : Status{};
}

Status RingState::reap_receives() {
  std::array<WorkCompletion, 16> come;
  std::size_t count = come.size();
  // Receives are posted again in this loop. Reap at most their initial number, or a peer that sends
  // endlessly would keep this side here. Completions after arm() raise their own event.
  std::size_t left = options_.slots + kCreditReceives;
  for (; count == come.size() && left != 0; left -= count) {
    RKV_ASSIGN_OR_RETURN(count,
                         link_.poll_receives(std::span(come).first(std::min(left, come.size()))));
    for (const WorkCompletion& one : std::span(come).first(count)) {
      if (!one.ok()) {
        // A request that has failed flushed it, and is the reason to tell.
        RKV_RETURN_IF_ERROR(reap_sends());
        link_.note_receive(one.status);
      } else if (!lied_) {
        const Status taken = take_receive(one);
        if (!taken) lied(taken.error());
      }
    }
  }
  return {};
}

// Both queues: a received credit frees space, and tell() needs reaped credits.
Status RingState::reap() {
  RKV_RETURN_IF_ERROR(reap_sends());
  RKV_RETURN_IF_ERROR(reap_receives());
  // After a failure the link keeps the reason, and received messages are delivered first (MSG-6).
  std::ignore = tell();
  return {};
}

Result<std::size_t> RingState::poll_sends() {
  RKV_RETURN_IF_ERROR(reap());
  const std::size_t fresh = std::exchange(unreported_, 0U);
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
  return tell();
}

Result<bool> RingState::is_quiet(Interest interest) {
  RKV_RETURN_IF_ERROR(reap());
  if (link_.ended()) return false;
  if (has(interest, Interest::kMessages) && waiting_ != 0) return false;
  if (has(interest, Interest::kSent) && unreported_ != 0) return false;
  if (!has(interest, Interest::kRoom) || refused_ == 0) return true;
  return !sender_->place(refused_);
}

}  // namespace detail

template class TransportOf<detail::RingState>;

CreditRingTransport::CreditRingTransport(std::unique_ptr<detail::RingState> state)
    : TransportOf(std::move(state)) {}

const CreditRingTransport::Counters& CreditRingTransport::counters() const {
  return state().counters();
}
bool CreditRingTransport::uses_window() const {
  return state().uses_window();
}
Result<bool> CreditRingTransport::try_finish() {
  return detail::try_finish(state());
}
const QueuePair& CreditRingTransport::queue_pair() const {
  return state().link().queue_pair();
}

Result<CreditRingTransport> CreditRingBuilder::connect(const SocketAddress& peer,
                                                       const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::dial<detail::RingState>(options, peer, deadline));
  return CreditRingTransport(std::move(state));
}
Result<AcceptingTransport<CreditRingTransport>> CreditRingBuilder::start_accept(
    ConnectRequest request) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::admit<detail::RingState>(options, std::move(request)));
  return AcceptingTransport(CreditRingTransport(std::move(state)));
}
Result<CreditRingTransport> CreditRingBuilder::accept(CmListener& listener,
                                                      const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::answer<detail::RingState>(options, listener, deadline));
  return CreditRingTransport(std::move(state));
}

}  // namespace rkv::rdma
