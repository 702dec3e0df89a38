// Toucher: gives a key another time to live and leaves its value as it is.
//
// A touch is a write: it has a version, goes into the log as a put of the same value, and expires
// as one. So everything that orders, replicates and saves writes holds for it.
//
// A value that is not large is copied under the pair's lock, and published like a put's. A large
// one (layout.h) takes the first way that is possible:
//  - Only the head of its record is written again (RecordStore::plan_head): when the data is in
//    memory only, and the record has an expiry before and after, or neither.
//  - The value is copied and put again, if it still has the version that was copied.
//
// Thread safety: any thread. The lock of one pair is held for one copy of the value at most.
#pragma once

#include "common/bytes.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/counter_cells.h"
#include "server/store/disk_tier.h"
#include "server/store/large_records.h"
#include "server/store/record_store.h"
#include "server/store/record_table.h"

namespace rkv::server {

class Toucher {
 public:
  // All arguments must outlive the object.
  Toucher(RecordTable& table, CommitLog& log, DiskTier& disk, CounterCells& cells,
          RecordStore& records, LargeRecords& large_records)
      : table_(table),
        log_(log),
        disk_(disk),
        cells_(cells),
        records_(records),
        large_records_(large_records) {}

  // Sets the expiry to that of `options`; without one, the key never expires. `buffer` holds
  // kMaxInlineBytes; its content is undefined afterwards. A counter in a cell leaves it. kNotFound;
  // others: store.h, and of a put with these options.
  // kBusy also: the value has changed again and again meanwhile. kTooLarge: a large value would be
  // copied, which takes some milliseconds, and `copies_large` is false.
  StoreResult<PutResult> touch(Bytes key, const PutOptions& options, MutableBytes buffer,
                               bool copies_large);

 private:
  // Length of the key's value. kNotFound, or as DiskTier::check_in_memory().
  StoreResult<std::size_t> length_of(Bytes key, const PutOptions& options) const;
  StoreResult<PutResult> touch_small(Bytes key, std::size_t length, const PutOptions& options,
                                     MutableBytes buffer);
  StoreResult<PutResult> touch_head(Bytes key, const PutOptions& options);
  StoreResult<PutResult> put_again(Bytes key, std::size_t length, PutOptions options);
  StoreResult<std::uint64_t> copy_value(Bytes key, PutOptions& options,
                                        const LargePut& large) const;

  RecordTable& table_;
  CommitLog& log_;
  DiskTier& disk_;
  CounterCells& cells_;
  RecordStore& records_;
  LargeRecords& large_records_;
};

}  // namespace rkv::server
