// Packs: many small operations in one request, and their results in one answer. WIRE.md has every
// byte. An operation of a pack is a Request without sequence, durability and begin_by_us, which the
// pack has for all of them. A result is a Response without opcode, sequence and marks.
//
// Invariants:
//  PACK-1  Nothing of a pack is executed before all of it was read: count and lengths add up, so
//          each operation is where the client has put it.
//  PACK-2  An answer has one result for each operation, in the same order.
//
// Thread safety: values; each object has one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/wire.h"

namespace rkv {

inline constexpr std::size_t kMaxPacked = 32;
// The longest value of a get in a pack. A longer value needs a request of its own.
inline constexpr std::size_t kLongestPackedValue = 4096;
// Header lengths of the pack, of each operation, and of each result in it, without their optional
// fields.
inline constexpr std::size_t kPackHeaderBytes = 4;
inline constexpr std::size_t kPackedHeaderBytes = 8;
inline constexpr std::size_t kPackedResultBytes = 24;

// Whether a pack may carry this operation.
constexpr bool is_packable(Opcode opcode) {
  return traits_of(opcode).packable;
}

// Writes the value of a pack.
class PackWriter {
 public:
  // REQUIRES: `out` has kPackHeaderBytes or more, and outlives the writer.
  explicit PackWriter(MutableBytes out) : out_(out) {}
  // Bytes that the operation takes in a pack.
  static std::size_t bytes_of(const Request& request) {
    return kPackedHeaderBytes + (request.condition == Condition::kIfVersion ? 8U : 0U) +
           (request.ttl_ms != 0 ? 8U : 0U) + request.key.size() + request.value.size();
  }
  bool has_room(const Request& request) const {
    return count_ < kMaxPacked && bytes_of(request) <= out_.size() - bytes_;
  }
  // REQUIRES: is_packable(request.opcode), has_room(request).
  void add(const Request& request);
  std::size_t count() const { return count_; }
  // The whole pack.
  Bytes finish();

 private:
  MutableBytes out_;
  std::size_t bytes_ = kPackHeaderBytes;
  std::size_t count_ = 0;
};

// Reads the value of a pack that comes from a peer.
class PackReader {
 public:
  explicit PackReader(Bytes value) : value_(value) {}
  // Checks count and lengths of the whole pack (PACK-1). kInvalidArgument. Call it first.
  Status check() const;
  // Number of operations. REQUIRES: check().
  std::size_t count() const { return load_le<std::uint16_t>(value_.data()); }
  // The operations in turn; nothing after the last. The spans point into the value. What an
  // operation says is not checked (check_operation). REQUIRES: check().
  std::optional<Request> next();

 private:
  // The length of the operation at `from`; nothing if it is longer than the pack.
  std::optional<std::size_t> length_at(std::size_t from) const;

  Bytes value_;
  std::size_t at_ = kPackHeaderBytes;
};

// Bytes of the shortest result that tells what has become of an operation.
constexpr std::size_t least_result_bytes(Opcode opcode) {
  const bool has_number = opcode == Opcode::kAdd || opcode == Opcode::kSwap;
  return kPackedResultBytes + (has_number ? kCounterBytes : 0);
}
// The longest outcome of a pack: a result of each write, without sentences.
inline constexpr std::size_t kMostOutcomeBytes = kMaxPacked * (kPackedResultBytes + kCounterBytes);
// Writes the outcome of a pack, as a client that has lost its answer gets it, from the results in
// that answer. A get counts as not begun. `operations`: of the pack. REQUIRES: `out` has
// kMostOutcomeBytes, `results` are of these operations.
Bytes outcome_of_pack(std::span<const Request> operations, Bytes results, MutableBytes out);

// Returns the longest value that the answer to this pack may have. The server executes the pack
// only if it has room for so many bytes. `message` is a whole request of opcode kPack that comes
// from a peer.
std::size_t pack_reply_bytes(Bytes message);

// Writes the value of a pack's answer.
class ResultWriter {
 public:
  explicit ResultWriter(MutableBytes out) : out_(out) {}
  // Writes a result and leaves `reserve` bytes for the results that follow. If a GET's value does
  // not fit, it writes refused_alone(). If a refusal's sentence does not fit, it is left out.
  // REQUIRES: room for least_result_bytes() and the reserve.
  void add(const Response& result, std::size_t reserve);
  Bytes finish() const { return out_.first(bytes_); }

  // The result of an operation that was not begun, because the server cannot do it in a pack.
  static Response refused_alone(Opcode opcode);

 private:
  MutableBytes out_;
  std::size_t bytes_ = 0;
};

// Reads the results of a pack from a server's answer.
class ResultReader {
 public:
  explicit ResultReader(Bytes value) : value_(value) {}
  // The next result, for an operation of this opcode. kCorrupt. The value is a span of the answer.
  Result<Response> next(Opcode opcode);
  // Whether every byte has been read (PACK-2).
  bool at_end() const { return value_.empty(); }

 private:
  Bytes value_;
};

}  // namespace rkv
