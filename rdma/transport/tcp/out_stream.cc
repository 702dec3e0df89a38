#include "rdma/transport/tcp/out_stream.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rkv::rdma::tcp {

namespace {

// Other threads may write memory while a peer READs it, as with an adapter. ThreadSanitizer would
// report that for the library's sendmsg(), so a plain system call sends such memory. The rest goes
// by the library's sendmsg(), which shows ThreadSanitizer that the peer's actions come later.
ssize_t send_vectors(int socket, iovec* vectors, std::size_t count, bool are_read) {
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = count;
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  return are_read ? syscall(SYS_sendmsg, socket, &message, kFlags)
                  : ::sendmsg(socket, &message, kFlags);
}

}  // namespace

void OutStream::add(const Header& header, Bytes behind) {
  std::array<std::byte, kHeaderBytes> bytes;
  encode(header, bytes.data());
  add_copy(bytes);
  add_copy(behind);
}

void OutStream::add_copy(Bytes bytes) {
  if (bytes.empty()) return;
  added_ += bytes.size();
  if (is_refused_) return;
  copies_.insert(copies_.end(), bytes.begin(), bytes.end());
  const auto length = static_cast<std::uint32_t>(bytes.size());
  if (!empty() && pieces_.back().from == From::kCopies && pieces_.back().length < kCopiedTogether) {
    pieces_.back().length += length;
  } else {
    pieces_.push_back({.from = From::kCopies, .length = length});
  }
}

void OutStream::add_message(Bytes message) {
  added_ += message.size();
  add({.kind = Kind::kSend, .length = static_cast<std::uint32_t>(message.size())}, {});
  if (is_refused_) return;
  pieces_.push_back({.from = From::kUser,
                     .length = static_cast<std::uint32_t>(message.size()),
                     .user = message.data()});
}

void OutStream::add_read(const Target& target, std::uint32_t length) {
  added_ += kHeaderBytes + length;
  if (is_refused_) return;
  ++reads_;
  pieces_.push_back({.from = From::kRegion, .length = length, .target = target});
}

void OutStream::gather_bytes(const std::byte* bytes, std::size_t length) {
  length = std::min(length, kMostAtOnce - gathered_);
  if (length == 0) return;
  vectors_[vector_count_++] = {.iov_base = const_cast<std::byte*>(bytes), .iov_len = length};
  gathered_ += length;
}

// If the region goes before the first byte of a READ is sent, the READ is refused.
bool OutStream::gather_read(Piece& piece, const Regions::Held* regions, Access granted) {
  const std::byte* const memory =
      piece.is_refusal || regions == nullptr
          ? nullptr
          : regions->at(piece.target, piece.length, Access::kRemoteRead, granted);
  if (memory == nullptr && !piece.is_refusal) {
    if (piece.header_done != 0) return false;
    piece.is_refusal = is_refused_ = true;
    piece.length = 0;
  }
  encode(Header{.kind = piece.is_refusal ? Kind::kRefused : Kind::kData, .length = piece.length},
         piece.header.data());
  gather_bytes(piece.header.data() + piece.header_done, kHeaderBytes - piece.header_done);
  gather_bytes(memory + piece.done, piece.length - piece.done);
  return true;
}

bool OutStream::gather(const Regions::Held* regions, Access granted) {
  vector_count_ = gathered_ = 0;
  std::size_t copies = copies_done_;
  for (std::size_t i = next_;
       i != pieces_.size() && vector_count_ + 2 <= kMostVectors && gathered_ != kMostAtOnce; ++i) {
    Piece& piece = pieces_[i];
    const std::size_t left = piece.length - piece.done;
    if (piece.from == From::kCopies) {
      gather_bytes(copies_.data() + copies, left);
      copies += left;
    } else if (piece.from == From::kUser) {
      gather_bytes(piece.user + piece.done, left);
    } else if (!gather_read(piece, regions, granted)) {
      return false;
    } else if (piece.is_refusal) {
      pieces_.resize(i + 1);  // nothing is sent behind a refusal
    }
  }
  return true;
}

void OutStream::taken(std::size_t bytes) {
  sent_ += bytes;
  while (bytes != 0) {
    Piece& piece = pieces_[next_];
    if (piece.from == From::kRegion) {
      const std::size_t part = std::min<std::size_t>(bytes, kHeaderBytes - piece.header_done);
      piece.header_done += static_cast<std::uint32_t>(part);
      bytes -= part;
    }
    const std::size_t part = std::min<std::size_t>(bytes, piece.length - piece.done);
    piece.done += static_cast<std::uint32_t>(part);
    bytes -= part;
    if (piece.from == From::kCopies) copies_done_ += part;
    pop_sent();
  }
}

void OutStream::pop_sent() {
  const Piece& first = pieces_[next_];
  const bool has_header = first.from != From::kRegion || first.header_done == kHeaderBytes;
  if (first.done != first.length || !has_header) return;
  if (first.from == From::kRegion) --reads_;
  ++next_;
  drop_sent();
}

// Drops sent pieces and copies when all is sent, or now and then if that never happens.
void OutStream::drop_sent() {
  constexpr std::size_t kPieces = 1024;
  constexpr std::size_t kCopiedBytes = std::size_t{1} << 20;
  if (!empty() && next_ < kPieces && copies_done_ < kCopiedBytes) return;
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(next_));
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(copies_done_));
  next_ = copies_done_ = 0;
}

// Returns 0 if the connection must end.
ssize_t OutStream::send_some(int socket, Regions& regions, Access granted) {
  if (reads_ == 0) {
    (void)gather(nullptr, granted);
    return send_vectors(socket, vectors_.data(), vector_count_, false);
  }
  const Regions::Held held(regions);
  if (!gather(&held, granted)) return 0;
  return send_vectors(socket, vectors_.data(), vector_count_, true);
}

OutStream::Flushed OutStream::flush(int socket, Regions& regions, Access granted) {
  for (const std::uint64_t most = sent_ + kMostAtOnce; !empty() && sent_ < most;) {
    const ssize_t sent = send_some(socket, regions, granted);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Flushed::kNotAll;
    if (sent <= 0) return Flushed::kFailed;
    taken(static_cast<std::size_t>(sent));
  }
  if (!empty()) return Flushed::kNotAll;
  return is_refused_ ? Flushed::kRefused : Flushed::kAll;
}

}  // namespace rkv::rdma::tcp
