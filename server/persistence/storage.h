// Interface of the disk to the applier: ordered batches that sync() makes durable. StorageEngine
// implements it; tests implement it with a simulated disk.
//
// Thread safety: none; one thread at a time. All calls may block on the disk.
#pragma once

#include <cstdint>

#include "common/layout.h"
#include "rkv/result.h"

namespace rkv::server {

class Storage {
 public:
  virtual ~Storage() = default;

  // Adds a write to the pending batch. Copies key and value.
  virtual void add_put(const RecordFields& record) = 0;
  virtual void add_remove(Bytes key) = 0;
  // The batch holds every write up to this version that no later one replaces. For a storage that
  // keeps how far it has come. Call it before write_batch(), after the writes were added.
  virtual void set_through(Version /*newest*/) {}
  // Whether a batch may end behind this version. Asked when a batch has reached its limits.
  virtual bool may_end(Version /*newest*/) { return true; }
  // Hands the batch to the operating system through the write-ahead log, then empties the batch.
  // After an error the batch is unchanged and may be written again; whether it is on disk is
  // unknown.
  virtual Status write_batch() = 0;
  // Drops the pending batch.
  virtual void clear_batch() = 0;
  // Makes everything written so far survive the loss of the machine.
  virtual Status sync() = 0;
  // Claims the versions up to `sequence`: they may be given out from now on, and no later start
  // gives them out again.
  virtual Status claim_through(std::uint64_t /*sequence*/) { return {}; }
  // After an error: makes the storage writable again, if the disk allows it. Afterwards, the writes
  // since the last sync() may be missing. The caller must write them again in one batch: parts of
  // them may be on disk, and a crash between two batches would leave newer writes beside older
  // ones.
  virtual Status recover() = 0;
  // After recover() from kCorrupt: reads everything that is stored. kCorrupt: the storage is
  // damaged.
  virtual Status check_whole() { return {}; }
};

}  // namespace rkv::server
