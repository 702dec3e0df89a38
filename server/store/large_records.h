// LargeRecords: values longer than kMaxInlineBytes, stored in two steps so that no lock is held
// while the bytes arrive.
//
//   auto large = store.large_records().begin(key, length, options);
//   ... fill large->value, and large->copy if there is one ...
//   auto put = store.large_records().finish(std::move(*large), key, digest, options);
//
// Invariants:
//  LARGE-1  A LargePut is passed to exactly one of finish() and cancel(). Until then only its owner
//      uses the block.
//  LARGE-2  A value whose bytes are still arriving has no space in the log. So however slowly they
//      arrive, other writes find the queue to the disk as if it were not there.
//  LARGE-3  The values that were begun and are neither finished nor cancelled have together at most
//      limit_bytes(), or are a single one.
//
// Thread safety: all operations from any thread. Both steps fail like Store::put(), except that
// finish() never returns `on_disk`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/disk_tier.h"
#include "server/store/growth.h"
#include "server/store/record_store.h"
#include "server/store/record_table.h"

namespace rkv::server {

// Resources of a large value whose bytes are still arriving: a block, and memory for the log's
// copy.
struct LargePut {
  Location block{};
  std::size_t head_bytes = 0;
  std::size_t key_bytes = 0;
  // Destination of the value: shared memory, and the adapter's key for it. No reader sees these
  // bytes before finish().
  MutableBytes value{};
  std::uint32_t local_key = 0;
  // The log's copy, which the caller fills as well. nullptr if the log keeps no copies.
  CommitLog::Attachment copy{};
  std::optional<CommitLog::Reservation> room{};  // in the log, from reserve() on
  bool was_refused_room = false;
  DiskLookup look{};
  std::uint64_t units() const { return record_units(head_bytes + value.size()); }  // of the block
};

class LargeRecords {
 public:
  // All arguments must outlive the object.
  LargeRecords(RecordTable& table, CommitLog& log, DiskTier& disk, Growth& growth,
               RecordStore& records)
      : table_(table), log_(log), disk_(disk), growth_(growth), records_(records) {}

  // The epoch that value_digest() of a value for finish() takes.
  std::uint64_t epoch() const { return table_.memory().epoch(); }
  // Checks the key's presence on disk and acquires the memory. finish() checks the condition.
  // kBusy also: the values on their way have all that they may have, or the queue is full now.
  StoreResult<LargePut> begin(Bytes key, std::size_t value_length, const PutOptions& options);
  // Takes space in the log for a value that has arrived. finish() does it if nobody has. kBusy:
  // there is none now, and `large` is as before; call it again later, or finish(). Else as
  // CommitLog::try_reserve().
  Status reserve(LargePut& large);
  // Publishes the value. `digest` is value_digest() of the bytes in `large.value`. On an error
  // `large` is cancelled. Holds the pair's lock no longer than a small put does.
  Result<PutResult> finish(LargePut large, Bytes key, std::uint64_t digest,
                           const PutOptions& options);
  // REQUIRES: `large.value` is not written any more, by the caller or by a device.
  void cancel(LargePut large);
  // Stores a value that is complete in memory already.
  StoreResult<PutResult> put(Bytes key, Bytes value, const PutOptions& options);

  // The room that all arriving values may have together: a quarter of the data memory, and no more
  // bytes than the queue to the disk has. Each value has a copy on the heap.
  std::uint64_t limit_bytes() const;
  std::uint64_t bytes_under_way() const { return under_way_.load(std::memory_order_relaxed); }
  // Values that were refused because others have all of limit_bytes(), since the start.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  bool take_share(std::uint64_t bytes);
  void give_up(const LargePut& large);

  RecordTable& table_;
  CommitLog& log_;
  DiskTier& disk_;
  Growth& growth_;
  RecordStore& records_;
  std::atomic<std::uint64_t> under_way_{0};  // bytes of the blocks (LARGE-3)
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace rkv::server
