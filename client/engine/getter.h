// Getter: the GET of one key. It READs a cached place, or else drives a GetOp: it performs its
// actions one after another, waiting for each.
//
// Thread safety: none. Nothing allocates after construction, apart from buffers of large values and
// values returned.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "client/engine/connector.h"
#include "client/engine/destinations.h"
#include "client/engine/get_op.h"
#include "client/engine/requester.h"
#include "client/engine/session.h"
#include "client/engine/watermark_wait.h"
#include "rkv/operations.h"

namespace rkv::client {

// One GET of a call with many.
struct GetItem {
  std::string_view key;
  std::uint64_t token = 0;  // chosen by the caller
  Durability at_least = Durability::kMemory;
  // Registered memory of the caller that a long value is READ into; empty: the client's own.
  MutableBytes into{};
  std::uint32_t local_key = 0;
};

// Returns the counter that a GET has found. Fails with kWrongType.
Result<Counter> counter_of(const ValueView& found);

class Getter {
 public:
  // Number of GetMemory in the arena: those of GetPipeline's lanes, then the getter's own.
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
  // As above, into memory that is not registered. Inline, as the fastest path of a warm GET.
  Result<ValueSize> get_into(Bytes key, const GetOptions& options, MutableBytes out) {
    if (!overlap(key, out)) [[likely]] {
      if (const LiveRecord* const found = try_sync(key, options.at_least)) [[likely]]
        return copy_out(view(*found), out);
    }
    return get_into(key, options, Destination{.bytes = out});
  }
  Result<Counter> get_number(Bytes key, const Deadline& deadline);
  std::size_t needed_bytes() const { return needed_bytes_; }

  // ---- for GetPipeline, which has many GETs in flight.

  // Where READs complete within the call: performs those of up to kBatchKeys GETs whose place is
  // cached. Calls `visit(target, token, result)` for each of them. Returns how many GETs are left
  // over; `left` gets their indices. REQUIRES: reads_at_once(), and in a group the server was
  // believed after the GETs began.
  static constexpr std::size_t kBatchKeys = 16;
  using Visit = void (*)(void* target, std::uint64_t token, const Result<ValueView>& result);
  bool reads_at_once() const { return session_.usable() && session_.link.reads_at_once(); }
  std::size_t try_sync(std::span<const GetItem> items, Visit visit, void* target,
                       std::span<std::size_t, kBatchKeys> left);
  MarkWait& mark_wait() { return mark_wait_; }
  // Refreshes the map for a GetOp. kBusy: the bytes did not verify for some milliseconds.
  Status refresh_map(GetMachine::Next what, const Deadline& deadline);

 private:
  // A cached place of a key's record.
  struct Place {
    KeyHash hash{0};
    Slot slot;
    bool from_group = false;  // found in a cached group; cached as a slot once verified
    RemoteRange from;
    std::size_t length = 0;
  };
  // The shortest GET, for transports that complete READs within the call (shm). A key whose slot is
  // cached needs one READ, without a deadline or a state machine. Null: the case is not that
  // simple; use find(). The bytes lie in op_'s memory.
  const LiveRecord* try_sync(Bytes key, Durability at_least);
  Slot slot_in_cached_group(KeyHash hash);
  bool find_place(KeyHash hash, Place& found);
  template <bool kInGroup>
  const LiveRecord* read_place(Bytes key, const Place& at, Durability at_least, MutableBytes room);
  const LiveRecord* try_sync_in_group(Bytes key, Durability at_least);
  template <bool kInGroup>
  std::size_t read_places(std::span<const GetItem> items, std::span<const Place> at,
                          std::span<const bool> known, Visit visit, void* target,
                          std::span<std::size_t, kBatchKeys> left);
  ValueView view(const LiveRecord& found) const {
    return {.value = as_text({found.value, found.value_bytes}),
            .version = found.version.bits,
            .expires_at_ms = found.expiry_ms,
            .is_counter = found.counter,
            .durability = session_.durability_of(found.version)};
  }

  // Runs op_ from begin() to its result. The caller releases it.
  const Result<ValueView>& find(Bytes key, Durability at_least, const Deadline& deadline,
                                const Destination* into);
  // Calls `use(view)` with the value that find() finds, then releases op_.
  template <class T, class Use>
  Result<T> with_found(Bytes key, Durability at_least, const Deadline& deadline,
                       const Destination* into, Use use);
  // Performs the action that op_ needs, apart from READs.
  void perform(const Deadline& deadline, const Destination* into);
  void give_value_buffer(const Destination* into);
  void await_mark(const Deadline& deadline);
  // Copies the value, unless it lies in `out` already. kTooLarge as above.
  Result<ValueSize> copy_out(const ValueView& found, MutableBytes out) {
    const Bytes value = as_bytes(found.value);
    if (value.size() > out.size()) [[unlikely]]
      return too_long(value.size());
    if (!value.empty() && value.data() != out.data()) {
      std::memcpy(out.data(), value.data(), value.size());
    }
    return ValueSize{
        .bytes = value.size(), .version = found.version, .durability = found.durability};
  }
  std::unexpected<Error> too_long(std::size_t needed);

  Session& session_;
  Connector& connector_;
  Requester& requester_;
  GetOp op_;
  LiveRecord sync_{};  // result of try_sync()
  MarkWait mark_wait_;
  std::size_t needed_bytes_ = 0;
};

}  // namespace rkv::client
