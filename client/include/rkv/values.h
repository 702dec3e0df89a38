// The arguments and results of the operations of a Client or Cluster.
//
// Thread safety: values, apart from OneSidedCounter.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "rkv/durability.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv {

struct Value;
struct ValueView;
namespace client {
class CounterOps;
}  // namespace client
// As to_value(), but lack of memory is kOutOfMemory.
RKV_EXPORT Result<Value> try_to_value(const ValueView& view);

// Returns true if the error is an answer and not a failure of the operation: the key is absent, the
// condition did not hold, the key is of the other kind, or the sum would pass the limits.
constexpr bool is_answer(Code code) {
  return code == Code::kNotFound || code == Code::kConflict || code == Code::kWrongType ||
         code == Code::kOutOfRange;
}

struct Value {
  std::string value;
  std::uint64_t version = 0;  // later versions are greater, also across restarts of the server
  std::uint64_t expires_at_ms = 0;  // Unix milliseconds by the server's clock; 0 = never expires
  bool is_counter = false;          // `value` is the counter's number: 8 bytes, little-endian
  // Durability of this version as far as the client knows; the real durability may be higher by
  // now. kMemory: nothing is known.
  Durability durability = Durability::kMemory;
};
// A view of a value; valid inside the visitor that receives it.
struct ValueView {
  std::string_view value;
  std::uint64_t version = 0;
  std::uint64_t expires_at_ms = 0;
  bool is_counter = false;
  Durability durability = Durability::kMemory;
};
// Copies the value.
inline Value to_value(const ValueView& view) {
  return {.value = std::string(view.value),
          .version = view.version,
          .expires_at_ms = view.expires_at_ms,
          .is_counter = view.is_counter,
          .durability = view.durability};
}
struct ValueSize {
  std::size_t bytes = 0;
  std::uint64_t version = 0;
  Durability durability = Durability::kMemory;
};
struct Counter {
  std::int64_t number = 0;
  std::uint64_t version = 0;
  Durability durability = Durability::kMemory;
};
struct CounterSwap {
  bool done = false;        // the number was `expected`, and is now `desired`
  std::int64_t number = 0;  // the current number
  std::uint64_t version = 0;
};
// A counter that clients change by RDMA atomics; the server's processor takes no part. Created by
// open_counter(), for clients of the same server. One client at a time may use the object. A client
// of another server that is given it looks up the key there, and opens the counter as after a
// restart of the server: incr() and decr() create it with 0 if it is absent. So they change another
// counter of the same name, and nobody notices.
//
// It promises less than a counter that is changed by requests:
//  - Durability: a change reaches the server's log within some 100 ms, not before it is answered. A
//    crash of the server loses changes that are not in the log. A flush() and an orderly stop save
//    them.
//  - Unknown outcomes: when the connection is lost during a change, nothing records whether the
//    change was done. It fails with kMayHaveHappened and is not repeated.
//  - Range: beyond +-2^60 the server takes the counter back, and its changes are requests again.
//  - Versions do not tell its changes apart: every result, of GETs too, has version 0.
// It is as linearizable as other counters, except across crashes. Requests (incr(key) and the rest)
// may change the counter at the same time; these changes are then no safer than the atomic ones.
class OneSidedCounter {
 public:
  const std::string& key() const { return key_; }
  // Returns true if the last operation used the counter's cell, or the next one will. False: the
  // server had no cell to give (all are taken, the device has no atomics, or clients over another
  // network use the cell). Changes are then requests, and the client asks the server again a second
  // later, unless the server has no cells for this network at all.
  bool is_one_sided() const { return word_ != 0; }

 private:
  friend class client::CounterOps;
  explicit OneSidedCounter(std::string key) : key_(std::move(key)) {}
  std::string key_;
  std::uint64_t epoch_ = 0;
  std::uint64_t word_ = 0;         // the cell's address; 0 = no cell
  std::int64_t ask_again_at_ = 0;  // if there is no cell: when to ask again, by the client's clock
};
struct CounterAddition {
  OneSidedCounter* counter = nullptr;
  std::int64_t summand = 1;
};

struct KeyValue {
  std::string_view key;
  std::string_view value;
  // As in PutOptions: at most one of the two.
  std::uint64_t expires_at_ms = 0;
  std::chrono::milliseconds ttl{0};
};

}  // namespace rkv
