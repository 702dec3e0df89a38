// LargeRecords: values longer than kMaxInlineBytes, stored in two steps so that no lock is held
// while the bytes arrive.
//
//   auto large = store.large_records().begin(key, length, options);
//   ... fill large->value, and large->copy if there is one ...
//   auto put = store.large_records().finish(std::move(*large), key, digest, options);
//
// Invariant: a LargePut is passed to exactly one of finish() and cancel(). Until then only its
// owner uses the block and the space in the log.
//
// Thread safety: all operations from any thread. Both steps fail like Store::put(), except that
// finish() never returns `on_disk`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/persistence/commit_log.h"
#include "server/store/disk_tier.h"
#include "server/store/growth.h"
#include "server/store/record_store.h"
#include "server/store/record_table.h"

namespace rkv::server {

// Resources of a large value whose bytes are still arriving: a block and space in the log, taken
// before the first byte.
struct LargePut {
  Location block{};
  std::size_t head_bytes = 0;
  // Destination of the value: shared memory, and the adapter's key for it. No reader sees these
  // bytes before finish().
  MutableBytes value{};
  std::uint32_t local_key = 0;
  // The log's copy, which the caller fills as well. nullptr if the log keeps no copies.
  CommitLog::Attachment copy{};
  CommitLog::Reservation room{};
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
  StoreResult<LargePut> begin(Bytes key, std::size_t value_length, const PutOptions& options);
  // Publishes the value. `digest` is value_digest() of the bytes in `large.value`. On an error
  // `large` is cancelled. Holds the pair's lock no longer than a small put does.
  Result<PutResult> finish(LargePut large, Bytes key, std::uint64_t digest,
                           const PutOptions& options);
  // REQUIRES: `large.value` is not written any more, by the caller or by a device.
  void cancel(LargePut large);
  // Stores a value that is complete in memory already.
  StoreResult<PutResult> put(Bytes key, Bytes value, const PutOptions& options);

 private:
  RecordTable& table_;
  CommitLog& log_;
  DiskTier& disk_;
  Growth& growth_;
  RecordStore& records_;
};

}  // namespace rkv::server
