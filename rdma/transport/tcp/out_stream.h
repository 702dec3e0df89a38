// OutStream: the bytes that a connection has to send, in order, until the socket has taken them.
//
// Frames are copied. Long messages are sent from their own memory, and the bytes of a READ from the
// region. The region is looked up again each time that the socket takes a part. So a region may go
// when half of a READ was sent, and then the connection must end.
//
// Thread safety: none; the connection has a lock for its stream.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <vector>

#include "rdma/transport/tcp/regions.h"

namespace rkv::rdma::tcp {

class OutStream {
 public:
  // A peer may have this many READs waiting here.
  static constexpr std::size_t kMostReads = 4096;

  bool empty() const { return next_ == pieces_.size(); }
  std::size_t reads() const { return reads_; }
  // Bytes that were copied and are not sent.
  std::size_t copied_bytes() const { return copies_.size() - copies_done_; }
  // Numbers of bytes that were added and sent since the beginning. The bytes that were added up to
  // `added()` == N are sent once `sent()` is N.
  std::uint64_t added() const { return added_; }
  std::uint64_t sent() const { return sent_; }

  // ---- bytes that are added behind a refusal count in added(), but are dropped

  // Adds a frame: its header, and the bytes behind it, which are copied.
  void add(const Header& header, Bytes behind);
  // Adds a message, whose memory must not change until it is sent.
  void add_message(Bytes message);
  // Adds the answer to a READ that is allowed now. The rights are checked again when its first byte
  // is sent: if the region has been released meanwhile, the answer is kRefused.
  void add_read(const Target& target, std::uint32_t length);
  void add_refusal() { add_read({}, 0); }  // 0 is the key of no region

  // Most bytes that one flush() sends, so that one peer does not occupy a thread.
  static constexpr std::size_t kMostAtOnce = std::size_t{512} << 10;
  enum class Flushed : std::uint8_t {
    kAll,
    kNotAll,   // the socket takes no more now, or kMostAtOnce were sent
    kRefused,  // all, and the last frame is a refusal
    kFailed,   // the connection is lost, or must end
  };
  // Does not block.
  Flushed flush(int socket, Regions& regions, Access granted);

 private:
  enum class From : std::uint8_t { kCopies, kUser, kRegion };
  struct Piece {
    From from = From::kCopies;
    bool is_refusal = false;
    std::uint32_t done = 0;
    std::uint32_t length = 0;
    const std::byte* user = nullptr;
    Target target{};
    std::array<std::byte, kHeaderBytes> header{};
    std::uint32_t header_done = 0;
  };
  static constexpr std::size_t kMostVectors = 64;
  // Most bytes of copies in one piece. A piece is kept until it is sent whole.
  static constexpr std::size_t kCopiedTogether = std::size_t{64} << 10;

  ssize_t send_some(int socket, Regions& regions, Access granted);
  // Fills vectors_. `regions`: nullptr if no READ waits. Returns false if the connection must end.
  bool gather(const Regions::Held* regions, Access granted);
  bool gather_read(Piece& piece, const Regions::Held* regions, Access granted);
  void gather_bytes(const std::byte* bytes, std::size_t length);
  void taken(std::size_t bytes);
  void pop_sent();
  void add_copy(Bytes bytes);
  void drop_sent();

  std::vector<Piece> pieces_{};
  std::size_t next_ = 0;
  std::vector<std::byte> copies_{};
  std::size_t copies_done_ = 0;
  std::size_t reads_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t sent_ = 0;
  bool is_refused_ = false;
  std::array<iovec, kMostVectors> vectors_{};
  std::size_t vector_count_ = 0;
  std::size_t gathered_ = 0;  // bytes in vectors_
};

}  // namespace rkv::rdma::tcp
