#include "rdma/extras/group/exchange_frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {
namespace {

template <class T>
void put(std::byte*& to, T value) {
  for (int shift = 8 * (static_cast<int>(sizeof value) - 1); shift >= 0; shift -= 8)
    *to++ = static_cast<std::byte>(value >> shift);
}
template <class T>
T take(const std::byte*& from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = static_cast<T>(value << 7 << 1 | std::to_integer<T>(*from++));
  return value;
}

}  // namespace

std::vector<std::byte> encode(const FrameHeader& header, Bytes payload) {
  std::vector<std::byte> out(FrameHeader::kLengthBytes + FrameHeader::kBytes + payload.size());
  std::byte* at = out.data();
  put(at, static_cast<std::uint32_t>(FrameHeader::kBytes + payload.size()));
  put(at, FrameHeader::kMagic);
  put(at, FrameHeader::kVersion);
  put(at, std::to_underlying(header.kind));
  put(at, std::uint16_t{0});
  put(at, header.from);
  put(at, header.to);
  put(at, header.round);
  put(at, header.digest);
  if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
  return out;
}

Result<FrameHeader> decode(Bytes frame) {
  if (frame.size() < FrameHeader::kBytes)
    return fail(Code::kCorrupt, "the frame is shorter than its header");
  const std::byte* at = frame.data();
  if (take<std::uint32_t>(at) != FrameHeader::kMagic) {
    return fail(Code::kCorrupt, "the peer's data is not a frame of an exchange");
  }
  if (take<std::uint8_t>(at) != FrameHeader::kVersion) {
    return fail(Code::kVersionMismatch, "the peer uses another version of the exchange");
  }
  const auto kind = take<std::uint8_t>(at);
  const auto zero = take<std::uint16_t>(at);
  if (kind < 1 || kind > 4 || zero != 0) return fail(Code::kCorrupt, "the frame's kind is unknown");
  FrameHeader out{.kind = static_cast<FrameKind>(kind)};
  out.from = take<std::uint32_t>(at);
  out.to = take<std::uint32_t>(at);
  out.round = take<std::uint32_t>(at);
  out.digest = take<std::uint64_t>(at);
  return out;
}

Result<std::size_t> decode_length(std::span<const std::byte, FrameHeader::kLengthBytes> bytes,
                                  std::size_t most) {
  const std::byte* at = bytes.data();
  const std::size_t length = take<std::uint32_t>(at);
  if (length < FrameHeader::kBytes)
    return fail(Code::kCorrupt, "the frame is shorter than its header");
  if (length > most) return fail(Code::kTooLarge, "the frame is longer than the exchange allows");
  return length;
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

bool Socket::is_dead() const {
  std::byte one;
  const ssize_t got = ::recv(fd_, &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void FrameReader::reset() {
  have_ = 0;
  frame_.clear();
}

Result<bool> FrameReader::read(const Socket& from, std::size_t most) {
  for (;;) {
    const bool in_length = have_ < sizeof length_;
    std::byte* const to = in_length ? length_ + have_ : frame_.data() + (have_ - sizeof length_);
    const std::size_t want =
        in_length ? sizeof length_ - have_ : sizeof length_ + frame_.size() - have_;
    const ssize_t got = ::recv(from.fd(), to, want, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got < 0) return fail_call(Code::kDisconnected, "recv", errno);
    if (got == 0) {
      if (begun()) return fail(Code::kCorrupt, "the peer closed in the middle of a frame");
      return fail(Code::kDisconnected, "the peer has closed the connection");
    }
    have_ += static_cast<std::size_t>(got);
    if (in_length && have_ == sizeof length_) {
      RKV_ASSIGN_OR_RETURN(const std::size_t length, decode_length(length_, most));
      frame_.resize(length);
    }
    if (!in_length && have_ == sizeof length_ + frame_.size()) return true;
  }
}

Result<bool> FrameWriter::write(const Socket& to) {
  while (!done()) {
    const ssize_t sent =
        ::send(to.fd(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (sent < 0) return fail_call(Code::kDisconnected, "send", errno);
    sent_ += static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace rkv::rdma::detail
