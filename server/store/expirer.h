// Expirer: deletes a key at the time that the server's clock says.
//
// The index knows when the records of each pair may expire first (due_times.h). expire() looks at
// the pairs whose time has come. Its cost is that of the records of these pairs, however many
// others expire later.
//
// Invariants:
//  EXPIRY-1  Each record with an expiry in memory lies in a pair whose due time is not after its
//      expiry (DUE-1).
//  EXPIRY-2  A record is removed if the clock has reached the expiry that it has under the lock of
//      its pair.
//
// Thread safety: expire(): one thread. on_earlier_expiry(): before the first operation. note():
// under the lock of the record's pair.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "server/log/commit_log.h"
#include "server/store/counter_cells.h"
#include "server/store/disk_tier.h"
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
  // next record may expire, but at most one second from now. After a removal that is at least
  // 20 ms away, so that records of about the same time are removed together. If the commit log is
  // full, it does not wait: it returns a time 1 ms away.
  Nanos expire();
  // Sets a callback for a record that expires earlier than all others. It runs in any thread,
  // inside an operation.
  void on_earlier_expiry(std::function<void()> call) { call_ = std::move(call); }

  // Notes when a record of this home expires; 0: never. Returns true if no other record expires
  // earlier: the caller then calls wake(), without the lock.
  bool note(GroupPlace home, std::uint64_t expiry_ms) {
    return expiry_ms != 0 && table_.index().due().note(home, expiry_ms);
  }
  void wake() const {
    if (call_) call_();
  }

 private:
  // The state when a look begins. `begun`: the last version begun before the clock said `now_ms`
  // (EXPCLOCK-1).
  struct Moment {
    Version begun;
    std::uint64_t now_ms = 0;
  };
  enum class Removal : std::uint8_t { kDone, kLogIsFull, kCannot };
  // Room in the log: not asked for yet, there, or refused because the log has failed.
  using Room = std::optional<Result<CommitLog::Reservation>>;

  Moment moment() const;
  Removal expire_segment(std::uint32_t prefix, Segment segment, const Moment& moment);
  Removal expire_pair(std::uint32_t prefix, std::uint32_t pair, const Moment& moment);
  std::optional<Index::Resident> look(GroupPlace even, std::uint64_t now_ms);
  bool remove(const RecordTable::Pair& pair, const Index::Resident& due,
              const Result<CommitLog::Reservation>& room, const Moment& moment);

  RecordTable& table_;
  CommitLog& log_;
  ExpiryClock& clock_;
  CounterCells& cells_;
  DiskTier& disk_;
  const std::uint32_t boot_;
  std::function<void()> call_;
};

}  // namespace rkv::server
