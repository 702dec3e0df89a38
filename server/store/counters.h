// Counters: records whose value is a signed 64-bit number, changed under their pair's lock. They
// also work on one-sided counters, whose numbers are in cells (counter_cells.h), by atomics on the
// cell; the version does not change then.
//
// Thread safety: all operations from any thread. Errors: store.h. An operation on a counter in a
// cell blocks for a round trip inside the device. kInternal: that round trip failed, and the number
// may or may not have changed.
#pragma once

#include <cstdint>
#include <optional>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/counter_cells.h"
#include "server/store/record_store.h"
#include "server/store/record_table.h"

namespace rkv::server {

struct CounterResult {
  PutResult put{};  // of a swap that was not done: the counter's version
  std::int64_t number = 0;
  bool done = true;
  // The number is in a cell. The version is that of the log entry, which no GET ever returns.
  bool in_cell = false;
};

class Counters {
 public:
  // All arguments must outlive the object.
  Counters(RecordTable& table, CommitLog& log, CounterCells& cells, RecordStore& records)
      : table_(table), log_(log), cells_(cells), records_(records) {}

  // Adds to a counter and returns the sum. An absent key counts from 0. kWrongType: the key holds a
  // plain value. kOutOfRange: the sum would exceed the limits; nothing changed.
  StoreResult<CounterResult> add(Bytes key, std::int64_t summand, const DiskLookup& look = {},
                                 Nanos begin_by = kAnyTime, const WriteTag* tag = nullptr);
  // Sets the number to `desired` if it is `expected`; otherwise returns `done` false. kNotFound.
  StoreResult<CounterResult> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                                  const DiskLookup& look = {}, Nanos begin_by = kAnyTime,
                                  const WriteTag* tag = nullptr);

  // Returns the counter's cell for clients of `network`. A counter without a cell gets one. `cell`
  // is empty if no cell is left, the number is too large for a cell, or the counter's cell belongs
  // to another network. kNotFound: the counter does not exist and `create` is false. Other errors
  // as add().
  struct Opened {
    Version version{};
    std::optional<std::uint32_t> cell{};
  };
  StoreResult<Opened> open(Bytes key, bool create, std::uint32_t network,
                           const DiskLookup& look = {}, Nanos begin_by = kAnyTime);

 private:
  struct CellPlan {
    RecordStore::Plan plan;
    std::optional<std::uint32_t> cell;  // nothing: no cell is available, and `plan` is empty
  };
  Result<CellPlan> plan_in_cell(const Target& at, RecordFields& fields, MutableBytes bytes,
                                std::uint32_t network, std::int64_t number);
  // The present record. kWrongType: it is not a counter. REQUIRES: at.found.
  Result<RecordFields> counter_at(const Target& at) const;

  RecordTable& table_;
  CommitLog& log_;
  CounterCells& cells_;
  RecordStore& records_;
};

}  // namespace rkv::server
