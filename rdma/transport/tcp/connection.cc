#include "rdma/transport/tcp/connection.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace rkv::rdma::tcp {

namespace {

constexpr std::size_t kInputBytes = std::size_t{16} << 10;
// Most bytes that one connection receives in a turn of a thread.
constexpr std::size_t kMostAtOnce = std::size_t{256} << 10;
// Shorter messages are copied, and sent together with their neighbours.
constexpr std::size_t kCopiedBytes = std::size_t{16} << 10;
constexpr std::uint32_t kReadsInFlight = 256;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

TcpConnection::TcpConnection(TcpQueue& queue, CompletionReserve::Reservation room,
                             const ConnectionOptions& options, Link link)
    : queue_(queue),
      shared_(queue.shared()),
      room_(std::move(room)),
      options_(options),
      link_(std::move(link)),
      input_(kInputBytes),
      operations_(std::bit_ceil(std::max<std::size_t>(options.sends_in_flight, 1))) {}

Status TcpConnection::start() {
  const auto care = link_.is_accepted ? SocketThread::Care::kOwn : SocketThread::Care::kStandIn;
  number_ = shared_->sockets.new_number();
  if (!link_.is_accepted) RKV_RETURN_IF_ERROR(queue_.look_after(*this, link_.socket.get()));
  RKV_RETURN_IF_ERROR(shared_->sockets.add(number_, link_.socket.get(), care, *this));
  is_started_ = true;
  return {};
}

TcpConnection::~TcpConnection() {
  if (number_ != 0) shared_->sockets.remove(number_);  // ends calls of the SocketThread
  if (!link_.is_accepted && !is_dead_.load()) queue_.watch(link_.socket.get(), 0);
  {
    const MutexLock lock(in_);
    if (message_buffer_) queue_.give_back(*message_buffer_);
  }
  // An accepted connection that could not be started is destroyed on another thread than the
  // queue's.
  if (is_started_ || !link_.is_accepted) queue_.forget(*this);
  // Unread bytes of the peer would make the system drop the bytes that are on their way to the
  // peer.
  ::shutdown(link_.socket.get(), SHUT_WR);
  std::array<std::byte, 4096> ignored;
  constexpr int kMostParts = 256;  // a peer may send without end
  for (int i = 0; i < kMostParts; ++i)
    if (::recv(link_.socket.get(), ignored.data(), ignored.size(), MSG_DONTWAIT) <= 0) break;
}

ConnectionLimits TcpConnection::limits() const {
  return {.reads_in_flight = kReadsInFlight,
          .sends_in_flight = options_.sends_in_flight,
          .inline_bytes = options_.inline_bytes};
}

std::uint64_t TcpConnection::bytes_passed() const {
  const MutexLock lock(out_);
  return received_.load(std::memory_order_relaxed) + stream_.sent();
}

// Bytes that the peer has sent may still be in the socket. After abort() none of its atomics is
// carried out: an atomic that has begun holds `out_` (TCPCONN-5).
void TcpConnection::abort() {
  is_aborted_.store(true);
  break_off();
  const MutexLock out(out_);
}

// Ends the socket; the connection's reader notices that.
void TcpConnection::break_off() {
  ::shutdown(link_.socket.get(), SHUT_RDWR);
}

// ---- posting

Result<std::size_t> TcpConnection::post(std::span<const Operation> batch) {
  const MutexLock lock(out_);
  std::size_t count = 0;
  {
    const MutexLock state(state_);
    if (is_dead_.load() || is_aborted_.load() || leaves_at_.load() != 0)
      return fail(Code::kDisconnected, "the connection has ended");
    count = std::min<std::size_t>(batch.size(), options_.sends_in_flight - in_use_.load());
    in_use_.fetch_add(static_cast<std::uint32_t>(count));
    for (const Operation& one : batch.first(count)) {
      add(one);
      at(posted_++) = {.kind = one.kind,
                       .signaled = one.signaled,
                       .local = one.local,
                       .context = one.context,
                       .end = stream_.added()};
    }
  }
  if (flush() == OutStream::Flushed::kFailed) break_off();
  return count;
}

void TcpConnection::add(const Operation& operation) {
  const Target target{.address = operation.remote_address, .key = operation.remote_key};
  const auto length = static_cast<std::uint32_t>(operation.local.size());
  if (operation.kind == Operation::Kind::kSend) {
    if (operation.inline_data || length <= kCopiedBytes)
      stream_.add({.kind = Kind::kSend, .length = length}, operation.local);
    else
      stream_.add_message(operation.local);
  } else if (operation.kind == Operation::Kind::kRead) {
    std::array<std::byte, kTargetBytes> fixed;
    encode(target, fixed.data());
    stream_.add({.kind = Kind::kRead, .length = length}, fixed);
  } else {
    std::array<std::byte, kAtomicBytes> fixed;
    encode(
        AtomicRequest{
            .target = target, .compare_or_add = operation.compare_or_add, .swap = operation.swap},
        fixed.data());
    const bool adds = operation.kind == Operation::Kind::kFetchAdd;
    stream_.add({.kind = adds ? Kind::kFetchAdd : Kind::kCompareSwap, .length = 8}, fixed);
  }
}

OutStream::Flushed TcpConnection::flush() {
  const OutStream::Flushed flushed =
      stream_.flush(link_.socket.get(), shared_->regions, options_.grant);
  {
    const MutexLock state(state_);
    sent_ = stream_.sent();
    end_sent();
  }
  watch();
  if (flushed == OutStream::Flushed::kRefused && leaves_at_.load() == 0) {
    const SteadyClock clock;
    leaves_at_.store(clock.now() + kLeaves);
    shared_->sockets.call_at(number_, leaves_at_.load());
    ::shutdown(link_.socket.get(), SHUT_WR);
  }
  return flushed;
}

void TcpConnection::watch() {
  std::uint32_t events = 0;
  if (!is_dead_.load()) {
    events = EPOLLERR | input_events_.load();
    if (!stream_.empty()) events |= EPOLLOUT;
  }
  if (std::exchange(events_, events) == events) return;
  if (!link_.is_accepted) queue_.watch(link_.socket.get(), events);
  shared_->sockets.watch(number_, events);
}

// ---- what was posted

// Ends the messages that were sent, and returns the READ or atomic behind them; nullptr: none that
// was sent.
TcpConnection::Posted* TcpConnection::oldest_request() {
  sent_ = stream_.sent();
  end_sent();
  if (oldest_ == posted_) return nullptr;
  Posted& oldest = at(oldest_);
  return oldest.kind != Operation::Kind::kSend && oldest.end <= sent_ ? &oldest : nullptr;
}

void TcpConnection::end_oldest(Completion::Status status) {
  const Posted one = at(oldest_++);
  if (!one.signaled && status == Completion::Status::kOk) {
    in_use_.fetch_sub(1);
    queue_.room_came_back();
    return;
  }
  queue_.deliver({.kind = completion_kind(one.kind),
                  .status = status,
                  .connection = this,
                  .context = one.context});
}

void TcpConnection::end_sent() {
  if (is_dead_.load()) return;
  while (oldest_ != posted_ && at(oldest_).kind == Operation::Kind::kSend &&
         at(oldest_).end <= sent_)
    end_oldest(Completion::Status::kOk);
}

// Also ends the messages behind the request, which may have been sent long ago.
void TcpConnection::end_request() {
  end_oldest(Completion::Status::kOk);
  end_sent();
}

// ---- reading

bool TcpConnection::look() {
  if (is_dead_.load()) return false;
  const MutexLock lock(in_);
  read();
  return !is_dead_.load();
}

void TcpConnection::on_socket() {
  const MutexLock lock(in_);
  read();
}

void TcpConnection::buffer_came_back() {
  const MutexLock lock(in_);
  if (expects_ == Expects::kBuffer) read();
}

void TcpConnection::read() {
  if (is_dead_.load()) return;
  const bool goes_on = !is_aborted_.load() && take_what_is_there();
  const SteadyClock clock;
  const Nanos leaves_at = leaves_at_.load();
  const bool is_over = leaves_at != 0 && clock.now() >= leaves_at;
  if (!goes_on || is_over || waits_in_vain() || is_message_stuck()) return end();
  // In kRoom all answers may be sent by now, so EPOLLOUT is watched: the next event must come
  // nevertheless.
  input_events_.store(expects_ == Expects::kBuffer ? 0U
                      : expects_ == Expects::kRoom ? std::uint32_t{EPOLLOUT}
                                                   : std::uint32_t{EPOLLIN});
  flush_answers();
}

// Whether the connection waits for a buffer or for room although its socket has ended. While it
// waits, the socket is not read, so its end would not be seen.
bool TcpConnection::waits_in_vain() const {
  if (expects_ != Expects::kBuffer && expects_ != Expects::kRoom) return false;
  pollfd socket{.fd = link_.socket.get(), .events = 0, .revents = 0};
  return ::poll(&socket, 1, 0) == 1 && (socket.revents & (POLLHUP | POLLERR)) != 0;
}

// Returns false if the connection is over.
bool TcpConnection::take_what_is_there() {
  if (!take_frames()) return false;
  bool is_empty = false;
  for (std::size_t taken = 0; taken < kMostAtOnce && !is_empty;) {
    if (expects_ == Expects::kRoom) {  // sending the answers made so far makes room
      flush_answers();
      if (!take_frames()) return false;
    }
    if (expects_ == Expects::kBuffer || expects_ == Expects::kRoom) return true;
    if (!receive(&taken, &is_empty) || !take_frames()) return false;
  }
  return true;
}

// Whether a message has paused for kMessagePauses. That is checked once per this time, since few
// messages are long enough to come in parts.
bool TcpConnection::is_message_stuck() {
  if (!message_buffer_ || expects_ == Expects::kLeave) return false;
  const SteadyClock clock;
  const Nanos now = clock.now();
  if (now < watched_until_) return false;
  const bool is_same = watched_message_ == messages_ && watched_left_ == payload_.size();
  if (watched_until_ != 0 && is_same) return true;
  watched_message_ = messages_;
  watched_left_ = payload_.size();
  watched_until_ = now + kMessagePauses;
  shared_->sockets.call_at(number_, watched_until_);
  return false;
}

// Receives a payload directly into its destination, and the bytes behind it into the input.
bool TcpConnection::receive(std::size_t* taken, bool* is_empty) {
  if (input_begin_ == input_end_) {
    input_begin_ = input_end_ = 0;
  } else if (input_begin_ != 0) {
    std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
    input_end_ -= std::exchange(input_begin_, 0);
  }
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  if (expects_ == Expects::kPayload)
    parts[count++] = {.iov_base = payload_.data(), .iov_len = payload_.size()};
  parts[count++] = {.iov_base = input_.data() + input_end_, .iov_len = input_.size() - input_end_};
  const std::size_t room = parts[0].iov_len + parts[1].iov_len;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  ssize_t got = 0;
  do {
    got = ::recvmsg(link_.socket.get(), &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && would_block(errno)) {
    *is_empty = true;
    return true;
  }
  if (got <= 0) return false;
  auto bytes = static_cast<std::size_t>(got);
  *taken += bytes;
  received_.store(received_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  *is_empty = bytes < room;
  if (expects_ == Expects::kPayload) {
    const std::size_t part = std::min(bytes, payload_.size());
    take_payload(part);
    bytes -= part;
  }
  input_end_ += bytes;
  return true;
}

void TcpConnection::take_payload(std::size_t bytes) {
  payload_ = payload_.subspan(bytes);
  if (payload_.empty()) end_payload();
}

// Returns false if the peer breaks the protocol, or the connection was aborted.
bool TcpConnection::take_frames() {
  for (;;) {
    if (is_aborted_.load()) return false;
    if (leaves_at_.load() != 0) expects_ = Expects::kLeave;  // flush() has refused a READ
    if (expects_ == Expects::kLeave) {
      input_begin_ = input_end_;
      return true;
    }
    if (expects_ == Expects::kBuffer && !begin_message()) return true;
    if (expects_ == Expects::kRoom) expects_ = Expects::kHeader;
    const std::size_t there = input_end_ - input_begin_;
    if (expects_ == Expects::kPayload) {
      const std::size_t part = std::min(there, payload_.size());
      if (part == 0) return true;
      std::memcpy(payload_.data(), input_.data() + input_begin_, part);
      input_begin_ += part;
      take_payload(part);
      continue;
    }
    if (there < kHeaderBytes) return true;
    const std::byte* const from = input_.data() + input_begin_;
    const auto header = decode_header(from);
    if (!header) return false;
    const std::size_t whole = kHeaderBytes + fixed_bytes(header->kind);
    if (there < whole) return true;
    if (header->kind == Kind::kSend) {
      if (header->length > queue_.receive_bytes()) return false;
      // If the rest of the message has not come, but fits into the input, it takes no buffer yet.
      if (there < whole + header->length && whole + header->length <= input_.size()) return true;
    }
    if (fixed_bytes(header->kind) != 0 && !has_room_for_answers()) {
      expects_ = Expects::kRoom;
      return true;
    }
    input_begin_ += whole;
    if (!begin(*header, from + kHeaderBytes)) return false;
  }
}

bool TcpConnection::begin(const Header& header, const std::byte* fixed) {
  header_ = header;
  switch (header.kind) {
    case Kind::kSend:
      begin_message();
      return true;
    case Kind::kRead:
      return answer_read(decode_target(fixed), header.length);
    case Kind::kCompareSwap:
    case Kind::kFetchAdd:
      return change_word(header.kind, decode_atomic(fixed));
    case Kind::kData:
    case Kind::kWord:
      return begin_answer();
    case Kind::kRefused:
      return take_refusal();
  }
  return false;
}

// Returns false if all buffers are taken.
bool TcpConnection::begin_message() {
  message_buffer_ = queue_.take_buffer(*this);
  if (!message_buffer_) {
    expects_ = Expects::kBuffer;
    return false;
  }
  ++messages_;
  expects_ = Expects::kPayload;
  payload_ = queue_.buffer(*message_buffer_).first(header_.length);
  if (payload_.empty()) end_payload();
  return true;
}

bool TcpConnection::begin_answer() {
  const MutexLock out(out_);
  const MutexLock state(state_);
  const Posted* const request = oldest_request();
  if (request == nullptr || request->local.size() != header_.length) return false;
  const bool is_read = request->kind == Operation::Kind::kRead;
  if (is_read != (header_.kind == Kind::kData)) return false;
  payload_ = request->local;
  expects_ = Expects::kPayload;
  if (payload_.empty()) {
    expects_ = Expects::kHeader;
    end_request();
  }
  return true;
}

// Returns false: the connection is over.
bool TcpConnection::take_refusal() {
  const MutexLock out(out_);
  const MutexLock state(state_);
  if (oldest_request() != nullptr) end_oldest(Completion::Status::kRemoteAccess);
  return false;
}

void TcpConnection::end_payload() {
  expects_ = Expects::kHeader;
  if (header_.kind == Kind::kSend) {
    const std::uint32_t buffer = *std::exchange(message_buffer_, std::nullopt);
    queue_.deliver({.kind = Completion::Kind::kReceive,
                    .connection = this,
                    .message = queue_.buffer(buffer).first(header_.length),
                    .receive_buffer = buffer});
    return;
  }
  const MutexLock state(state_);
  end_request();
}

// A peer that takes no answers must not fill this process's memory with them.
bool TcpConnection::has_room_for_answers() {
  const MutexLock out(out_);
  constexpr std::size_t kAtomicAnswerBytes = kHeaderBytes + 8;
  const std::size_t longest = std::max<std::size_t>(kCopiedBytes, options_.inline_bytes);
  const std::size_t own = options_.sends_in_flight * (kHeaderBytes + longest);
  return stream_.reads() < OutStream::kMostReads &&
         stream_.copied_bytes() <= own + OutStream::kMostReads * kAtomicAnswerBytes;
}

// Refuses a request. Nothing that the peer sends behind it has an effect.
void TcpConnection::refuse() {
  stream_.add_refusal();
  expects_ = Expects::kLeave;
}

bool TcpConnection::answer_read(const Target& target, std::uint32_t length) {
  const MutexLock out(out_);
  const Regions::Held regions(shared_->regions);
  if (regions.at(target, length, Access::kRemoteRead, options_.grant) == nullptr) {
    refuse();
  } else {
    stream_.add_read(target, length);
  }
  return true;
}

bool TcpConnection::change_word(Kind kind, const AtomicRequest& request) {
  const MutexLock out(out_);
  if (is_aborted_.load()) return false;
  std::uint64_t old = 0;
  {
    const Regions::Held regions(shared_->regions);
    std::byte* const memory =
        regions.at(request.target, 8, Access::kRemoteReadAtomic, options_.grant);
    if (memory == nullptr || request.target.address % 8 != 0) {
      refuse();
      return true;
    }
    const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(memory));
    old = request.compare_or_add;
    if (kind == Kind::kFetchAdd) {
      old = word.fetch_add(request.compare_or_add, std::memory_order_seq_cst);
    } else {
      word.compare_exchange_strong(old, request.swap, std::memory_order_seq_cst);
    }
  }
  std::array<std::byte, 8> bytes;
  store_le(bytes.data(), old);
  stream_.add({.kind = Kind::kWord, .length = 8}, bytes);
  return true;
}

void TcpConnection::flush_answers() {
  const MutexLock out(out_);
  if (flush() == OutStream::Flushed::kFailed) break_off();
}

// TCPCONN-2
void TcpConnection::end() {
  const MutexLock out(out_);
  {
    const MutexLock state(state_);
    is_dead_.store(true);
    while (oldest_ != posted_)
      end_oldest(Completion::Status::kFlushed);
    queue_.deliver({.kind = Completion::Kind::kDisconnected, .connection = this});
  }
  watch();
  ::shutdown(link_.socket.get(), SHUT_RDWR);
}

}  // namespace rkv::rdma::tcp
