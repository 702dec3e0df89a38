// The frames of the exchange, and sockets that give and take them without blocking.
//
// Invariant: what is read from a socket is at most the frame that is being read, so a peer that is
// a round ahead keeps its bytes in the kernel, and nobody makes this process take more memory than
// one frame's limit per connection.
//
// Thread safety: values; a socket is one thread's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rkv/bytes.h"
#include "rkv/result.h"

namespace rkv::rdma::detail {

enum class FrameKind : unsigned char { kHello = 1, kWelcome = 2, kRefusal = 3, kData = 4 };
enum class Refusal : unsigned char {
  kVersion = 1,
  kOtherCluster = 2,
  kWrongRank = 3,
  kDuplicateRank = 4,
};

struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x726B7678;  // "rkvx"
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::size_t kBytes = 28;
  static constexpr std::size_t kLengthBytes = 4;

  FrameKind kind = FrameKind::kHello;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t round = 0;
  std::uint64_t digest = 0;
};

// With its length in front.
std::vector<std::byte> encode(const FrameHeader& header, Bytes payload);
// Of a frame without its length. kCorrupt, kVersionMismatch.
Result<FrameHeader> decode(Bytes frame);
// How long the frame is that begins so. kTooLarge above `most`, kCorrupt below a header's length.
Result<std::size_t> decode_length(std::span<const std::byte, FrameHeader::kLengthBytes> bytes,
                                  std::size_t most);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  // Whether the other side has closed its end, with nothing left to read.
  bool is_dead() const;

 private:
  int fd_ = -1;
};

// One frame, in as many pieces as the socket gives.
class FrameReader {
 public:
  // True when the frame is whole. kDisconnected: the peer closed between frames, kCorrupt: in one.
  Result<bool> read(const Socket& from, std::size_t most);
  Bytes frame() const { return frame_; }
  Bytes payload() const { return frame().subspan(FrameHeader::kBytes); }
  bool begun() const { return have_ != 0; }
  void reset();

 private:
  std::byte length_[FrameHeader::kLengthBytes] = {};
  std::size_t have_ = 0;  // of the length, then of the frame behind it
  std::vector<std::byte> frame_;
};

class FrameWriter {
 public:
  void start(std::vector<std::byte> bytes) {
    bytes_ = std::move(bytes);
    sent_ = 0;
  }
  // True when all of it has left. kDisconnected.
  Result<bool> write(const Socket& to);
  bool done() const { return sent_ == bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;
};

}  // namespace rkv::rdma::detail
