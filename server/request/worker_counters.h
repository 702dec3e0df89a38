// Counters of a worker. Each worker has its own and writes them on the hot path; readers sum them.
//
// Thread safety: one writer, any readers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "common/wire.h"
#include "rdma/transport/transport.h"

namespace rkv::server {

// The status of an answer as a small number: 0 is "ok", the others stand for a Code.
inline constexpr std::size_t kStatuses = 24;
std::size_t status_index(std::uint8_t code);
// "ok", "not_found", ...: a static label.
std::string_view status_name(std::size_t index);
// Number of operation indices. An operation's index is its opcode, from 1 on; its label
// is the opcode's name.
inline constexpr std::size_t kOperations = static_cast<std::size_t>(kLastOpcode) + 1;

// Why the server has disconnected a client that was still connected.
enum class DropReason : std::uint8_t {
  kCredits,     // sent more requests than its credits allow
  kMalformed,   // sent a message that is not a request
  kLong,        // announced a long request that is not there
  kUnreadable,  // named memory that it does not let the server READ
  kOverdue,     // its memory answers READs slowly or not at all, while other requests wait for the
                // room
  kReplies,     // does not take its replies
  kSilent,      // lost its place to a newcomer while all places were taken (Places)
  kRevoked,     // its user is not among the server's users any more, or has changed
};
inline constexpr std::size_t kDropReasons = 8;
// Whether the reason counts as misbehaviour (Offences).
constexpr bool is_offence(DropReason reason) {
  return reason != DropReason::kSilent && reason != DropReason::kRevoked;
}
std::string_view name_of(DropReason reason);  // "credits", ...: a static label
const char* sentence_of(DropReason reason);   // for a log line, static

// The worker's operations on a connection, and the errors that their completions may have.
inline constexpr std::array<rdma::Completion::Kind, 3> kCompletionKinds = {
    rdma::Completion::Kind::kSend, rdma::Completion::Kind::kReceive, rdma::Completion::Kind::kRead};
inline constexpr std::array<rdma::Completion::Status, 3> kCompletionErrors = {
    rdma::Completion::Status::kRemoteAccess, rdma::Completion::Status::kFlushed,
    rdma::Completion::Status::kFailed};
std::string_view name_of(rdma::Completion::Kind kind);      // "send", "receive", "read": a label
std::string_view name_of(rdma::Completion::Status status);  // "remote_access", ...: a label

// Adds to a value that only one thread writes: a plain load and store, no atomic operation.
inline void add_to(std::atomic<std::uint64_t>& value, std::uint64_t by) {
  value.store(value.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// Cache-line aligned, so that other threads' writes nearby do not slow down its writer.
class alignas(64) WorkerCounters {
 public:
  enum Counter : std::uint8_t {
    kWalWrites,     // puts, counts, removes answered when in the write-ahead log
    kSyncWrites,    // puts, counts, removes answered when synced
    kMalformed,     // messages that are not requests
    kDeferred,      // requests that waited for a buffer, for the reply or to be READ into
    kLongRequests,  // requests READ from the client's memory, not SENT
    kAccepted,      // connections
    kEnded,         // connections ended, for any reason
    kTurns,         // turns of the worker's loop
    kReceived,      // requests taken from the receive queue
    kAbandoned,     // received requests whose client disconnected before they were answered
    kGranted,       // credits granted to all clients so far
    kReturned,      // granted credits of clients that have disconnected
    kPacked,        // operations in answered packs; answers() has each besides its pack
    kStored,
    // From here on: sums over answers().
    kPuts = kStored,
    kTouches,
    kCounts,   // operations on counters
    kRemoves,  // of keys that existed
    kGets,     // two-sided, found or not found
    kPings,
    kFlushes,
    kBackups,
    kScanPages,
    kOutcomesAsked,    // questions about writes whose answers were lost
    kOutcomesApplied,  // of these, about writes that had been applied
    kOutcomesUnknown,  // of these, about sessions that the server does not know
    kRefused,          // answered with an error other than "not found"
    kDropped,          // connections, for any DropReason
  };
  void add(Counter counter, std::uint64_t by = 1) { add_to(values_[counter], by); }
  // REQUIRES: opcode <= kLastOpcode.
  void answered(Opcode opcode, std::uint8_t code) {
    add_to(answers_[static_cast<std::size_t>(opcode)][status_index(code)], 1);
  }
  void dropped(DropReason reason) { add_to(drops_[static_cast<std::size_t>(reason)], 1); }
  void failed(rdma::Completion::Kind kind, rdma::Completion::Status status) {
    add_to(failures_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(status)], 1);
  }
  std::uint64_t get(Counter counter) const;
  std::uint64_t drops(DropReason reason) const {
    return drops_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }
  // The completions of this kind that had this status.
  std::uint64_t failures(rdma::Completion::Kind kind, rdma::Completion::Status status) const {
    return failures_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(status)].load(
        std::memory_order_relaxed);
  }
  std::uint64_t answers(Opcode opcode, std::size_t status) const {
    return answers_[static_cast<std::size_t>(opcode)][status].load(std::memory_order_relaxed);
  }

 private:
  using Value = std::atomic<std::uint64_t>;
  std::uint64_t done(Opcode opcode) const { return answers(opcode, 0); }
  std::uint64_t refused() const;
  std::uint64_t all_drops() const;

  std::array<Value, kStored> values_{};
  std::array<Value, kDropReasons> drops_{};
  static constexpr std::size_t kKinds =
      static_cast<std::size_t>(rdma::Completion::Kind::kDisconnected) + 1;
  static constexpr std::size_t kOutcomes =
      static_cast<std::size_t>(rdma::Completion::Status::kFailed) + 1;
  std::array<std::array<Value, kOutcomes>, kKinds> failures_{};
  std::array<std::array<Value, kStatuses>, kOperations> answers_{};
};

}  // namespace rkv::server
