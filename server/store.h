// The store: every change of the memory that clients READ happens here, in the order of steps that
// makes one-sided reads correct (DESIGN.md, "Writing").
//
// Thread safety: all operations, from any thread; each holds the lock of one group pair while it
// changes anything. Nothing blocks on the disk: a full commit log answers kBusy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/persistence/commit_log.h"

namespace rkv::server {

class StoreMemory;

struct PutResult {
  Version version;
  Slot slot;                  // where the record is now; empty when only the server finds it
  bool in_neighbour = false;  // the slot is in the overflow neighbour of the home group
};

struct GetResult {
  Version version;
  std::size_t value_length = 0;
};

struct StoreStats {
  std::uint64_t records = 0;
  std::uint64_t stashed_records = 0;  // known to the server alone: both groups of the pair full
  std::uint64_t index_slots = 0;      // of the segments in use
  std::uint64_t index_splits = 0;
  std::uint64_t memory_bytes = 0;     // that clients READ, made so far
  std::uint64_t data_bytes = 0;       // capacity of the data extents
  std::uint64_t data_bytes_used = 0;  // in blocks that hold records
  std::uint64_t puts_in_place = 0;
  std::uint64_t puts_moved = 0;
};

class Store {
 public:
  // `memory` and `log` must outlive the store. `boot` is the persistent boot counter.
  Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint16_t boot);
  ~Store();

  // kOutOfMemory: no room for the record; nothing changed. kBusy: the commit log is full, or memory
  // is on its way; kIo: from the commit log; nothing changed. Lengths are within the limits
  // (checked by the wire decoder).
  Result<PutResult> put(Bytes key, Bytes value, std::uint64_t expiry_ms);
  // The version of the deletion. kNotFound; kBusy, kIo as above.
  Result<Version> remove(Bytes key);
  // Copies the value to `out` (at least kMaxValueBytes). kNotFound.
  Result<GetResult> get(Bytes key, MutableBytes out) const;

  // A record from disk, with the version it had. Only before clients are admitted; nothing is
  // logged. A key loaded twice keeps the higher version. kOutOfMemory.
  Status load(const RecordFields& record);

  // ---- growth

  // Whether an extent should be added: less than half of one is unused, and the limit is not
  // reached.
  bool wants_memory() const;
  // Adds extents while that is so. Blocks while their pages are made, which no operation waits for:
  // meanwhile they use what there is and answer kBusy without it. One thread. True: something was
  // added. Errors are those of the memory's source; the next call tries again.
  Result<bool> grow();
  // `call` is called, by any thread inside an operation, when wants_memory() becomes true, and not
  // again until grow() has returned without an error. Set it before the first operation.
  void on_low_memory(std::function<void()> call);

  StoreStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
