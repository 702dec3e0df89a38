// What rkv::Client is made of: the link, the map, the cache, the GETs in flight, and the rules of
// retrying. client.cc puts the public face on it.
//
// Invariants:
//  E1  A request that left and was not answered is a write that may have happened: it is reported,
//      never repeated. A GET, which changes nothing, is repeated until its deadline.
//  E2  Map and cache belong to one epoch; another epoch empties both before anything is read.
//  E3  Every operation ends by its deadline, with everything it posted completed or its link
//      closed (K1).
//
// Thread safety: none. After create() nothing allocates but what returns text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/arena.h"
#include "client/get.h"
#include "client/link.h"
#include "client/map_loader.h"
#include "client/retry_policy.h"
#include "rkv/client.h"

namespace rkv::client {

class Engine {
 public:
  using GetVisitor = void (*)(void* target, std::size_t index, const Result<ValueView>& result);
  using PutVisitor = void (*)(void* target, std::size_t index,
                              const Result<std::uint64_t>& version);

  static Result<std::unique_ptr<Engine>> create(const ClientOptions& options,
                                                std::shared_ptr<rdma::Transport> transport,
                                                const Clock* clock, std::string* refusal);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Deadline deadline(std::chrono::milliseconds timeout) const {
    return Deadline::after_ms(*clock_, (timeout.count() > 0 ? timeout : options_.timeout).count());
  }

  // A value read by get(): the bytes lie in the engine until its next operation, or in the reply.
  struct Got {
    Bytes value;
    Version version;
    std::uint64_t expiry_ms = 0;
    bool counter = false;
    std::optional<Reply> reply = std::nullopt;
    ValueView view() const;
  };
  Result<Got> get(Bytes key, const Deadline& deadline);
  // kPut, kRemove, kAdd, kSwap, with everything but their time-out: the answer to keep or to read.
  Result<Reply> write(const Request& request, const Deadline& deadline);
  // kPing, kFlush, kStats: repeated when the connection is lost.
  Result<Reply> ask(const Request& request, const Deadline& deadline);
  void multi_get(std::span<const std::string_view> keys, const Deadline& deadline, GetVisitor visit,
                 void* target);
  void multi_put(std::span<const KeyValue> items, const Deadline& deadline, PutVisitor visit,
                 void* target);

  ClientStats stats() const;
  const std::string& last_refusal() const { return refusal_; }
  const std::string& description() const { return description_; }
  void set_description(std::string text) { description_ = std::move(text); }

 private:
  friend class MultiGet;
  friend class MultiPut;

  // One GET in flight.
  struct Lane {
    enum class State : std::uint8_t {
      kFree,
      kReading,
      kNeedsBuffer,
      kNeedsMap,
      kNeedsRequest,
      kAwaitsReply,
    };
    Lane(RemoteMap& map, GroupCache& cache, const Clock& clock) : machine(map, cache, clock) {}
    GetMachine machine;
    MutableBytes large;
    State state = State::kFree;
    GetMachine::Next next = GetMachine::Next::kMissing;
    std::uint32_t pending = 0;  // READs posted and not landed
    std::size_t index = 0;      // of the key
  };

  // One PUT in flight, or refused for now and to be sent again.
  struct PutSlot {
    enum class State : std::uint8_t { kFree, kSent, kAgain };
    State state = State::kFree;
    std::size_t index = 0;  // of the item
  };

  Engine(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
         const Clock* clock, Arena arena);

  // ---- connection
  bool usable() const { return link_.alive() && map_.ready(); }
  // Reconnects with back-off until the deadline.
  Status make_usable(const Deadline& deadline);
  Status attempt(const Deadline& deadline);
  bool worth_repeating(const Error& error) const;
  // Notices, without waiting, that the connection has gone: before a write leaves.
  void look_at_link();
  Status refresh_map(GetMachine::Next what, const Deadline& deadline);

  // ---- GET
  // Runs a machine on lane 0 until it has finished.
  Result<GetMachine::Next> run(Lane& lane, GetMachine::Next next, const Deadline& deadline);
  void account(const GetMachine& machine);
  void free_large(Lane& lane);
  Result<Got> get_two_sided(Bytes key, const Deadline& deadline);

  // ---- requests
  Request request(Opcode opcode, const Deadline& deadline) const;
  // The answer with code 0, else its error; kBusy is repeated until the deadline. `repeat`: also
  // after a lost connection.
  Result<Reply> ask_until_taken(Request request, bool repeat, const Deadline& deadline);
  // The error that a response with a code stands for.
  Error refused(const Response& response);
  Nanos busy_wait(const Response& response);
  void learn_place(Bytes key, const Response& response);

  std::shared_ptr<rdma::Transport> transport_;
  const Clock* clock_;
  ClientOptions options_;
  Arena arena_;
  RemoteMap map_;
  GroupCache cache_;
  Link link_;
  MapLoader loader_;
  std::vector<Lane> lanes_;
  std::vector<rdma::Operation> batch_;  // of multi_get and multi_put
  std::vector<Lane*> free_lanes_;       // of multi_get
  std::vector<PutSlot> put_slots_;      // of multi_put
  std::vector<PutSlot*> batch_slots_;   // whose requests the batch holds
  Backoff reconnect_backoff_;
  Backoff busy_backoff_;
  Nanos reconnect_at_ = 0;  // not before
  Nanos looked_at_ = 0;     // by look_at_link()
  bool connected_once_ = false;
  std::string refusal_;
  std::string description_;
  ClientStats stats_;
};

// What a GET tells of a record; the value stays where it is.
inline ValueView found_view(const RecordFields& record) {
  return {.value = as_text(record.value),
          .version = record.version.bits,
          .expires_at_ms = record.expiry_ms,
          .is_counter = record.counter};
}
Status check_key(Bytes key);
Status check_value(Bytes value);

}  // namespace rkv::client
