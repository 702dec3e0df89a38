// Requests and their answers, one at a time.
//
// Invariants:
//  ENG-1  A write request that was sent and lost its answer with the connection is not repeated
//      before the server has said that it was not applied (ASK-1). Without such an answer, it may
//      have happened and is reported so. A GET changes nothing and is repeated until its deadline.
//  ENG-3  Every operation ends by its deadline. Everything it posted is then completed, or its link
//      is closed (LINK-1).
//  ENG-5  A flush or backup makes a promise about every write acknowledged to this client. It is
//      sent only if each of these writes is known to be on disk, or was acknowledged in the
//      server's present epoch. Otherwise the call fails with kStale (ACK-2).
//
// Thread safety: none. Every call blocks until its deadline at most.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "client/engine/connector.h"
#include "client/engine/outcome_finder.h"
#include "client/engine/session.h"
#include "rkv/operations.h"

namespace rkv::client {

// The source of a large put, in registered memory. `encoded` is the request's value.
struct LargeSource {
  Bytes value;
  std::uint32_t remote_key = 0;
  std::uint64_t epoch = 0;  // the epoch that the digest in `encoded` was computed for
  std::array<std::byte, kValueSourceBytes> encoded{};
  void describe(Bytes key, std::uint64_t epoch);
};

class Requester {
 public:
  // The arguments must outlive the requester.
  Requester(Session& session, Connector& connector);

  // Sends a request; repeats it until the deadline while the answer means "later", and when the
  // connection is lost. Returns the answer with code 0, or the error.
  Result<Reply> ask(const Request& request, const Deadline& deadline);
  // Like ask(), but a request that may have been carried out is not sent again. A write whose
  // answer was lost gets its original answer, or is sent again if it was not applied.
  Result<Reply> ask_once(const Request& request, const Deadline& deadline);
  // Like ask_once(), but sent over the present connection only, for a request that was made for its
  // limits. kDisconnected with kNotApplied: the connection was lost, and the request was not
  // carried out.
  Result<Reply> ask_here(const Request& request, const Deadline& deadline);
  // Sends a write of one key and returns the answer. The request is complete except for its
  // time-out. `remote_key`: key of the registered memory that the value lies in; 0: the value is
  // not in registered memory, and is copied.
  Result<Reply> write(const Request& request, const Deadline& deadline,
                      std::uint32_t remote_key = 0);

  OutcomeFinder& outcomes() { return outcomes_; }

  // ---- for pipelined operations, which send their requests themselves.

  // Converts a response with an error code into an Error.
  Error refused(const Response& response);
  // Returns true if the same request may get another answer soon.
  static bool is_later(Opcode opcode, Code code) {
    return code == Code::kBusy || (opcode == Opcode::kGet && code == Code::kOutOfMemory);
  }
  // Whether a pipelined write that was refused is sent again, as in ask_once().
  static bool is_put_off(const Error& error, const Deadline& deadline) {
    if (error.write == WriteOutcome::kMayHaveHappened) return false;
    return error.code == Code::kBusy || (error.code == Code::kTimeout && !deadline.passed());
  }
  // Counts an answer that means "later". Returns how long to wait before the next request.
  Nanos busy_wait(const Response& response);
  // Like busy_wait(), and waits. Returns false, without waiting, if the deadline is too near.
  bool wait_busy(const Response& response, const Deadline& deadline);
  void reset_busy_wait() { busy_backoff_.reset(); }
  // Records an acknowledged write; `asked` is the durability that the request asked for.
  void note_write(const Response& response, Durability asked);
  // Records a write with this version that asked for no durability.
  void note_write(Version version);

 private:
  // Which requests are sent over another connection when one is lost: all, those that were not
  // sent, or none.
  enum class AfterLoss : std::uint8_t { kRepeat, kRepeatUnsent, kFail };
  Result<Reply> ask_until_taken(Request request, AfterLoss after_loss, const Deadline& deadline,
                                LargeSource* source = nullptr);
  // Sends the request once. nullopt: the connection was lost, and the request may be sent again.
  std::optional<Result<Reply>> call(const Request& request, AfterLoss after_loss,
                                    const Deadline& deadline);
  Result<Reply> write_large(Request request, const Deadline& deadline, std::uint32_t remote_key);
  // Returns when to send again after waiting `wait`. If that passes the deadline, there is one last
  // try shortly before the deadline. nullopt: the deadline is too near.
  std::optional<Nanos> again_at(Nanos wait, const Deadline& deadline) const;

  Session& session_;
  Connector& connector_;
  OutcomeFinder outcomes_;
  Backoff busy_backoff_;
};

// Returns the request of a put. kInvalidArgument: the options contradict each other.
Result<Request> put_request(std::string_view key, std::string_view value,
                            const PutOptions& options);
Status check_key(Bytes key);
Status check_value(Bytes value);
// kInvalidArgument: the number is not a level.
Status check_durability(Durability level);

}  // namespace rkv::client
