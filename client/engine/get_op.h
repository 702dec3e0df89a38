// One GET from its start to its result: the steps after a READ, an answer, a wait or a lost
// connection, and the counting. A GetOp never waits. need() is the next action; a driver performs
// it, waiting in its own way, and reports the outcome. Getter drives one GetOp and blocks;
// GetPipeline drives many on one connection.
//
// Invariants:
//  GETOP-1  A GET changes nothing and is repeated until its deadline when the connection is lost.
//  GETOP-2  In a group a GET returns no value that a fail-over may take back. Nor does it return a
//      miss that READs have found: the server answers the miss when all that it has looked at is
//      replicated.
//  GETOP-4  A GET that asks for a durable value returns a value whose version a mark of this epoch
//      covers, or no value.
//
// Thread safety: none. Nothing allocates, apart from buffers of large values.
#pragma once

#include <optional>

#include "client/engine/session.h"
#include "client/get/get.h"
#include "rkv/values.h"

namespace rkv::client {

class GetOp {
 public:
  // Most requests for the place of a value that is rewritten all the time.
  static constexpr std::uint32_t kMaxAsked = 8;

  enum class Need : std::uint8_t {
    kConnection,   // have a usable session, in a group one that is believed, then start()
    kReads,        // perform reads() and wait until all have landed, then on_reads()
    kLargeBuffer,  // take_large_buffer(); if none is free: again later, or ask_server()
    kValueBuffer,  // take_value_buffer(), or give_value_buffer()
    kMap,          // refresh stale_map(), with nothing else on the link; then on_map()
    kRequest,      // send request(), then on_sent() if it stays under way
    kReply,        // then on_reply(), on_refused() or on_later()
    kReplicated,   // in a group: await version() there, then on_replicated()
    kMark,         // learn the marks, then on_marks(); or on_no_mark()
    kNothing,      // result(), then release()
  };
  static constexpr std::size_t kNeeds = static_cast<std::size_t>(Need::kNothing) + 1;

  // While the GET runs, nothing else uses `memory`. The arguments must outlive the operation.
  GetOp(Session& session, GetMemory& memory)
      : session_(&session),
        memory_(&memory),
        machine_(session.map, session.groups, session.slots, session.clock) {}

  // Begins the GET of a key. The key's bytes must stay valid until the result.
  void begin(Bytes key, Durability at_least);
  // Starts the READs, from the beginning if the connection was lost (GETOP-1). REQUIRES: the
  // session is usable.
  void start();

  GetMemory& memory() const { return *memory_; }
  Need need() const { return need_; }
  std::span<const ReadRequest> reads() const { return machine_.reads(); }
  void on_reads() { follow(machine_.step()); }

  // Returns false if operations hold all large buffers.
  bool take_large_buffer();
  std::size_t value_bytes() const { return machine_.value_bytes(); }
  // Takes a buffer of the client's own memory. kBusy: other operations hold all of it.
  Status take_value_buffer();
  // Gives the GET registered memory of the caller, of at least value_bytes().
  void give_value_buffer(MutableBytes buffer, std::uint32_t local_key);
  GetMachine::Next stale_map() const { return stale_map_; }
  // The map was refreshed, or that failed: kBusy if the bytes did not verify for some milliseconds.
  void on_map(const Status& refreshed);
  // Asks the server instead of waiting for a large buffer (kLargeBuffer) or the map (kMap).
  void ask_server() { follow(machine_.ask_server()); }

  // Returns the request, which carries the reports of READs. Call reported() when it is on its way.
  Request request() {
    return {.opcode = Opcode::kGet, .key = key_, .value = session_->reports.next()};
  }
  void reported() { session_->reports.sent(); }
  void on_sent() { need_ = Need::kReply; }
  // Takes the answer, whose code is 0. Keeps it if it holds the value.
  void on_reply(Reply reply);
  void on_refused(const Error& error);
  // Takes an answer that means: send the request again later.
  void on_later() { need_ = Need::kRequest; }
  bool keeps_reply() const { return reply_.has_value(); }

  // The version of the value found.
  Version version() const { return {result_ ? result_->version : 0}; }
  // Call it when the replicated mark known to the session may have risen.
  void on_replicated() { found(); }
  Durability at_least() const { return at_least_; }
  // Call it when the marks known to the session may have risen. `seen`: they are the server's
  // present marks.
  void on_marks(bool seen);
  // The marks did not cover the version in time.
  void on_no_mark();

  // The connection was lost.
  void on_lost() {
    count_reads();
    need_ = Need::kConnection;
  }
  // An action failed. kDisconnected: the connection was lost. Other errors end the GET.
  void on_error(const Error& error);
  // Ends the GET with this error.
  void end_with(const Error& error);

  // The result and the bytes of its value are valid until release(). The bytes lie in the GET's
  // memory, in a large buffer or in the answer.
  const Result<ValueView>& result() const { return result_; }
  // Gives large buffers and the answer back.
  void release() {
    if (!large_.empty() || value_ != nullptr || reply_) give_back();
  }

 private:
  void follow(GetMachine::Next next);
  void found();
  void count_reads();
  void give_back();

  Session* session_;
  GetMemory* memory_;
  GetMachine machine_;
  Bytes key_;
  MutableBytes large_;
  LargeBuffers::Buffer* value_ = nullptr;  // the client's own buffer of a large value
  std::uint32_t asked_ = 0;                // how often the server was asked for this key
  Durability at_least_ = Durability::kMemory;
  Need need_ = Need::kNothing;
  GetMachine::Next stale_map_ = GetMachine::Next::kRefreshExtents;
  Result<ValueView> result_;
  std::optional<Reply> reply_;  // holds the bytes of the value, or is empty
};

}  // namespace rkv::client
