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
#include "rdma/transport.h"

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

// Why the server has ended a connection that might have gone on.
enum class DropReason : std::uint8_t {
  kCredits,     // more requests than its credits allow
  kMalformed,   // its message is no request
  kLong,        // where it says that a long request lies there is none
  kUnreadable,  // what it asks to have read is not memory that it lets be read
  kOverdue,     // its memory answers no READ, and others wait for the buffer
  kReplies,     // it does not take its replies
  kSilent,      // when all places were taken: Places
};
inline constexpr std::size_t kDropReasons = 7;
std::string_view name_of(DropReason reason);  // "credits", ...: a label, static
const char* sentence_of(DropReason reason);   // for a log line, static

// Why the server has not let a client in.
enum class RefusalReason : std::uint8_t {
  kMalformed,  // its data is no connection request
  kVersion,    // it speaks another version
  kStarting,   // the server is not ready yet
  kResuming,   // its last connection is still being ended
  kOffences,   // others from there were disconnected for what they did, too often (Offences)
  kFull,       // --max-clients
  kFailed,     // the connection could not be made, such as for want of the device's resources
};
inline constexpr std::size_t kRefusalReasons = 7;
std::string_view name_of(RefusalReason reason);  // "malformed", ...: a label, static

// What the worker's operations on a connection are, and what their completions can say but "done".
inline constexpr std::array<rdma::Completion::Kind, 3> kCompletionKinds = {
    rdma::Completion::Kind::kSend, rdma::Completion::Kind::kReceive, rdma::Completion::Kind::kRead};
inline constexpr std::array<rdma::Completion::Status, 3> kCompletionErrors = {
    rdma::Completion::Status::kRemoteAccess, rdma::Completion::Status::kFlushed,
    rdma::Completion::Status::kFailed};
std::string_view name_of(rdma::Completion::Kind kind);      // "send", "receive", "read": a label
std::string_view name_of(rdma::Completion::Status status);  // "remote_access", ...: a label

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
    kDropped,  // connections, for any DropReason
  };
  void add(Counter counter, std::uint64_t by = 1) { add_to(values_[counter], by); }
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
  // Of completions of this kind, those that had this status.
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
