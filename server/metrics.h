// What a worker counts, and how long its requests took. Hot-path numbers belong to one worker each
// and are summed when somebody asks.
//
// Thread safety: one writer, any readers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "common/wire.h"

namespace rkv::server {

// What a request was answered with, as a small number: 0 is "ok", the others stand for a Code.
inline constexpr std::size_t kStatuses = 23;
std::size_t status_index(std::uint8_t code);
// "ok", "not_found", ...: a label, static.
std::string_view status_name(std::size_t index);
// Requests by their opcode, from 1 on.
inline constexpr std::size_t kOperations = static_cast<std::size_t>(kLastOpcode) + 1;
// "get", "put_large", ...: a label, static.
std::string_view operation_name(Opcode opcode);

// For what one thread alone writes: a plain load and store, nothing atomic has to be paid for.
inline void add_to(std::atomic<std::uint64_t>& value, std::uint64_t by) {
  value.store(value.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// On a line of its own: the neighbours' writes cost it nothing.
class alignas(64) WorkerCounters {
 public:
  enum Counter : std::uint8_t {
    kWalWrites,     // of puts, counts and removes, answered when they were in the write-ahead log
    kSyncWrites,    // or synced
    kMalformed,     // bytes that are no request
    kDeferred,      // had to wait for a buffer: to answer from, or to be READ into
    kLongRequests,  // READ from the client's memory, not SENT
    kAccepted,      // connections
    kDropped,       // connections ended for breaking the protocol
    kEnded,         // connections, for whatever reason
    kTurns,         // of the worker's loop
    kReceived,      // requests taken from the receive queue
    kAbandoned,     // of those, whose client went before they were answered
    kGranted,       // credits, of all clients so far
    kReturned,      // of those, of clients that have gone
    kStored,
    // Sums of answers().
    kPuts = kStored,
    kCounts,   // operations on counters
    kRemoves,  // of keys that were there
    kGets,     // two-sided, found or not
    kPings,
    kFlushes,
    kBackups,
    kScanPages,
    kRefused,  // answered with an error other than "not found"
  };
  void add(Counter counter, std::uint64_t by = 1) { add_to(values_[counter], by); }
  void answered(Opcode opcode, std::uint8_t code) {
    add_to(answers_[static_cast<std::size_t>(opcode)][status_index(code)], 1);
  }
  std::uint64_t get(Counter counter) const;
  std::uint64_t answers(Opcode opcode, std::size_t status) const {
    return answers_[static_cast<std::size_t>(opcode)][status].load(std::memory_order_relaxed);
  }

 private:
  using Value = std::atomic<std::uint64_t>;
  std::uint64_t done(Opcode opcode) const { return answers(opcode, 0); }
  std::uint64_t refused() const;

  std::array<Value, kStored> values_{};
  std::array<std::array<Value, kStatuses>, kOperations> answers_{};
};

}  // namespace rkv::server
