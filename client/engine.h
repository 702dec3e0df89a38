// What rkv::Client is made of: the link, the map, the cache, the GETs in flight, and the rules of
// retrying. client.cc puts the public face on it.
//
// Invariants:
//  E1  A request that left and was not answered is a write that may have happened: it is reported,
//      never repeated. A GET, which changes nothing, is repeated until its deadline.
//  E2  Map and cache belong to one epoch and root region; another one of either empties both before
//      anything is read.
//  E3  Every operation ends by its deadline, with everything it posted completed or its link
//      closed (K1).
//  E4  A GET that asks for a durable value returns one whose version a mark of this epoch covers,
//      or no value at all.
//  E5  A flush or backup is sent only to a server whose epoch has every write that was acknowledged
//      to this client and not known to be on disk; else the answer is kStale (U2).
//
// Thread safety: none. After create() nothing allocates but what returns text, and the buffers of
// large values when they are first needed.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "client/acknowledged.h"
#include "client/arena.h"
#include "client/get.h"
#include "client/large_buffers.h"
#include "client/link.h"
#include "client/map_loader.h"
#include "client/mark_wait.h"
#include "client/retry_policy.h"
#include "client/used_hashes.h"
#include "rkv/client.h"

namespace rkv::client {

class Engine;

// Who may refuse a server that an engine has connected to.
class Gate {
 public:
  virtual ~Gate() = default;
  // `epoch`: of the server's present start, which no other server has.
  virtual Status admit(const Engine& engine, std::uint64_t epoch) = 0;
};

class Engine {
 public:
  using GetVisitor = void (*)(void* target, std::size_t index, const Result<ValueView>& result);
  using PutVisitor = void (*)(void* target, std::size_t index,
                              const Result<std::uint64_t>& version);

  static Result<std::unique_ptr<Engine>> create(const ClientOptions& options,
                                                std::shared_ptr<rdma::Transport> transport,
                                                const Clock* clock, std::string* refusal);
  // The same without connecting: the first operation does. `gate`, which may be null, must outlive
  // the engine.
  static Result<std::unique_ptr<Engine>> create_unconnected(
      const ClientOptions& options, std::shared_ptr<rdma::Transport> transport, const Clock* clock,
      Gate* gate);
  ~Engine();
  // Of the arena of an engine with these options.
  static std::size_t arena_bytes(const ClientOptions& options) {
    return Arena::region_bytes(gets_of(options), options.requests_in_flight);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Deadline deadline(std::chrono::milliseconds timeout) const {
    const Deadline own =
        Deadline::after_ms(*clock_, (timeout.count() > 0 ? timeout : options_.timeout).count());
    return {*clock_, std::min(own.at(), latest_)};
  }
  // Until let_go() no operation goes on beyond this, whatever its own timeout.
  void hold_to(Nanos at) { latest_ = at; }
  void let_go() { latest_ = std::numeric_limits<Nanos>::max(); }

  // A value read by get(): the bytes lie in the engine until its next operation, or in the reply.
  struct Got {
    Bytes value;
    Version version;
    std::uint64_t expiry_ms = 0;
    bool counter = false;
    Durability durability = Durability::kMemory;  // as known
    std::optional<Reply> reply = std::nullopt;
    ValueView view() const;
  };
  // Where the caller wants the value. Registered: a large value is READ into it.
  struct Destination {
    MutableBytes bytes;
    std::optional<std::uint32_t> local_key = std::nullopt;
  };
  // `into` bounds the value's length: kTooLarge, and needed_bytes() tells.
  Result<Got> get(Bytes key, const GetOptions& options, const Destination* into = nullptr);
  // The shortest GET: where READs are over at once (shm), a key whose slot is cached needs one READ
  // and neither a deadline nor a state machine. Nothing where it is not as simple as that: get().
  // The bytes lie in the engine until its next operation.
  const LiveRecord* get_at_once(Bytes key, const GetOptions& options);
  bool reads_at_once() const { return usable() && link_.reads_at_once(); }
  // The same for up to kAtOnce of `keys` from `first` on, REQUIRES reads_at_once(). How many are
  // left over, and in `left` which.
  static constexpr std::size_t kAtOnce = 16;
  std::size_t get_at_once(std::span<const std::string_view> keys, std::size_t first,
                          Durability at_least, GetVisitor visit, void* target,
                          std::span<std::size_t, kAtOnce> left);
  Result<ValueSize> copy_out(const LiveRecord& found, MutableBytes out);
  ValueView view(const LiveRecord& found) const;
  // Where it is not there already; kTooLarge as above.
  Result<ValueSize> copy_out(const Got& got, MutableBytes out);
  std::size_t needed_bytes() const { return needed_bytes_; }
  // kPut, kRemove, kAdd, kSwap, with everything but their time-out: the answer to keep or to read.
  // `remote_key`: of registered memory that the value lies in; 0 = it does not, and is copied.
  Result<Reply> write(const Request& request, const Deadline& deadline,
                      std::uint32_t remote_key = 0);
  // Counters by requests: engine_counters.cc, as all that follow.
  Result<Counter> add(Bytes key, std::int64_t summand, const Deadline& deadline,
                      Durability durability);
  Result<CounterSwap> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                           const Deadline& deadline, Durability durability);
  Result<Counter> number(Bytes key, std::chrono::milliseconds timeout);
  // Counters in cells.
  Result<OneSidedCounter> open_counter(std::string_view key, bool create, const Deadline& deadline);
  Result<Counter> add(OneSidedCounter& counter, std::int64_t summand, const Deadline& deadline,
                      Durability durability);
  Result<CounterSwap> swap(OneSidedCounter& counter, std::int64_t expected, std::int64_t desired,
                           const Deadline& deadline, Durability durability);
  Result<Counter> number(OneSidedCounter& counter, const Deadline& deadline);
  void multi_add(std::span<const CounterAddition> additions, const Deadline& deadline,
                 std::span<Result<Counter>> results);
  // One READ of the mark lines: repeated while they do not verify, and when the connection is lost.
  Status read_marks(const Deadline& deadline);
  // kPing, kFlush, kStats: repeated when the connection is lost. kFlush, kBackup: E5.
  Result<Reply> ask(const Request& request, const Deadline& deadline);
  // kBackup: when the connection is lost with it under way, nobody knows whether it was carried
  // out.
  Result<Reply> ask_once(const Request& request, const Deadline& deadline);
  Durability durability_of(Version version) const { return map_.marks().of(version); }
  Durability durability_of(const Response& response) const {
    return (response.flags & Response::kInCell) != 0 ? Durability::kMemory
                                                     : durability_of(response.version);
  }
  void multi_get(std::span<const std::string_view> keys, Durability at_least,
                 const Deadline& deadline, GetVisitor visit, void* target);
  Result<ScanPage> scan(const ScanOptions& options);  // scan.cc
  // The same without the values that are too long for a page: `left_out` gets their entries.
  Result<ScanPage> scan_page(const ScanOptions& options, const Deadline& deadline,
                             std::vector<std::size_t>& left_out);
  void multi_put(std::span<const KeyValue> items, Durability durability, const Deadline& deadline,
                 PutVisitor visit, void* target);

  // ---- for who has several engines to look after: make_usable() in steps.

  // Whether the connection is there, as far as known without a look at it.
  bool usable() const { return link_.alive() && map_.ready(); }
  // When the next attempt to connect is due, for an operation with this deadline; at or behind the
  // deadline: none is.
  Nanos next_attempt(const Deadline& deadline);
  // Makes it: blocks for the connect_timeout, and until the deadline, at most.
  Status attempt_now(const Deadline& deadline);
  // Whether another attempt may do better.
  bool worth_repeating(const Error& error) const;
  const Link& link() const { return link_; }
  Link& link() { return link_; }
  const Clock& clock() const { return *clock_; }
  // Of the server that it was last connected to; 0 = of none.
  std::uint64_t epoch() const { return map_.epoch(); }
  const ClientOptions& options() const { return options_; }

  ClientStats stats() const;
  const std::shared_ptr<rdma::Transport>& transport() const { return transport_; }
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
      kNeedsValueBuffer,
      kNeedsMap,
      kNeedsRequest,
      kAwaitsReply,
      kNeedsMark,  // `found` is not known to be as safe as asked
    };
    Lane(RemoteMap& map, GroupCache& groups, SlotCache& slots, const Clock& clock)
        : machine(map, groups, slots, clock) {}
    GetMachine machine;
    MutableBytes large;
    LargeBuffers::Buffer* value = nullptr;  // of a large value
    std::uint32_t asked = 0;                // how often the server was
    State state = State::kFree;
    GetMachine::Next next = GetMachine::Next::kMissing;
    std::uint32_t pending = 0;  // READs posted and not landed
    std::size_t index = 0;      // of the key
    ValueView found{};
    std::optional<Reply> reply = std::nullopt;  // that `found` lies in, or nothing
  };

  // One PUT in flight, or refused for now and to be sent again.
  struct PutSlot {
    enum class State : std::uint8_t { kFree, kSent, kAgain };
    State state = State::kFree;
    std::size_t index = 0;                  // of the item
    LargeBuffers::Buffer* value = nullptr;  // where the server READs a large value
  };
  // A put of a large value that lies in registered memory; `encoded` is the request's value.
  struct Source {
    Bytes value;
    std::uint32_t remote_key = 0;
    std::uint64_t epoch = 0;  // of the digest in `encoded`
    std::array<std::byte, kValueSourceBytes> encoded{};
    void describe(Bytes key, std::uint64_t epoch);
  };
  // Asking the server again where a value is that is being written all the time ends here.
  static constexpr std::uint32_t kMaxAsked = 8;
  static constexpr const char* kNumberInCell =
      "nobody knows when a one-sided counter's number is on disk";

  // One GetMemory more than lanes: for GETs that are over at once while lanes are in use.
  static std::size_t gets_of(const ClientOptions& options) { return options.reads_in_flight + 1U; }
  Engine(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
         const Clock* clock, Arena arena);

  // ---- connection
  // Reconnects with back-off until the deadline.
  Status make_usable(const Deadline& deadline);
  void forget_places();
  Status attempt(const Deadline& deadline);
  // Notices, without waiting, that the connection has ended: before a write leaves.
  void look_at_link();
  // For a GET. kBusy: what was READ did not verify for some milliseconds; the server can be asked.
  Status refresh_map(GetMachine::Next what, const Deadline& deadline);

  // ---- GET
  // Where a cache says that a key's record is.
  struct AtOnce {
    KeyHash hash{0};
    Slot slot;
    bool from_group = false;  // the slot, which is to be cached by itself when it has proved right
    RemoteRange from;
    std::size_t length = 0;
  };
  Slot slot_in_cached_group(KeyHash hash);
  bool find_at_once(KeyHash hash, AtOnce& found);
  const LiveRecord* read_at_once(Bytes key, const AtOnce& at, Durability at_least,
                                 MutableBytes room);
  // Waits until the marks say that the version is so safe: how safe it is. kDisconnected: start
  // again, for the server may be another one that does not have this version.
  Result<Durability> await_mark(Version version, Durability level, const Deadline& deadline);
  // Looks at the marks, and asks for them when it is time. Whether the lines could be read.
  Result<bool> look_or_ask(Durability level, const Deadline& deadline);
  // Runs a machine on lane 0 until it has finished.
  Result<GetMachine::Next> run(Lane& lane, GetMachine::Next next, const Deadline& deadline,
                               const Destination* into);
  Status give_value_buffer(Lane& lane, const Destination* into);
  void account(const GetMachine& machine);
  void free_large(Lane& lane) {
    if (!lane.large.empty() || lane.value != nullptr) give_back_large(lane);
  }
  void give_back_large(Lane& lane);
  std::unexpected<Error> too_long(std::size_t needed);
  Result<Reply> get_two_sided(Bytes key, const Deadline& deadline);

  // ---- counters in cells
  static constexpr std::size_t kAtomicsAtOnce = 512;
  // Whether the counter's cell, or that it has none, is known and still true.
  bool is_bound(const OneSidedCounter& counter) const;
  Counter counter_in(const Response& response) const;
  Result<Reply> ask_for_cell(Bytes key, bool create, const Deadline& deadline);
  // Makes it so; connects if need be. kNotFound: only without `create`.
  Status bind(OneSidedCounter& counter, bool create, const Deadline& deadline);
  // Its cell was found sealed: the counter has ended.
  static void unbind(OneSidedCounter& counter) { counter.epoch_ = 0; }
  rdma::Operation atomic_on(const OneSidedCounter& counter, std::size_t index) const;
  std::uint64_t told(std::size_t index) const;  // the old value of the atomic of that index
  // Binds, and runs one atomic that `shape` completes: the old word. Nothing: the counter is
  // changed by requests. What changes nothing is repeated when the connection is lost.
  template <class Shape>
  Result<std::optional<std::uint64_t>> run_atomic(OneSidedCounter& counter, bool create,
                                                  bool changes, const Deadline& deadline,
                                                  Shape shape);
  void add_some(std::span<const CounterAddition> additions, const Deadline& deadline,
                std::span<Result<Counter>> results);

  Status fetch_values(ScanPage& page, std::span<const std::size_t> entries,
                      const Deadline& deadline);

  // ---- requests
  // The answer with code 0, else its error; what says "later" is repeated until the deadline.
  // `repeat`: also after a lost connection.
  Result<Reply> ask_until_taken(Request request, bool repeat, const Deadline& deadline,
                                Source* source = nullptr);
  Result<Reply> write_large(Request request, const Deadline& deadline, std::uint32_t remote_key);
  // The error that a response with a code stands for.
  Error refused(const Response& response);
  // Whether the same request may be answered otherwise soon.
  static bool is_later(Opcode opcode, Code code) {
    return code == Code::kBusy || (opcode == Opcode::kGet && code == Code::kOutOfMemory);
  }
  // A write was acknowledged: `asked` is how safe it was to be by then.
  void note_write(const Response& response, Durability asked);
  Nanos busy_wait(const Response& response);
  // When to send again after such a wait; nothing: the deadline is too near. Where it would pass
  // the deadline there is one more try shortly before.
  std::optional<Nanos> again_at(Nanos wait, const Deadline& deadline) const;
  void learn_place(Bytes key, const Response& response);  // of a write
  // Of a GET: the next one is a READ, also of a key that no group leads to. A hint (G5).
  void learn_slot(KeyHash hash, const Response& response) {
    if (response.slot.fingerprint() == hash.fingerprint()) slots_.put(hash, response.slot);
  }
  // Of what a GET was answered; kUnsupported: the number of a counter in a cell.
  Result<Durability> await_mark(const Response& response, Durability level,
                                const Deadline& deadline);
  void learn_marks(const Response& response) {
    map_.learn_marks(response.wal_mark, response.sync_mark);
  }

  std::shared_ptr<rdma::Transport> transport_;
  const Clock* clock_;
  ClientOptions options_;
  Arena arena_;
  LargeBuffers large_;
  RemoteMap map_;
  GroupCache cache_;
  SlotCache slots_;
  LiveRecord at_once_{};  // what get_at_once() found
  Link link_;
  MapLoader loader_;
  std::vector<Lane> lanes_;
  std::vector<rdma::Operation> batch_;    // of multi_get and multi_put
  std::vector<rdma::Operation> atomics_;  // of multi_add
  std::vector<Lane*> free_lanes_;         // of multi_get
  std::vector<PutSlot> put_slots_;        // of multi_put
  std::vector<PutSlot*> batch_slots_;     // whose requests the batch holds
  Backoff reconnect_backoff_;
  Backoff busy_backoff_;
  MarkWait mark_wait_;
  Gate* gate_ = nullptr;
  Nanos reconnect_at_ = 0;                            // not before
  Nanos attempted_at_ = 0;                            // the last one ended
  Nanos latest_ = std::numeric_limits<Nanos>::max();  // of hold_to()
  Nanos looked_at_ = 0;                               // by look_at_link()
  bool connected_once_ = false;
  std::size_t needed_bytes_ = 0;
  std::string refusal_;
  std::string description_;
  UsedHashes used_;
  Acknowledged acknowledged_;
  ClientStats stats_;
};

// What a GET tells of a record; the value stays where it is.
inline ValueView found_view(const RecordFields& record, const Marks& marks) {
  return {.value = as_text(record.value),
          .version = record.version.bits,
          .expires_at_ms = record.expiry_ms,
          .is_counter = record.counter,
          .durability = marks.of(record.version)};
}
Status check_key(Bytes key);
Status check_value(Bytes value);

}  // namespace rkv::client
