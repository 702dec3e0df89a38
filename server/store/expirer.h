// Expirer: deletes a key at the time that the server's clock says.
//
// Invariants:
//  EXPIRY-1  Each record with an expiry in memory has a note, unless there was no memory for the
//      note. Such a record expires at the next start.
//  EXPIRY-2  A note acts only on the record that it was made for: it carries the record's version.
//
// Thread safety: expire(): one thread. on_earlier_expiry(): before the first operation. All others:
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/clock.h"
#include "server/persistence/commit_log.h"
#include "server/store/counter_cells.h"
#include "server/store/disk_tier.h"
#include "server/store/expiries.h"
#include "server/store/expiry_clock.h"
#include "server/store/record_table.h"

namespace rkv::server {

class Expirer {
 public:
  // All references must outlive the object. `boot` is the upper half of all versions of this start.
  Expirer(RecordTable& table, CommitLog& log, ExpiryClock& clock, CounterCells& cells,
          DiskTier& disk, std::uint32_t boot)
      : table_(table), log_(log), clock_(clock), cells_(cells), disk_(disk), boot_(boot) {}

  // Removes expired records, as a DELETE does. Returns when to call it next, by the clock: when the
  // next record expires, but at most one second from now. If the commit log is full, it does not
  // wait: it returns a time 1 ms away.
  Nanos expire();
  // Sets a callback for a record that expires earlier than all others. It runs in any thread,
  // inside an operation.
  void on_earlier_expiry(std::function<void()> call) { call_ = std::move(call); }

  // Notes that a record expires. Call it after the record was published.
  void note(KeyHash hash, const RecordFields& fields);
  std::size_t note_count() const { return expiries_.size(); }

 private:
  bool expire_one(const Expiry& expiry, Version begun);
  bool is_stale(const Expiry& expiry) const;

  RecordTable& table_;
  CommitLog& log_;
  ExpiryClock& clock_;
  CounterCells& cells_;
  DiskTier& disk_;
  const std::uint32_t boot_;
  Expiries expiries_;
  std::function<void()> call_;
};

}  // namespace rkv::server
