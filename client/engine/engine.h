// The core of rkv::Client: the link, the map, the caches, the GETs in flight, and the rules of
// retrying. client.cc is the public face.
//
// Invariants:
//  E1  A write request that was sent and not answered may have happened. It is reported, never
//      repeated. A GET changes nothing and is repeated until its deadline.
//  E2  Map and caches belong to one epoch and root region. A connect that brings another epoch or
//      root region empties them before anything is read.
//  E3  Every operation ends by its deadline. Everything it posted is then completed, or its link is
//      closed (K1).
//  E4  A GET that asks for a durable value returns a value whose version a mark of this epoch
//      covers, or no value.
//  E5  A flush or backup promises something about every write acknowledged to this client. It is
//      sent only if each of these writes is known to be on disk, or was acknowledged in the
//      server's present epoch. Otherwise the call fails with kStale (U2).
//
// Thread safety: none. After create() only functions that return text allocate. The buffers of
// large values are allocated when they are first needed.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "client/engine/acknowledged.h"
#include "client/engine/read_reports.h"
#include "client/engine/watermark_wait.h"
#include "client/get/get.h"
#include "client/link/arena.h"
#include "client/link/large_buffers.h"
#include "client/link/link.h"
#include "client/link/map_loader.h"
#include "client/link/retry_policy.h"
#include "rkv/client_stats.h"
#include "rkv/operations.h"
#include "rkv/options.h"
#include "rkv/scan.h"

namespace rkv::client {

class Engine;

// A check that may refuse a server that an engine has connected to.
class ConnectPolicy {
 public:
  virtual ~ConnectPolicy() = default;
  // `epoch`: drawn by the server's present start; no other start has it.
  virtual Status admit(const Engine& engine, std::uint64_t epoch) = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const ClientOptions& options,
                                                std::shared_ptr<rdma::Transport> transport,
                                                const Clock* clock, std::string* refusal);
  // As create(), without connecting: the first operation connects. `connect_policy`, which may be
  // null, must outlive the engine.
  static Result<std::unique_ptr<Engine>> create_unconnected(
      const ClientOptions& options, std::shared_ptr<rdma::Transport> transport, const Clock* clock,
      ConnectPolicy* connect_policy);
  ~Engine();
  // Size of the arena of an engine with these options.
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
  // Caps the deadline of every operation at `at` until clear_deadline_cap().
  void set_deadline_cap(Nanos at) { latest_ = at; }
  void clear_deadline_cap() { latest_ = std::numeric_limits<Nanos>::max(); }

  // A value read by get(). The bytes lie in the engine until its next operation, or in `reply`.
  struct Got {
    Bytes value;
    Version version;
    std::uint64_t expiry_ms = 0;
    bool counter = false;
    Durability durability = Durability::kMemory;  // as far as known
    std::optional<Reply> reply = std::nullopt;
    ValueView view() const;
  };
  // The caller's buffer for the value. With a `local_key` a large value is READ into it.
  struct Destination {
    MutableBytes bytes;
    std::optional<std::uint32_t> local_key = std::nullopt;
  };
  // Reads a value. `into` limits the value's length: kTooLarge, and needed_bytes() is the length.
  Result<Got> get(Bytes key, Durability at_least, const Deadline& deadline,
                  const Destination* into = nullptr);
  // The shortest GET, for transports that complete READs within the call (shm). A key whose slot is
  // cached needs one READ, without a deadline or a state machine. Null: the case is not that
  // simple; use get(). The bytes lie in the engine until its next operation.
  const LiveRecord* try_get_sync(Bytes key, Durability at_least);
  bool reads_at_once() const { return usable() && link_.reads_at_once(); }
  // As above, for up to kBatchKeys of `keys` from `first` on. Returns how many keys are left over;
  // `left` gets their indices. REQUIRES reads_at_once().
  static constexpr std::size_t kBatchKeys = 16;
  std::size_t try_get_sync(std::span<const std::string_view> keys, std::size_t first,
                           Durability at_least, GetVisitor visit, void* target,
                           std::span<std::size_t, kBatchKeys> left);
  Result<ValueSize> copy_out(const LiveRecord& found, MutableBytes out);
  ValueView view(const LiveRecord& found) const;
  // Copies the value, unless it lies in `out` already. kTooLarge as above.
  Result<ValueSize> copy_out(const Got& got, MutableBytes out);
  std::size_t needed_bytes() const { return needed_bytes_; }
  // Sends kPut, kRemove, kAdd or kSwap and returns the answer. The request is complete but for its
  // time-out. `remote_key`: key of the registered memory that the value lies in; 0 = the value is
  // not in registered memory, and is copied.
  Result<Reply> write(const Request& request, const Deadline& deadline,
                      std::uint32_t remote_key = 0);
  // ---- counters (engine_counters.cc). By requests:
  Result<Counter> add(Bytes key, std::int64_t summand, const Deadline& deadline,
                      Durability durability);
  Result<CounterSwap> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                           const Deadline& deadline, Durability durability);
  Result<Counter> number(Bytes key, const Deadline& deadline);
  // In cells:
  Result<OneSidedCounter> open_counter(std::string_view key, bool create, const Deadline& deadline);
  Result<Counter> add(OneSidedCounter& counter, std::int64_t summand, const Deadline& deadline,
                      Durability durability);
  Result<CounterSwap> swap(OneSidedCounter& counter, std::int64_t expected, std::int64_t desired,
                           const Deadline& deadline, Durability durability);
  Result<Counter> number(OneSidedCounter& counter, const Deadline& deadline);
  void multi_add(std::span<const CounterAddition> additions, const Deadline& deadline,
                 std::span<Result<Counter>> results);
  // READs the mark lines once; repeats the READ while they do not verify, and when the connection
  // is lost.
  Status read_marks(const Deadline& deadline);
  // Sends kPing, kFlush or kStats; repeats the request when the connection is lost. E5 holds for
  // kFlush.
  Result<Reply> ask(const Request& request, const Deadline& deadline);
  // Sends kBackup once. If the connection is lost during the request, it is unknown whether the
  // server carried it out. E5 holds.
  Result<Reply> ask_once(const Request& request, const Deadline& deadline);
  Durability durability_of(Version version) const { return map_.marks().of(version); }
  Durability durability_of(const Response& response) const {
    return (response.flags & Response::kInCell) != 0 ? Durability::kMemory
                                                     : durability_of(response.version);
  }
  void multi_get(std::span<const std::string_view> keys, Durability at_least,
                 const Deadline& deadline, GetVisitor visit, void* target);
  Result<ScanPage> scan(const ScanOptions& options);  // scan.cc
  // As scan(), without the values that are too long for a page: `left_out` gets their indices.
  Result<ScanPage> scan_page(const ScanOptions& options, const Deadline& deadline,
                             std::vector<std::size_t>& left_out);
  void multi_put(std::span<const KeyValue> items, Durability durability, const Deadline& deadline,
                 PutVisitor visit, void* target);

  // ---- for a caller that manages several engines: ensure_connected() in steps.

  // Returns true if the connection is alive, as far as known without polling it.
  bool usable() const { return link_.alive() && map_.ready(); }
  // When the next attempt to connect is due, for an operation with this deadline. A time at or
  // after the deadline: no attempt is due.
  Nanos next_attempt(const Deadline& deadline);
  // Makes one attempt to connect. Blocks for the connect_timeout, and until the deadline, at most.
  Status connect_once(const Deadline& deadline);
  // Returns true if another attempt may succeed after this error.
  bool worth_repeating(const Error& error) const;
  const Link& link() const { return link_; }
  Link& link() { return link_; }
  const Clock& clock() const { return *clock_; }
  // Epoch of the server that the engine was last connected to; 0 = never connected.
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
      kNeedsMark,  // `found` is not known to have the requested durability
    };
    Lane(RemoteMap& map, GroupCache& groups, SlotCache& slots, const Clock& clock)
        : machine(map, groups, slots, clock) {}
    GetMachine machine;
    MutableBytes large;
    LargeBuffers::Buffer* value = nullptr;  // buffer of a large value
    std::uint32_t asked = 0;                // how often this key was requested from the server
    State state = State::kFree;
    GetMachine::Next next = GetMachine::Next::kMissing;
    std::uint32_t pending = 0;  // READs posted and not landed
    std::size_t index = 0;      // of the key
    ValueView found{};
    std::optional<Reply> reply = std::nullopt;  // holds the bytes of `found`, or is empty
  };

  // One PUT in flight, or refused with "later" and to be sent again.
  struct PutSlot {
    enum class State : std::uint8_t { kFree, kSent, kAgain };
    State state = State::kFree;
    std::size_t index = 0;                  // of the item
    LargeBuffers::Buffer* value = nullptr;  // where the server READs a large value
  };
  // The source of a large put, in registered memory. `encoded` is the request's value.
  struct Source {
    Bytes value;
    std::uint32_t remote_key = 0;
    std::uint64_t epoch = 0;  // the epoch that the digest in `encoded` was computed for
    std::array<std::byte, kValueSourceBytes> encoded{};
    void describe(Bytes key, std::uint64_t epoch);
  };
  // Limit of repeated requests for the place of a value that is rewritten all the time.
  static constexpr std::uint32_t kMaxAsked = 8;
  static constexpr const char* kNumberInCell =
      "the durability of a one-sided counter's number is unknown";

  // One GetMemory more than lanes: for try_get_sync() while lanes are in use.
  static std::size_t gets_of(const ClientOptions& options) { return options.reads_in_flight + 1U; }
  Engine(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
         const Clock* clock, Arena arena);

  // ---- connection
  // Reconnects with back-off until the deadline.
  Status ensure_connected(const Deadline& deadline);
  void forget_places();
  Status attempt(const Deadline& deadline);
  // Checks without waiting whether the connection has ended, before a write is sent.
  void check_link();
  // Refreshes the map for a GET. kBusy: the bytes did not verify for some milliseconds; the caller
  // can ask the server instead.
  Status refresh_map(GetMachine::Next what, const Deadline& deadline);

  // ---- GET
  // A cached place of a key's record.
  struct AtOnce {
    KeyHash hash{0};
    Slot slot;
    bool from_group = false;  // found in a cached group; cached as a slot once it has verified
    RemoteRange from;
    std::size_t length = 0;
  };
  Slot slot_in_cached_group(KeyHash hash);
  bool find_at_once(KeyHash hash, AtOnce& found);
  const LiveRecord* read_at_once(Bytes key, const AtOnce& at, Durability at_least,
                                 MutableBytes room);
  // Waits until the marks cover the version at `level`, and returns its durability. kDisconnected:
  // start again, for the next server may not have this version.
  Result<Durability> await_mark(Version version, Durability level, const Deadline& deadline);
  // READs the marks, and requests them when MarkWait says so. Returns false if the lines did not
  // verify.
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
  // Returns true if it is known, and still true, which cell the counter has or that it has none.
  bool is_bound(const OneSidedCounter& counter) const;
  Counter counter_in(const Response& response) const;
  Result<Reply> ask_for_cell(Bytes key, bool create, const Deadline& deadline);
  // Makes is_bound() true; connects if necessary. kNotFound: only without `create`.
  Status bind(OneSidedCounter& counter, bool create, const Deadline& deadline);
  // The counter's cell is sealed: the counter has ended.
  static void unbind(OneSidedCounter& counter) { counter.epoch_ = 0; }
  rdma::Operation atomic_on(const OneSidedCounter& counter, std::size_t index) const;
  std::uint64_t told(std::size_t index) const;  // old value of the atomic of that index
  // Binds the counter, runs one atomic that `shape` completes, and returns the old word. Empty: the
  // counter is changed by requests. An atomic that changes nothing is repeated when the connection
  // is lost.
  template <class Shape>
  Result<std::optional<std::uint64_t>> run_atomic(OneSidedCounter& counter, bool create,
                                                  bool changes, const Deadline& deadline,
                                                  Shape shape);
  void add_some(std::span<const CounterAddition> additions, const Deadline& deadline,
                std::span<Result<Counter>> results);

  Status fetch_values(ScanPage& page, std::span<const std::size_t> entries,
                      const Deadline& deadline);

  // ---- requests
  // Sends the request; repeats it until the deadline while the answer means "later". Returns the
  // answer with code 0, or the error. `repeat`: repeats it after a lost connection too.
  Result<Reply> ask_until_taken(Request request, bool repeat, const Deadline& deadline,
                                Source* source = nullptr);
  Result<Reply> write_large(Request request, const Deadline& deadline, std::uint32_t remote_key);
  // Converts a response with an error code into an Error.
  Error refused(const Response& response);
  // Returns true if the same request may get another answer soon.
  static bool is_later(Opcode opcode, Code code) {
    return code == Code::kBusy || (opcode == Opcode::kGet && code == Code::kOutOfMemory);
  }
  // Records an acknowledged write; `asked` is the durability that the request asked for.
  void note_write(const Response& response, Durability asked);
  Nanos busy_wait(const Response& response);
  // When to send again after waiting `wait`. If that passes the deadline, there is one last try
  // shortly before the deadline. Empty: the deadline is too near.
  std::optional<Nanos> again_at(Nanos wait, const Deadline& deadline) const;
  void learn_place(Bytes key, const Response& response);  // from a write's answer
  // Caches the slot of a GET's answer, so that the next GET is a READ, also for keys that no group
  // leads to. A hint (G5).
  void learn_slot(KeyHash hash, const Response& response) {
    if (response.slot.fingerprint() == hash.fingerprint()) slots_.put(hash, response.slot);
  }
  // Waits for the durability of a GET's answer. kUnsupported: the number of a counter in a cell.
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
  LiveRecord at_once_{};  // result of try_get_sync()
  Link link_;
  MapLoader loader_;
  std::vector<Lane> lanes_;
  std::vector<rdma::Operation> batch_;    // of multi_get and multi_put
  std::vector<rdma::Operation> atomics_;  // of multi_add
  std::vector<Lane*> free_lanes_;         // of multi_get
  std::vector<PutSlot> put_slots_;        // of multi_put
  std::vector<PutSlot*> batch_slots_;     // slots whose requests the batch holds
  Backoff reconnect_backoff_;
  Backoff busy_backoff_;
  MarkWait mark_wait_;
  ConnectPolicy* connect_policy_ = nullptr;
  Nanos reconnect_at_ = 0;                            // no attempt to connect before this time
  Nanos attempted_at_ = 0;                            // end of the last attempt
  Nanos latest_ = std::numeric_limits<Nanos>::max();  // deadline cap, set by set_deadline_cap()
  Nanos looked_at_ = 0;                               // last check by check_link()
  bool connected_once_ = false;
  std::size_t needed_bytes_ = 0;
  std::string refusal_;
  std::string description_;
  ReadReports used_;
  Acknowledged acknowledged_;
  ClientStats stats_;
};

// A view of the record that a GET found; the value stays where it is.
inline ValueView found_view(const RecordFields& record, const Watermarks& marks) {
  return {.value = as_text(record.value),
          .version = record.version.bits,
          .expires_at_ms = record.expiry_ms,
          .is_counter = record.counter,
          .durability = marks.of(record.version)};
}
// The request of a put. kInvalidArgument: options that contradict each other.
Result<Request> put_request(std::string_view key, std::string_view value,
                            const PutOptions& options);
Status check_key(Bytes key);
Status check_value(Bytes value);

}  // namespace rkv::client
