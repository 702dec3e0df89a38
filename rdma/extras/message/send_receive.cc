#include "rkv/rdma/message/send_receive.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "rdma/extras/message/link.h"
#include "rdma/extras/message/transport_of.h"

namespace rkv::rdma {

SendReceiveOptions SendReceiveOptions::stream(std::uint32_t depth) {
  return {.message_bytes = 65536, .send_buffers = depth, .receive_buffers = 8 * depth};
}

SendReceiveOptions SendReceiveOptions::datagram() {
  return {.message_bytes = 1500, .send_buffers = 4, .receive_buffers = 64, .inline_bytes = 64};
}

namespace detail {
namespace {

constexpr std::uint32_t kMaxMessage = 1U << 24;
constexpr std::uint32_t kMaxBuffers = 8192;
constexpr std::uint32_t kMaxInline = 512;

Status validate(const SendReceiveOptions& options) {
  const auto between = [](std::uint32_t value, std::uint32_t least, std::uint32_t most) {
    return value >= least && value <= most;
  };
  if (!between(options.message_bytes, 1, kMaxMessage)) {
    return fail(Code::kInvalidArgument, "message_bytes is from 1 to 16777216");
  }
  if (!between(options.send_buffers, 1, kMaxBuffers)) {
    return fail(Code::kInvalidArgument, "send_buffers is from 1 to 8192");
  }
  if (!between(options.receive_buffers, 1, kMaxBuffers)) {
    return fail(Code::kInvalidArgument, "receive_buffers is from 1 to 8192");
  }
  if (options.inline_bytes > kMaxInline) {
    return fail(Code::kInvalidArgument, "inline_bytes is from 0 to 512");
  }
  return {};
}

}  // namespace

class SendReceiveState {
 public:
  static constexpr TransportKind kKind = TransportKind::kSendReceive;

  static Result<std::unique_ptr<SendReceiveState>> make(const Device& device,
                                                        const SendReceiveOptions& options) {
    RKV_ASSIGN_OR_RETURN(Link link, Link::create(device, {.send_length = options.send_buffers,
                                                          .receive_length = options.receive_buffers,
                                                          .inline_bytes = options.inline_bytes}));
    const std::size_t stride = round_up_to_line(options.message_bytes);
    RKV_ASSIGN_OR_RETURN(
        MemoryRegion memory,
        MemoryRegion::allocate(link.domain(),
                               stride * (options.send_buffers + options.receive_buffers),
                               AccessFlags::kLocalWrite));
    return std::unique_ptr<SendReceiveState>(
        new SendReceiveState(std::move(memory), std::move(link), options, stride));
  }

  Link& link() { return link_; }
  const Link& link() const { return link_; }
  Token token() const {
    return {
        .kind = kKind, .max_message = options_.message_bytes, .slots = options_.receive_buffers};
  }
  Status meet(const Token& peer) {
    max_message_ = std::min(options_.message_bytes, peer.max_message);
    return {};
  }
  static Status begin(const Deadline& /*deadline*/) { return {}; }
  static Result<bool> try_begin(const Deadline& /*deadline*/) { return true; }
  Status post_receives() {
    for (std::uint32_t i = 0; i < options_.receive_buffers; ++i)
      RKV_RETURN_IF_ERROR(post(i));
    return {};
  }

  Result<std::size_t> send(std::span<const Bytes> pieces);
  Result<std::size_t> poll_sends();
  Result<std::size_t> poll_receives(std::span<Received> out);
  Bytes view(std::uint32_t index) const;
  Status release(std::uint32_t index);
  Result<bool> arm(Interest interest) {
    return link_.arm([&] { return is_quiet(interest); });
  }
  bool poll_disconnect() { return link_.ended(); }
  Status disconnect() { return link_.disconnect(); }
  SocketAddress local_address() const { return link_.local_address(); }
  SocketAddress peer_address() const { return link_.peer_address(); }
  int fd() const { return link_.fd(); }
  std::size_t in_flight() const { return sent_ - reported_; }
  std::size_t max_message() const { return max_message_; }
  std::size_t window() const { return options_.receive_buffers; }

 private:
  enum class Place : unsigned char { kPosted, kWaiting, kLent };
  struct Slot {
    std::uint32_t length = 0;
    Place place = Place::kPosted;
  };

  SendReceiveState(MemoryRegion memory, Link link, const SendReceiveOptions& options,
                   std::size_t stride)
      : memory_(std::move(memory)),
        link_(std::move(link)),
        options_(options),
        stride_(stride),
        slots_(options.receive_buffers),
        waiting_(options.receive_buffers) {}

  static std::size_t round_up_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  RegisteredSpan send_buffer(std::uint64_t number) const {
    return memory_.local((number % options_.send_buffers) * stride_, options_.message_bytes);
  }
  RegisteredSpan receive_buffer(std::uint32_t index) const {
    return memory_.local((options_.send_buffers + index) * stride_, options_.message_bytes);
  }
  Status post(std::uint32_t index) {
    const std::array<ReceiveRequest, 1> one = {{{.wr_id = index, .buffer = receive_buffer(index)}}};
    return link_.post_receives(one);
  }
  Status start(std::uint64_t number, std::size_t length);
  Status reap_sends();
  Status reap_receives();
  // Polls both queues. False if there is an event of interest.
  Result<bool> is_quiet(Interest interest);

  MemoryRegion memory_;
  Link link_;
  SendReceiveOptions options_;
  std::size_t stride_;
  std::size_t max_message_ = 0;
  // Numbers of sends: those below done_ are reaped, those below sent_ are posted.
  std::uint64_t sent_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t reported_ = 0;
  std::uint64_t arrived_ = 0;  // reaped and unreported sends that the peer has received
  bool refused_ = false;
  bool lied_ = false;  // ignore all further input of the peer
  // Received messages that were not returned yet, as a ring of indexes.
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> waiting_;
  std::size_t waiting_first_ = 0;
  std::size_t waiting_count_ = 0;
};

Status SendReceiveState::start(std::uint64_t number, std::size_t length) {
  const RegisteredSpan message = send_buffer(number).first(length);
  Batch batch = link_.queue_pair().batch();
  if (length <= std::min(options_.inline_bytes, link_.queue_pair().inline_bytes())) {
    batch.send(number, OpFlags::kSignaled, inlined(message.bytes()));
  } else {
    batch.send(number, OpFlags::kSignaled, message);
  }
  return std::move(batch).submit();
}

Result<std::size_t> SendReceiveState::send(std::span<const Bytes> pieces) {
  if (!link_.usable()) return std::unexpected(link_.error());
  refused_ = sent_ - done_ == options_.send_buffers;
  if (refused_) return 0U;
  const MutableBytes to = send_buffer(sent_).bytes().first(max_message_);
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    const std::size_t part = std::min(piece.size(), to.size() - length);
    if (part != 0) std::memcpy(to.data() + length, piece.data(), part);
    length += part;
  }
  if (length == 0) return fail(Code::kInvalidArgument, "a message has at least one byte");
  const Status started = start(sent_, length);
  if (!started) {
    link_.fail(started.error());
    return std::unexpected(started.error());
  }
  ++sent_;
  return length;
}

Status SendReceiveState::reap_sends() {
  std::array<WorkCompletion, 16> done;
  std::size_t count = done.size();
  while (count == done.size()) {
    RKV_ASSIGN_OR_RETURN(count, link_.poll_sends(done));
    for (const WorkCompletion& one : std::span(done).first(count)) {
      ++done_;
      if (one.ok()) {
        ++arrived_;
      } else {
        link_.note_send("SEND", one.status);
      }
    }
  }
  return {};
}

Status SendReceiveState::reap_receives() {
  std::array<WorkCompletion, 16> come;
  std::size_t count = come.size();
  while (count == come.size()) {
    RKV_ASSIGN_OR_RETURN(count, link_.poll_receives(come));
    for (const WorkCompletion& one : std::span(come).first(count)) {
      if (!one.ok()) {
        // A SEND that has failed flushed it, and is the reason to tell.
        RKV_RETURN_IF_ERROR(reap_sends());
        link_.note_receive(one.status);
        continue;
      }
      if (lied_) continue;
      if (one.kind != WorkKind::kReceive || one.has_immediate || one.has_invalidated ||
          one.byte_length == 0) {
        lied_ = true;
        link_.fail({.code = Code::kCorrupt, .text = "the peer's data is not a message"});
        continue;
      }
      const auto index = static_cast<std::uint32_t>(one.wr_id);
      slots_[index] = {.length = one.byte_length, .place = Place::kWaiting};
      waiting_[(waiting_first_ + waiting_count_++) % waiting_.size()] = index;
    }
  }
  return {};
}

Result<std::size_t> SendReceiveState::poll_sends() {
  RKV_RETURN_IF_ERROR(reap_sends());
  reported_ = done_;
  const std::uint64_t fresh = std::exchange(arrived_, 0U);
  if (fresh == 0 && link_.ended() && !link_.ended_cleanly()) return std::unexpected(link_.error());
  return fresh;
}

Result<std::size_t> SendReceiveState::poll_receives(std::span<Received> out) {
  RKV_RETURN_IF_ERROR(reap_receives());
  std::size_t count = 0;
  for (; count < out.size() && waiting_count_ != 0; ++count, --waiting_count_) {
    const std::uint32_t index = waiting_[waiting_first_];
    waiting_first_ = (waiting_first_ + 1) % waiting_.size();
    slots_[index].place = Place::kLent;
    out[count] = {.index = index, .length = slots_[index].length};
  }
  if (count == 0 && waiting_count_ == 0 && !link_.usable() && link_.ended() &&
      !link_.ended_cleanly()) {
    return std::unexpected(link_.error());
  }
  return count;
}

Bytes SendReceiveState::view(std::uint32_t index) const {
  RKV_CHECK(index < slots_.size() && slots_[index].place == Place::kLent,
            "view() of a message that is not held");
  return receive_buffer(index).bytes().first(slots_[index].length);
}

Status SendReceiveState::release(std::uint32_t index) {
  RKV_CHECK(index < slots_.size() && slots_[index].place == Place::kLent,
            "release() of a message that is not held");
  slots_[index].place = Place::kPosted;
  if (!link_.usable()) return {};  // no further message will arrive
  const Status posted = post(index);
  if (!posted) link_.fail(posted.error());
  return posted;
}

Result<bool> SendReceiveState::is_quiet(Interest interest) {
  RKV_RETURN_IF_ERROR(reap_sends());
  RKV_RETURN_IF_ERROR(reap_receives());
  if (link_.ended()) return false;
  if (has(interest, Interest::kMessages) && waiting_count_ != 0) return false;
  if (has(interest, Interest::kRoom) && refused_ && sent_ - done_ < options_.send_buffers) {
    return false;
  }
  return !(has(interest, Interest::kSent) && reported_ != done_);
}

}  // namespace detail

template class TransportOf<detail::SendReceiveState>;

SendReceiveTransport::SendReceiveTransport(std::unique_ptr<detail::SendReceiveState> state)
    : TransportOf(std::move(state)) {}

const QueuePair& SendReceiveTransport::queue_pair() const {
  return state().link().queue_pair();
}

Result<bool> SendReceiveTransport::try_finish() {
  return detail::try_finish(state());
}

Result<SendReceiveTransport> SendReceiveBuilder::connect(const SocketAddress& peer,
                                                         const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state, detail::dial<detail::SendReceiveState>(options, peer, deadline));
  return SendReceiveTransport(std::move(state));
}

Result<SendReceiveTransport> SendReceiveBuilder::accept(CmListener& listener,
                                                        const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state,
                       detail::answer<detail::SendReceiveState>(options, listener, deadline));
  return SendReceiveTransport(std::move(state));
}

Result<AcceptingTransport<SendReceiveTransport>> SendReceiveBuilder::start_accept(
    ConnectRequest request) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  RKV_ASSIGN_OR_RETURN(auto state,
                       detail::admit<detail::SendReceiveState>(options, std::move(request)));
  return AcceptingTransport(SendReceiveTransport(std::move(state)));
}

}  // namespace rkv::rdma
