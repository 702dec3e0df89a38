// The arithmetic of a ring in a peer's memory: the places of records, the contents of doorbells,
// and the free space. It uses no verbs, so that tests can compare it with a model
// (tests/rdma/extras/message/ring_test.cc).
//
// A record is a header of 8 bytes and a message, rounded up to 8 bytes. A record never wraps
// around: if it does not fit before the end of the ring it starts at the beginning, and the rest is
// padding. Both sides compute the padding from the length alone, so it is never transmitted.
// Positions count bytes since the start of the connection, padding included, modulo 2^32. The ring
// is at most 2^30 bytes, so a difference of positions is never ambiguous.
//
// Invariants:
//   RING-1  A place is reused only when the peer has freed it and the completion of the WRITE into
//       it is reaped. The first protects the peer's reader, the second the source bytes, which the
//       device may send again.
//   RING-2  At most `slots` records are sent and not freed, and at most `slots` WRITEs are not
//       reaped.
//   RING-3  The receiver frees up to a position: the end of the last record of an unbroken run of
//       released records. A count would be wrong after a release out of order.
//   RING-4  An impossible doorbell or credit of the peer is refused and changes nothing.
//   RING-5  The receiver reports in time: the freed and unreported space is less than a quarter of
//       the ring and less than a quarter of the slots (at least 1). With records of at most a
//       quarter of the ring, a sender whose peer holds nothing can always send: padding and record
//       take less than half of the ring, and three quarters are known to be free.
//
// Thread safety: none.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "rkv/check.h"

namespace rkv::rdma::detail {

inline constexpr std::uint32_t kRecordHeader = 8;
inline constexpr std::uint32_t kRecordAlign = 8;
inline constexpr std::uint32_t kMaxRingBytes = 1U << 30;
inline constexpr std::uint32_t kMaxRecord = (1U << 24) - 1;  // the longest length that a doorbell
                                                             // can state

constexpr std::uint32_t record_span(std::uint32_t length) {
  return (length + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

// The longest message that fits a ring. `wanted` 0: the longest possible.
constexpr std::uint32_t longest_message(std::uint32_t ring_bytes, std::uint32_t wanted) {
  const std::uint32_t quarter = ring_bytes / 4;
  const std::uint32_t most = (quarter < kMaxRecord ? quarter : kMaxRecord) - kRecordHeader;
  return wanted == 0 || wanted > most ? most : wanted;
}

// Freed space as reported: the end of the run of released records, and the number of records in it.
struct Freed {
  std::uint32_t position = 0;
  std::uint32_t count = 0;
  friend constexpr bool operator==(const Freed&, const Freed&) = default;
};

// The values that both sides agreed on.
struct RingShape {
  std::uint32_t capacity = 0;    // bytes, a power of two
  std::uint32_t slots = 0;       // records, a power of two
  std::uint32_t max_record = 0;  // bytes with header; at most capacity / 4 and kMaxRecord
  bool sequenced = false;        // the form of the doorbells, see below

  // False if offsets in units of 8 bytes and lengths fit 16 bits each: then the offset form is
  // enough.
  static constexpr bool needs_sequence(std::uint32_t capacity, std::uint32_t max_record) {
    return capacity / kRecordAlign > 0x1'0000 || max_record > 0xFFFF;
  }
};

// 32 bits of immediate data. Offset form: offset / 8 in the upper half, length in the lower half.
// Sequence form, for large rings: the record's number modulo 256 in the upper 8 bits, length in the
// lower 24 bits. In both forms the receiver already knows the place; the other bits detect a peer
// that sends wrong doorbells.
constexpr std::uint32_t doorbell(const RingShape& shape, std::uint32_t offset,
                                 std::uint32_t sequence, std::uint32_t length) {
  if (shape.sequenced) return (sequence & 0xFF) << 24 | length;
  return (offset / kRecordAlign) << 16 | length;
}

// The place of a record of `span` bytes if `position` is the next free one. `taken` are the bytes
// of the ring that the record uses, padding included.
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
              "the ring's size is not a power of two, or too small for its records");
  }

  // The place for a record of `length` bytes, header included; empty if there is no space.
  std::optional<Placing> place(std::uint32_t length) const {
    RKV_CHECK(length > kRecordHeader && length <= shape_.max_record,
              "the length of the record is invalid");
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
  // The immediate data for the record; call it before sent().
  std::uint32_t doorbell_of(const Placing& placing, std::uint32_t length) const {
    return doorbell(shape_, placing.offset, records_, length);
  }
  void sent(const Placing& placing) {
    sent_ += placing.taken;
    ends_[records_++ % shape_.slots] = sent_;
  }
  // Call when the oldest WRITE that was not reaped has completed. REQUIRES: in_flight() != 0.
  void reaped() {
    RKV_CHECK(in_flight() != 0, "the completed record was not sent");
    reaped_ = ends_[reaped_records_++ % shape_.slots];
  }
  // Takes a report of the peer. Returns false if it is impossible (RING-4). Reports arrive in the
  // order in which they were sent. One that is behind the known one frees nothing, and is ignored.
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
        announced_{.position = first_position},
        first_(first_index),
        next_(first_index),
        base_(first_index),
        records_(shape.slots) {}

  // Takes a doorbell. Returns its record's index, valid until release(); empty: an impossible
  // doorbell.
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
  // The record is lent to the caller.
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
  // True if the freed and unreported space is so large that the peer may run out of space (RING-5).
  bool must_tell() const {
    const std::uint32_t some = shape_.slots / 4 == 0 ? 1 : shape_.slots / 4;
    return freed_.position - announced_.position >= shape_.capacity / 4 ||
           freed_.count - announced_.count >= some;
  }
  void announced() { announced_ = freed_; }

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
  Freed announced_;
  // Indexes of records, modulo 2^32: records from first_ up to next_ are not freed. The number of
  // slots is a power of two, so index % slots stays continuous when the index wraps around.
  std::uint32_t first_;
  std::uint32_t next_;
  std::uint32_t base_;
  std::vector<Slot> records_;
};

}  // namespace rkv::rdma::detail
