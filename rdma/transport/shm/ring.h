// Ring: messages from one process to another through memory that both can write.
//
// The memory of a link is one memfd created by the server: a page of indices, then the ring to the
// server, then the ring to the client. Positions count all bytes since the ring was created. A
// message is a word with its length, then its bytes, padded to 8; it may wrap around the end.
//
// Invariants
//  SHMRING-1  Each side owns a line of indices and keeps its own index in private memory: the value
//      in the shared line is only published, never read back. So a peer that overwrites the shared
//      line cannot change our index.
//  SHMRING-2  A value that a peer wrote is loaded once, then checked, then used: an index by its
//      distance to ours (at most the ring's size), a length by that distance and by the receiver's
//      limit. A message is copied out before it is read. A value out of range is garbage, and
//      garbage ends this link and nothing else.
//  SHMRING-3  No loop here depends on concurrent actions of the peer: every call handles one
//      message.
//  SHMRING-4  The memory can neither shrink nor grow (memory.h) and is fully allocated at creation:
//      no access raises SIGBUS.
//  SHMRING-5  A message is published by storing the tail after its bytes, and taken by loading the
//      tail before them. Space is returned by storing the head after the bytes have been copied
//      out.
//
// Thread safety: each end belongs to one thread, except RingWriter::close().
#pragma once

#include <cstdint>

#include "common/bytes.h"
#include "rdma/transport/host_memory.h"

namespace rkv::rdma::shm {

struct RingIndices {
  struct alignas(64) Producer {
    std::uint64_t tail;        // bytes published
    std::uint64_t closed;      // 1: no more messages follow
    std::uint64_t wants_room;  // 1: the producer has a message that did not fit
  } producer;
  struct alignas(64) Consumer {
    std::uint64_t head;  // bytes taken
  } consumer;
};

struct LinkHeader {
  RingIndices to_server;
  RingIndices to_client;
  // The client's sleep word (SHMQ-5 and SHMQ-6 in queue.h); written by the client.
  alignas(64) std::uint64_t client_sleeps;
};
inline constexpr std::size_t kLinkHeaderBytes = 4096;
static_assert(sizeof(LinkHeader) <= kLinkHeaderBytes);

// Returns the ring size: a power of two that holds two messages of the maximum length, and at least
// 32 KiB, so that small messages can be batched.
std::uint64_t ring_bytes(std::uint64_t receive_bytes);
inline std::size_t link_bytes(std::uint64_t to_server, std::uint64_t to_client) {
  return kLinkHeaderBytes + to_server + to_client;
}

class RingWriter {
 public:
  RingWriter(RingIndices& shared, std::byte* ring, std::uint64_t bytes)
      : shared_(&shared), ring_(ring), bytes_(bytes) {}

  enum class Outcome : std::uint8_t { kPlaced, kFull, kGarbage };
  // Copies the message in; publish() makes it visible. kFull: the consumer is asked to wake this
  // side when there is space. REQUIRES: the message is at most as long as ring_bytes() was given.
  Outcome place(Bytes message);
  // Makes placed messages visible. Returns whether there were any.
  bool publish();
  bool has_room(std::size_t message_bytes);
  void close() { store(shared_->producer.closed, 1, std::memory_order_seq_cst); }

 private:
  bool refresh();  // false: garbage
  RingIndices* shared_;
  std::byte* ring_;
  std::uint64_t bytes_;
  std::uint64_t tail_ = 0;       // placed
  std::uint64_t published_ = 0;  // visible to the consumer
  std::uint64_t head_ = 0;       // of the consumer, as last seen
  bool waits_ = false;           // current value of `wants_room`
};

class RingReader {
 public:
  RingReader(RingIndices& shared, const std::byte* ring, std::uint64_t bytes,
             std::uint64_t longest_message)
      : shared_(&shared), ring_(ring), bytes_(bytes), longest_(longest_message) {}

  enum class Outcome : std::uint8_t { kTaken, kEmpty, kGarbage };
  // Copies the next message to `buffer`, which holds the longest message padded to 8.
  Outcome take(std::byte* buffer, std::size_t* length);
  bool has_message() const;
  bool closed() const { return load(shared_->producer.closed, std::memory_order_acquire) != 0; }
  // The producer waits for space that take() has freed.
  bool producer_waits() const;
  // From now on only messages that are already published count: used when the peer has left, so
  // that the link ends.
  void freeze();

 private:
  std::uint64_t tail() const;
  RingIndices* shared_;
  const std::byte* ring_;
  std::uint64_t bytes_;
  std::uint64_t longest_;
  std::uint64_t head_ = 0;
  std::uint64_t frozen_tail_ = 0;
  bool frozen_ = false;
};

}  // namespace rkv::rdma::shm
