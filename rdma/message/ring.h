// The arithmetic of a ring in a peer's memory: where records go, what a doorbell says, what is
// free. No verbs in here, so that it can be run against a model (tests/rdma/message/ring_test.cc).
//
// A record is a header of 8 bytes and a message, rounded up to 8 bytes. It never wraps around: one
// that does not fit before the end of the ring starts at the beginning, and what is left over is
// passed by. Both sides compute that from the length alone, so padding is never told. Positions
// count bytes since the beginning of the connection, padding included, modulo 2^32; the ring is at
// most 2^30 long, so a difference of positions is never ambiguous.
//
// Invariants:
//   R1. A place is used again only when the peer has freed it and the completion of the WRITE into
//   it has been reaped. The first protects the
//       peer's reader, the second our own bytes, which the device may send once more.
//   R2. At most `slots` records are sent and not freed, and at most `slots` WRITEs not reaped.
//   R3. What the receiver frees is a position, the end of the last record of an unbroken run of
//       released ones. A count would be wrong as soon as records are released out of order.
//   R4. A doorbell or a credit of the peer's that cannot be true is refused, and changes nothing.
//   R5. The receiver tells the sender in time: what is free and not told is less than a quarter of
//       the ring and less than a quarter of the slots (1 at least). With records of at most a
//       quarter of the ring, a sender whose peer holds nothing can always send: padding and record
//       take less than a half, and three quarters are known to be free.
//
// Thread safety: none.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rkv/check.h"

namespace rkv::rdma::detail {

inline constexpr std::uint32_t kRecordHeader = 8;
inline constexpr std::uint32_t kRecordAlign = 8;
inline constexpr std::uint32_t kMaxRingBytes = 1U << 30;
inline constexpr std::uint32_t kMaxRecord = (1U << 24) - 1;  // what a doorbell can tell

constexpr std::uint32_t record_span(std::uint32_t length) {
  return (length + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

// The longest message that goes into a ring. `wanted` 0: as long as may be.
constexpr std::uint32_t longest_message(std::uint32_t ring_bytes, std::uint32_t wanted) {
  const std::uint32_t quarter = ring_bytes / 4;
  const std::uint32_t most = (quarter < kMaxRecord ? quarter : kMaxRecord) - kRecordHeader;
  return wanted == 0 || wanted > most ? most : wanted;
}

// What is free, as it is told: where the run of released records ends, and how many they were.
struct Freed {
  std::uint32_t position = 0;
  std::uint32_t count = 0;
  friend constexpr bool operator==(const Freed&, const Freed&) = default;
};

// What both sides have agreed on.
struct RingShape {
  std::uint32_t capacity = 0;    // bytes, a power of two
  std::uint32_t slots = 0;       // records, a power of two
  std::uint32_t max_record = 0;  // bytes with header; a quarter of the capacity, kMaxRecord at most
  bool sequenced = false;        // the form of a doorbell, below

  // Offsets in units of 8 bytes and lengths fit 16 bits each: nothing needs a sequence number.
  static constexpr bool needs_sequence(std::uint32_t capacity, std::uint32_t max_record) {
    return capacity / kRecordAlign > 0x1'0000 || max_record > 0xFFFF;
  }
};

// 32 bits of immediate data. Offset form: offset / 8 in the upper half, length in the lower.
// Sequence form, for large rings: the record's number modulo 256 in the upper 8 bits, length in the
// lower 24. The receiver knows the place in both; what is said besides catches a peer that lies.
constexpr std::uint32_t doorbell(const RingShape& shape, std::uint32_t offset,
                                 std::uint32_t sequence, std::uint32_t length) {
  if (shape.sequenced) return (sequence & 0xFF) << 24 | length;
  return (offset / kRecordAlign) << 16 | length;
}

// Where a record of `span` bytes goes when the next free position is `position`, and how much of
// the ring it takes with the padding before it.
struct Placing {
  std::uint32_t offset;
  std::uint32_t taken;
};
constexpr Placing place_at(const RingShape& shape, std::uint32_t position, std::uint32_t span) {
  const std::uint32_t offset = position & (shape.capacity - 1);
  const std::uint32_t straight = shape.capacity - offset;
  if (span <= straight) return {.offset = offset, .taken = span};
  return {.offset = 0, .taken = straight + span};
}

class RingSender {
 public:
  explicit RingSender(const RingShape& shape, std::uint32_t first_position = 0)
      : shape_(shape),
        sent_(first_position),
        reaped_(first_position),
        freed_{.position = first_position},
        ends_(shape.slots) {
    RKV_CHECK(std::has_single_bit(shape.capacity) && shape.capacity <= kMaxRingBytes &&
                  std::has_single_bit(shape.slots) && shape.max_record <= shape.capacity / 4 &&
                  shape.max_record <= kMaxRecord,
              "a ring that is no power of two, or too small for its records");
  }

  // The place for a record of `length` bytes with its header, or nothing when there is no room.
  std::optional<Placing> place(std::uint32_t length) const {
    RKV_CHECK(length > kRecordHeader && length <= shape_.max_record, "a record of no such length");
    if (records_ - freed_.count == shape_.slots || records_ - reaped_records_ == shape_.slots) {
      return std::nullopt;
    }
    const Placing placing = place_at(shape_, sent_, record_span(length));
    const std::uint32_t from_freed = sent_ - freed_.position;
    const std::uint32_t from_reaped = sent_ - reaped_;
    const std::uint32_t used = from_freed > from_reaped ? from_freed : from_reaped;
    if (placing.taken > shape_.capacity - used) return std::nullopt;
    return placing;
  }
  // The record was posted; gives the immediate data that was to go with it.
  std::uint32_t doorbell_of(const Placing& placing, std::uint32_t length) const {
    return doorbell(shape_, placing.offset, records_, length);
  }
  void sent(const Placing& placing) {
    sent_ += placing.taken;
    ends_[records_++ % shape_.slots] = sent_;
  }
  // The oldest WRITE that was not reaped has completed. REQUIRES: in_flight() != 0.
  void reaped() {
    RKV_CHECK(in_flight() != 0, "a completion of a record that was not sent");
    reaped_ = ends_[reaped_records_++ % shape_.slots];
  }
  // The peer says so. False: it cannot be true (R4). What is behind what we know is true and no
  // news: the answer of a READ may be older than what came with a record meanwhile.
  bool freed(const Freed& now) {
    if (static_cast<std::int32_t>(now.position - freed_.position) < 0) return true;
    const std::uint32_t more = now.position - freed_.position;
    const std::uint32_t records = now.count - freed_.count;
    if (more > sent_ - freed_.position || records > records_ - freed_.count) return false;
    freed_ = now;
    return true;
  }

  std::uint32_t in_flight() const { return records_ - reaped_records_; }
  const RingShape& shape() const { return shape_; }
  const Freed& known() const { return freed_; }

 private:
  RingShape shape_;
  std::uint32_t sent_;
  std::uint32_t reaped_;
  Freed freed_;
  std::uint32_t records_ = 0;
  std::uint32_t reaped_records_ = 0;
  std::vector<std::uint32_t> ends_;  // of records in flight, by number
};

class RingReceiver {
 public:
  struct Record {
    std::uint32_t offset = 0;  // of the header
    std::uint32_t length = 0;  // with the header
  };

  explicit RingReceiver(const RingShape& shape, std::uint32_t first_position = 0,
                        std::uint32_t first_index = 0)
      : shape_(shape),
        arrived_(first_position),
        freed_{.position = first_position},
        told_{.position = first_position},
        first_(first_index),
        next_(first_index),
        base_(first_index),
        records_(shape.slots) {}

  // A doorbell has rung: the index of its record, until release(). Nothing: it lies.
  std::optional<std::uint32_t> arrived(std::uint32_t immediate) {
    const std::uint32_t length = immediate & (shape_.sequenced ? 0xFF'FFFFU : 0xFFFFU);
    if (length <= kRecordHeader || length > shape_.max_record) return std::nullopt;
    if (next_ - first_ == shape_.slots) return std::nullopt;
    const Placing placing = place_at(shape_, arrived_, record_span(length));
    if (placing.taken > shape_.capacity - (arrived_ - freed_.position)) return std::nullopt;
    if (immediate != doorbell(shape_, placing.offset, next_ - base_, length)) return std::nullopt;
    arrived_ += placing.taken;
    slot(next_) = {.record = {.offset = placing.offset, .length = length},
                   .end = arrived_,
                   .place = Place::kWaiting};
    return next_++;
  }
  // The caller has it from now on.
  void lend(std::uint32_t index) { slot(index).place = Place::kLent; }
  bool is_lent(std::uint32_t index) const {
    return index - first_ < next_ - first_ && records_[index % shape_.slots].place == Place::kLent;
  }
  const Record& record(std::uint32_t index) const { return records_[index % shape_.slots].record; }
  // REQUIRES: is_lent(index).
  void release(std::uint32_t index) {
    slot(index).place = Place::kReleased;
    while (first_ != next_ && slot(first_).place == Place::kReleased) {
      freed_ = {.position = slot(first_).end, .count = freed_.count + 1};
      ++first_;
    }
  }

  const Freed& freed() const { return freed_; }
  std::uint32_t held() const { return next_ - first_; }
  // Whether so much is free and not told that the peer may be short of it (R5).
  bool must_tell() const {
    const std::uint32_t some = shape_.slots / 4 == 0 ? 1 : shape_.slots / 4;
    return freed_.position - told_.position >= shape_.capacity / 4 ||
           freed_.count - told_.count >= some;
  }
  void told() { told_ = freed_; }

 private:
  enum class Place : unsigned char { kWaiting, kLent, kReleased };
  struct Slot {
    Record record;
    std::uint32_t end = 0;
    Place place = Place::kWaiting;
  };
  Slot& slot(std::uint32_t index) { return records_[index % shape_.slots]; }

  RingShape shape_;
  std::uint32_t arrived_;
  Freed freed_;
  Freed told_;
  // Indexes of records, modulo 2^32: those from first_ up to next_ are not freed. The number of
  // slots is a power of two, so index % slots goes on in step when the index wraps around.
  std::uint32_t first_;
  std::uint32_t next_;
  std::uint32_t base_;
  std::vector<Slot> records_;
};

}  // namespace rkv::rdma::detail
