// The one-sided GET of one key: the READ of a cached place, and the state machine of client/get
// driven to its end, with requests where READs do not suffice.
//
// Invariants:
//  E1  A GET changes nothing and is repeated until its deadline when the connection is lost.
//  E4  A GET that asks for a durable value returns a value whose version a mark of this epoch
//      covers, or no value.
//
// Thread safety: none. Nothing allocates after construction, apart from buffers of large values and
// values returned.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "client/engine/connector.h"
#include "client/engine/read_reports.h"
#include "client/engine/requester.h"
#include "client/engine/session.h"
#include "client/engine/watermark_wait.h"
#include "client/get/get.h"
#include "rkv/operations.h"

namespace rkv::client {

// One GET in flight.
struct GetLane {
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
  GetLane(RemoteMap& map, GroupCache& groups, SlotCache& slots, const Clock& clock)
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

class Getter {
 public:
  // Limit of repeated requests for the place of a value that is rewritten all the time.
  static constexpr std::uint32_t kMaxAsked = 8;
  static constexpr const char* kNumberInCell =
      "the durability of a one-sided counter's number is unknown";
  static constexpr const char* kRewritten = "the value is rewritten faster than it can be read";
  static constexpr const char* kNotDurable =
      "the value did not reach the requested durability in time";
  static constexpr const char* kNoDisk = "the server keeps its data in memory only";

  // Number of GetMemory in the arena: one more than lanes, for try_sync() while lanes are in use.
  static std::size_t gets_of(const ClientOptions& options) { return options.reads_in_flight + 1U; }
  // The arguments must outlive the getter.
  Getter(Session& session, Connector& connector, Requester& requester);

  // The caller's buffer for the value. With a `local_key` a large value is READ into it.
  struct Destination {
    MutableBytes bytes;
    std::optional<std::uint32_t> local_key = std::nullopt;
  };
  Result<Value> get(Bytes key, const GetOptions& options);
  // kTooLarge: the value does not fit, and needed_bytes() is its length.
  Result<ValueSize> get_into(Bytes key, const GetOptions& options, const Destination& into);
  Result<Counter> get_number(Bytes key, const Deadline& deadline);
  std::size_t needed_bytes() const { return needed_bytes_; }

  // ---- for MultiGet, which has many keys in flight.

  // GETs up to kBatchKeys of `keys` from `first` on, those whose place is cached, where READs
  // complete within the call. Returns how many keys are left over; `left` gets their indices.
  // REQUIRES reads_at_once().
  static constexpr std::size_t kBatchKeys = 16;
  bool reads_at_once() const { return session_.usable() && session_.link.reads_at_once(); }
  std::size_t try_sync(std::span<const std::string_view> keys, std::size_t first,
                       Durability at_least, GetVisitor visit, void* target,
                       std::span<std::size_t, kBatchKeys> left);
  std::vector<GetLane>& lanes() { return lanes_; }
  MarkWait& mark_wait() { return mark_wait_; }
  // Gives the machine memory for a large value: the caller's if it is registered, else the
  // client's.
  Status give_value_buffer(GetLane& lane, const Destination* into);
  void free_large(GetLane& lane) {
    if (!lane.large.empty() || lane.value != nullptr) give_back_large(lane);
  }
  // Refreshes the map for a GET. kBusy: the bytes did not verify for some milliseconds; the caller
  // can ask the server instead.
  Status refresh_map(GetMachine::Next what, const Deadline& deadline);
  // The request for a key that READs did not answer. It carries the reports of READs.
  Request request_for(Bytes key);
  // Counts the READs of a machine that has ended; then the outcome of the GET.
  void count_reads(const GetMachine& machine);
  // `asked`: the server was asked for the key before.
  void count_found_by_read(const GetMachine& machine, bool asked);
  void count_found_by_request() { ++session_.stats.two_sided_gets; }
  void count_missing_by_read(bool asked);
  void count_missing_by_request();

 private:
  // A value found. The bytes lie in the first lane or in `reply`.
  struct Got {
    ValueView view;
    std::optional<Reply> reply = std::nullopt;
  };
  // A cached place of a key's record.
  struct Place {
    KeyHash hash{0};
    Slot slot;
    bool from_group = false;  // found in a cached group; cached as a slot once it has verified
    RemoteRange from;
    std::size_t length = 0;
  };
  // The shortest GET, for transports that complete READs within the call (shm). A key whose slot is
  // cached needs one READ, without a deadline or a state machine. Null: the case is not that
  // simple; use find(). The bytes lie in the first lane.
  const LiveRecord* try_sync(Bytes key, Durability at_least);
  Slot slot_in_cached_group(KeyHash hash);
  bool find_place(KeyHash hash, Place& found);
  const LiveRecord* read_place(Bytes key, const Place& at, Durability at_least, MutableBytes room);
  ValueView view(const LiveRecord& found) const;

  Result<Got> find(Bytes key, Durability at_least, const Deadline& deadline,
                   const Destination* into);
  // Calls `use(view)` with the value that find() finds, then frees the lane's large buffers.
  template <class T, class Use>
  Result<T> with_found(Bytes key, Durability at_least, const Deadline& deadline,
                       const Destination* into, Use use);
  // Runs a machine on the first lane until it has finished.
  Result<GetMachine::Next> run(GetLane& lane, GetMachine::Next next, const Deadline& deadline,
                               const Destination* into);
  // Copies the value, unless it lies in `out` already. kTooLarge as above.
  Result<ValueSize> copy_out(const ValueView& found, MutableBytes out);
  void give_back_large(GetLane& lane);
  std::unexpected<Error> too_long(std::size_t needed);
  // Waits until the marks cover the version at `level`, and returns its durability. kDisconnected:
  // start again, for the next server may not have this version.
  Result<Durability> await_mark(Version version, Durability level, const Deadline& deadline);
  // Waits for the durability of a GET's answer. kUnsupported: the number of a counter in a cell.
  Result<Durability> await_mark(const Response& response, Durability level,
                                const Deadline& deadline);
  // READs the marks, and requests them when MarkWait says so. Returns false if the lines did not
  // verify.
  Result<bool> look_or_ask(Durability level, const Deadline& deadline);

  Session& session_;
  Connector& connector_;
  Requester& requester_;
  std::vector<GetLane> lanes_;
  LiveRecord sync_{};  // result of try_sync()
  MarkWait mark_wait_;
  ReadReports reports_;
  std::size_t needed_bytes_ = 0;
};

// A view of the record that a GET found; the value stays where it is.
inline ValueView found_view(const RecordFields& record, const Watermarks& marks) {
  return {.value = as_text(record.value),
          .version = record.version.bits,
          .expires_at_ms = record.expiry_ms,
          .is_counter = record.counter,
          .durability = marks.of(record.version)};
}
// A view of a GET's answer.
inline ValueView found_view(const Response& response, Durability durability) {
  return {.value = as_text(response.value),
          .version = response.version.bits,
          .expires_at_ms = response.expiry_ms,
          .is_counter = (response.flags & Response::kCounter) != 0,
          .durability = durability};
}

}  // namespace rkv::client
