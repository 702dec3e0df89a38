// The frames of the exchange, and sockets that read and write them without blocking.
//
// Invariant: a reader takes from a socket at most the rest of the current frame. So the bytes of a
// peer that is a round ahead stay in the kernel. No peer can make this process allocate more than
// one frame's limit per connection.
//
// Thread safety: values; a socket belongs to one thread.
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

// Encodes a frame, its length first.
std::vector<std::byte> encode(const FrameHeader& header, Bytes payload);
// Decodes a frame without its length. kCorrupt, kVersionMismatch.
Result<FrameHeader> decode(Bytes frame);
// The frame length that `bytes` state. kTooLarge above `most`, kCorrupt below a header's length.
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
  // True if the peer has closed its end and nothing is left to read.
  bool is_dead() const;

 private:
  int fd_ = -1;
};

// Reads one frame, in as many parts as the socket delivers.
class FrameReader {
 public:
  // True when the frame is complete. kDisconnected: the peer closed between two frames; kCorrupt:
  // within a frame.
  Result<bool> read(const Socket& from, std::size_t most);
  Bytes frame() const { return frame_; }
  Bytes payload() const { return frame().subspan(FrameHeader::kBytes); }
  bool begun() const { return have_ != 0; }
  void reset();

 private:
  std::byte length_[FrameHeader::kLengthBytes] = {};
  std::size_t have_ = 0;  // bytes read of the length and of the frame after it
  std::vector<std::byte> frame_;
};

class FrameWriter {
 public:
  void start(std::vector<std::byte> bytes) {
    bytes_ = std::move(bytes);
    sent_ = 0;
  }
  // True when all bytes are written. kDisconnected.
  Result<bool> write(const Socket& to);
  bool done() const { return sent_ == bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;
};

}  // namespace rkv::rdma::detail
