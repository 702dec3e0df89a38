// RecordStore: the publication protocol. PUT, GET and DELETE of records whose value fits into a
// message, and the steps that all writes share: plan, publish, commit. Every change to the memory
// that clients READ keeps the order of steps that makes one-sided reads correct (DESIGN.md,
// "Writing").
//
// Invariants: STORE-1 to STORE-6 of DESIGN.md.
//
// Thread safety: all operations from any thread. Each holds the lock of one group pair while it
// changes anything. Operations that take a Target: under the lock of its pair. No operation blocks
// on the disk: a full commit log returns kBusy.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/layout.h"
#include "common/wire.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/counter_cells.h"
#include "server/store/disk_lookup.h"
#include "server/store/disk_tier.h"
#include "server/store/evictor.h"
#include "server/store/expirer.h"
#include "server/store/expiry_clock.h"
#include "server/store/growth.h"
#include "server/store/pins.h"
#include "server/store/record_table.h"

namespace rkv::server {

struct PutResult {
  Version version{};
  Slot slot{};                // where the record is now
  bool in_neighbour = false;  // the slot is in the overflow neighbour of the home group
};

struct GetResult {
  Version version;
  std::uint64_t expiry_ms = 0;  // Unix milliseconds, 0 = never
  bool counter = false;
  bool in_cell = false;  // a counter: `version` is the version of its opening
  std::size_t value_length = 0;
  bool large = false;  // not copied: the caller READs the value from `slot`
  // Where the record is now. Empty if no READ finds the value: the record is on disk only, or in a
  // cell.
  Slot slot{};
};

// No latest time for a write to begin.
inline constexpr Nanos kAnyTime = std::numeric_limits<Nanos>::max();

struct PutOptions {
  Condition condition = Condition::kNone;
  Version expected{};        // kIfVersion
  std::uint64_t ttl_ms = 0;  // from now; 0 = never expires
  bool until = false;        // `ttl_ms` is the expiry time itself, in Unix milliseconds
  DiskLookup look{};
  Nanos begin_by = kAnyTime;      // latest time to begin, by the store's clock
  const WriteTag* tag = nullptr;  // of the entry in a replicated log
};

class RecordStore {
 public:
  // The objects that a RecordStore is built on. All references must outlive it. `boot` is the upper
  // half of all versions of this start.
  struct Parts {
    RecordTable& table;
    CommitLog& log;
    const ExpiryClock& clock;
    DiskTier& disk;
    CounterCells& cells;
    Evictor& evictor;
    Growth& growth;
    Expirer& expirer;
    std::uint32_t boot;
  };
  explicit RecordStore(const Parts& parts);

  // Errors: store.h.
  StoreResult<PutResult> put(Bytes key, Bytes value,
                             const PutOptions& options);  // REQUIRES: not large
  StoreResult<Version> remove(Bytes key, std::optional<Version> expected, const DiskLookup& look,
                              Nanos begin_by, const WriteTag* tag);
  // Copies the value to `out` unless the value is large. kTooLarge: it is not large, and `out` is
  // too short; kMaxInlineBytes hold any.
  StoreResult<GetResult> get(Bytes key, MutableBytes out, const DiskLookup& look) const;
  // Adds kHintWords words that clients of one transport swap (pins.h). Call it before the first
  // operation. The words must outlive the store.
  void add_hint_words(const std::uint64_t* words) { pins_.add_words(words); }

  // ---- steps of a write, for the classes that write records of other kinds

  // Everything a write needs and could fail to get. Complete before the commit sequence is taken;
  // after that nothing fails (STORE-4).
  struct Plan {
    bool in_place = false;
    Location block = {};           // of the new record; in place: of the present one
    Index::Position vacancy = {};  // for a key that is not in memory
    std::uint64_t units = 0;
    bool value_is_there = false;  // a large value, already in the block
    bool only_logged = false;     // the record does not change: a counter in a cell
  };
  // Whether a write may still begin (STORE-6). REQUIRES: its pair's lock, so that nothing waits
  // afterwards.
  Status check_time(Nanos begin_by) const {
    if (begin_by == kAnyTime || clock_.now() <= begin_by) [[likely]]
      return {};
    return fail(Code::kTimeout, "the write's deadline passed before it began");
  }
  Status check_put(const Target& target, const PutOptions& options) const;
  Status check_condition(const Target& target, Condition condition, Version expected) const;
  // The record's fields but the value and its digest.
  RecordFields fields_for(Bytes key, const PutOptions& options) const;
  Result<Plan> plan(const Target& target, const RecordFields& fields);
  // A plan that writes the head of a large record again, and sets what `fields` says of its value.
  // Nothing: it is not large, the new head has another length, or its readers must not meet a head
  // that is being written (pins.h). REQUIRES: `target.found`.
  std::optional<Plan> plan_head(const Target& target, RecordFields& fields);
  // Gives back what plan() acquired.
  void drop(const Plan& plan);
  // Finds a place in the index for a new key.
  Status find_vacancy(const Target& target, Plan& plan);
  // Publishes the record once more, in another block of the same length, as it is: the same
  // version, no entry in the log. The caller releases the old block. REQUIRES: `at.found`, not
  // large.
  void move(const Target& at, Location to, std::uint64_t units);
  // Makes the record visible.
  PutResult publish(const Target& target, const Plan& plan, const RecordFields& fields);
  // A write after the reservation in the log. `prepare(target)` makes the plan, or refuses. Uses up
  // `room`.
  template <class Prepare>
  StoreResult<PutResult> commit(CommitLog::Reservation room, RecordFields& fields, Prepare prepare,
                                const DiskLookup& look, Nanos begin_by, const WriteTag* tag,
                                CommitLog::Attachment copy = {});

 private:
  void write_in_place(const Plan& plan, const RecordFields& fields);
  std::uint64_t write_prepared(const Plan& plan, const RecordFields& fields);
  StoreStatus check_remove(const Target& at, const RecordOnDisk* on_disk,
                           std::optional<Version> expected, const DiskLookup& look) const;
  Result<GetResult> get_on_disk(const RecordOnDisk& record, MutableBytes out) const;

  RecordTable& table_;
  StoreMemory& memory_;
  Index& index_;
  CommitLog& log_;
  const ExpiryClock& clock_;
  DiskTier& disk_;
  CounterCells& cells_;
  Evictor& evictor_;
  Growth& growth_;
  Expirer& expirer_;
  const std::uint32_t boot_;
  Pins pins_;
};

template <class Prepare>
StoreResult<PutResult> RecordStore::commit(CommitLog::Reservation room, RecordFields& fields,
                                           Prepare prepare, const DiskLookup& look, Nanos begin_by,
                                           const WriteTag* tag, CommitLog::Attachment copy) {
  const KeyHash hash = memory_.hash(fields.key);
  RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, fields.key);
  StoreStatus allowed = check_time(begin_by);
  if (allowed) allowed = disk_.check_in_memory(at, look);
  const StoreResult<Plan> ready =
      allowed ? StoreResult<Plan>(prepare(at)) : std::unexpected(allowed.error());
  if (!ready) {
    locked.unlock();
    log_.unreserve(room);
    growth_.split_if_crowded(hash);  // the caller retries if its pair was full
    return std::unexpected(ready.error());
  }
  const CommitLog::Ticket ticket = log_.begin(room);
  fields.version = Version::of(boot_, ticket.sequence);
  const PutResult result =
      ready->only_logged ? PutResult{.version = fields.version} : publish(at, *ready, fields);
  log_.finish(ticket, CommitLog::Kind::kPut, fields.in_cell ? out_of_cell(fields) : fields,
              std::move(copy), tag);
  const bool expires_first = !ready->only_logged && expirer_.note(at.home, fields.expiry_ms);
  locked.unlock();
  if (ready->only_logged) return result;
  // Only now that the new record is live: the allocator may reuse the block at once.
  if (at.found && !ready->in_place) table_.release(at.found->slot);
  if (ready->vacancy.where == Index::Where::kStash) growth_.split_if_crowded(hash);
  if (expires_first) expirer_.wake();
  return result;
}

}  // namespace rkv::server
