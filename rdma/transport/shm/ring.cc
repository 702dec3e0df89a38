#include "rdma/transport/shm/ring.h"

#include <algorithm>
#include <bit>

namespace rkv::rdma::shm {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMinRingBytes = 32U << 10;

constexpr std::uint64_t room_of(std::uint64_t message_bytes) {
  return kLengthBytes + round_up(message_bytes, 8);
}

}  // namespace

std::uint64_t ring_bytes(std::uint64_t receive_bytes) {
  return std::bit_ceil(std::max(kMinRingBytes, 2 * room_of(receive_bytes)));
}

// ---- producer ----

bool RingWriter::refresh() {
  // seq_cst: `wants_room` and the sleep word were stored before. Either this load sees a head that
  // frees space, or the consumer sees that this side waits (queue.h, SHMQ-5). It includes acquire:
  // the bytes that the head returns have been read (SHMRING-5).
  const std::uint64_t head = load(shared_->consumer.head, std::memory_order_seq_cst);
  if (head - head_ > tail_ - head_) return false;  // not between the last head and our tail
  head_ = head;
  return true;
}

RingWriter::Outcome RingWriter::place(Bytes message) {
  const std::uint64_t needed = room_of(message.size());
  if (needed > bytes_ - (tail_ - head_)) {
    if (!refresh()) return Outcome::kGarbage;
    if (needed > bytes_ - (tail_ - head_)) {
      waits_ = true;
      store(shared_->producer.wants_room, 1, std::memory_order_seq_cst);
      if (!refresh()) return Outcome::kGarbage;
      if (needed > bytes_ - (tail_ - head_)) return Outcome::kFull;
    }
  }
  if (waits_) {
    waits_ = false;
    store(shared_->producer.wants_room, 0, std::memory_order_relaxed);
  }
  const std::uint64_t mask = bytes_ - 1;
  store_word(reinterpret_cast<std::uint64_t*>(ring_ + (tail_ & mask)), message.size());
  const std::uint64_t at = (tail_ + kLengthBytes) & mask;
  const std::size_t first = std::min<std::size_t>(message.size(), bytes_ - at);
  copy_to_shared(ring_ + at, message.first(first));
  copy_to_shared(ring_, message.subspan(first));
  tail_ += needed;
  return Outcome::kPlaced;
}

bool RingWriter::publish() {
  if (published_ == tail_) return false;
  published_ = tail_;
  // Release: the messages are in place before the tail covers them (SHMRING-5). seq_cst: see SHMQ-5
  // in queue.h.
  store(shared_->producer.tail, tail_, std::memory_order_seq_cst);
  return true;
}

bool RingWriter::has_room(std::size_t message_bytes) {
  // Garbage counts as space: the next place() detects it.
  return !refresh() || room_of(message_bytes) <= bytes_ - (tail_ - head_);
}

// ---- consumer ----

std::uint64_t RingReader::tail() const {
  // Acquire: the messages up to the tail are in place (SHMRING-5). seq_cst: see SHMQ-5 in queue.h.
  return frozen_ ? frozen_tail_ : load(shared_->producer.tail, std::memory_order_seq_cst);
}

bool RingReader::has_message() const {
  return tail() != head_;
}

void RingReader::freeze() {
  frozen_tail_ = tail();
  frozen_ = true;
}

bool RingReader::producer_waits() const {
  return load(shared_->producer.wants_room, std::memory_order_seq_cst) != 0;
}

RingReader::Outcome RingReader::take(std::byte* buffer, std::size_t* length) {
  const std::uint64_t there = tail() - head_;
  if (there == 0) return Outcome::kEmpty;
  if (there > bytes_ || there < kLengthBytes) return Outcome::kGarbage;
  const std::uint64_t mask = bytes_ - 1;
  const std::uint64_t said =
      load_word(reinterpret_cast<const std::uint64_t*>(ring_ + (head_ & mask)));
  if (said > longest_ || room_of(said) > there) return Outcome::kGarbage;
  const std::uint64_t at = (head_ + kLengthBytes) & mask;
  const std::size_t first = std::min<std::size_t>(said, bytes_ - at);
  copy_from_shared({buffer, first}, ring_ + at);
  copy_from_shared({buffer + first, said - first}, ring_);
  *length = said;
  head_ += room_of(said);
  // Release: the bytes have been copied out before their space is returned (SHMRING-5).
  store(shared_->consumer.head, head_, std::memory_order_seq_cst);
  return Outcome::kTaken;
}

}  // namespace rkv::rdma::shm
