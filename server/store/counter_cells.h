// CounterCells: the counters that are in cells, on all networks (cells.h has the cells of one). How
// numbers get out of cells, and from cells to the log.
//
// Invariants, beside CELL-1 to CELL-4 of cells.h:
//  CELLREC-1  A record with `in_cell` names the network and the cell of its number. The number in
//      the record is that of the opening.
//  CELLREC-2  Numbers reach the log in the order in which the atomics returned them: both happen
//      under the lock of the counter's pair.
//
// Thread safety: add_network and on_first_cell before the first operation. sweep, end_all, in_use,
// totals: any thread. All operations on one counter: under the lock of its pair. They block for a
// round trip inside the device. kInternal: that round trip failed, and the number may or may not
// have changed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/layout.h"
#include "common/mutex.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/cells.h"
#include "server/store/record_table.h"

namespace rkv::server {

inline constexpr const char* kExceedsRange = "the counter would exceed 64 bits";

// The form in which the log keeps a counter that is in a cell: with the number at its opening.
inline RecordFields out_of_cell(RecordFields fields) {
  fields.in_cell = false;
  fields.value = fields.value.first(kCounterBytes);
  return fields;
}

class CounterCells {
 public:
  // Both references must outlive the object. `boot` is the upper half of all versions of this
  // start.
  CounterCells(RecordTable& table, CommitLog& log, std::uint32_t boot)
      : table_(table), log_(log), boot_(boot) {}

  // Adds the cells for the clients of one network. Returns the network's number, which records and
  // Counters::open() use. `cells` must outlive the object.
  std::uint32_t add_network(Cells& cells);
  // Sets a callback for the first cell that needs sweeping. It runs in any thread, inside an
  // operation.
  void on_first_cell(std::function<void()> call) { call_sweeper_ = std::move(call); }

  // ---- sweeping

  bool in_use() const;  // a cell has been used
  // Logs the numbers that changed since the last sweep. kBusy: the log has no space for all of
  // them. Blocks for one device round trip per changed number.
  Status sweep() { return sweep(false).status; }
  // Takes all counters out of their cells and logs them. Call it before the log is closed.
  // Afterwards no client operation on a cell succeeds. `left` counts counters whose last number is
  // not logged; `status` is the first error among them. Another call retries those. Blocks like
  // sweep().
  struct Swept {
    Status status{};
    std::uint64_t left = 0;
  };
  Swept end_all() { return sweep(true); }

  struct Totals {
    std::uint64_t cells = 0;
    std::uint64_t taken = 0;  // ever used
    std::uint64_t open = 0;   // counters in cells now
  };
  Totals totals() const;

  // ---- one counter. `counter` is its record.

  Result<std::int64_t> number_of(const RecordFields& counter) const;
  // Takes the number out of its cell. A record that is not in a cell is left alone, and the number
  // returned for it means nothing.
  Result<std::int64_t> end(const RecordFields& record) const;
  // Returns the number after the addition. Nothing: the number is no longer in a cell.
  Result<std::optional<std::int64_t>> add(const RecordFields& counter, std::int64_t summand) const;
  // Returns the number before the swap. Nothing: the number is no longer in a cell.
  Result<std::optional<std::int64_t>> swap(const RecordFields& counter, std::int64_t expected,
                                           std::int64_t desired) const;
  // Whether the number is still in its cell. REQUIRES: the record is in a cell.
  Result<bool> is_open(const RecordFields& counter) const;
  // The counter's cell, if clients of this network can reach it.
  std::optional<std::uint32_t> cell_on(std::uint32_t network, const RecordFields& counter) const;

  // ---- a new cell

  bool has_room(std::uint32_t network, std::int64_t number) const;
  // Takes a cell and begins a counter in it. Nothing: all cells are taken. REQUIRES: has_room().
  Result<std::optional<std::uint32_t>> take(std::uint32_t network, std::int64_t number) const;
  // Writes the name of a cell into the value of a counter's record, kCellCounterBytes (CELLREC-1).
  static void name_cell(MutableBytes value, std::uint32_t network, std::uint32_t cell);
  // Records which live record names the cell. Any thread, no lock.
  void own(std::uint32_t network, std::uint32_t cell, const Cells::Owner& owner);

 private:
  struct Place {
    Cells& cells;
    std::uint32_t cell;
  };
  Place place_of(const RecordFields& counter) const;
  Status scrub(Cells& cells, std::uint32_t cell) const;
  Swept sweep(bool end) RKV_EXCLUDES(sweeping_);
  Status sweep_one(Cells& cells, std::uint32_t cell, const Cells::Owner& owner, bool end);

  RecordTable& table_;
  CommitLog& log_;
  const std::uint32_t boot_;
  std::vector<Cells*> cells_;  // by network
  std::function<void()> call_sweeper_;
  std::atomic<bool> called_sweeper_{false};
  Mutex sweeping_;
  // Where the next sweep starts, counted over all cells.
  std::uint64_t sweep_from_ RKV_GUARDED_BY(sweeping_) = 0;
};

}  // namespace rkv::server
