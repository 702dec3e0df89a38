// What the applier needs of a disk: ordered batches, made durable. Engine is the real one; tests
// put a simulated one in its place.
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

  // The batch in the making; the bytes are copied.
  virtual void add_put(const RecordFields& record) = 0;
  virtual void add_remove(Bytes key) = 0;
  // Hands the batch to the operating system by way of the write-ahead log and empties it. After an
  // error the batch is as it was and may be written again; whether it is on disk is not known.
  virtual Status write_batch() = 0;
  virtual void clear_batch() = 0;
  // What was written survives the end of the machine.
  virtual Status sync() = 0;
  // Versions up to that sequence may be given out from now on, and never again by a later start.
  virtual Status claim_through(std::uint64_t /*sequence*/) { return {}; }
  // After an error: makes the storage writable again, if the disk lets it. What was written since
  // the last sync() may then be missing and has to be written again, in one batch, because parts
  // of it may be there, and a crash in the middle would leave the newer parts beside older ones.
  virtual Status recover() = 0;
  // After recover() from kCorrupt: reads everything that is stored. kCorrupt: it is damaged indeed.
  virtual Status check_whole() { return {}; }
};

}  // namespace rkv::server
