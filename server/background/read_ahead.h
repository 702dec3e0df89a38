// ReadAhead: reads all records of the disk in the order of their keys, a batch ahead of the thread
// that takes them. A read waits for the disk and unpacks blocks, while the taking waits for memory:
// on two processors both go on at once.
//
//   reader.start();
//   reader.ask(first, disk.begin());
//   const ReadAhead::Batch& batch = reader.await();
//   reader.ask(batch.next(), disk.begin());        // is read while `batch` is taken
//   ...
//   reader.stop();
//
// Invariants:
//  AHEAD-1  At most one batch is asked for and not awaited. It is read into the batch that await()
//      did not return last. So the batch that await() returned last does not change.
//  AHEAD-2  The records of a batch were read while still_holds(as_of), so the read has seen every
//      write at or below as_of.sequence (DREAD-1).
//
// Thread safety: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "server/background/background_thread.h"
#include "server/background/disk_reads.h"

namespace rkv::server {

class ReadAhead {
 public:
  class Batch {
   public:
    std::span<const RecordFields> records() const { return records_; }
    const std::string& first() const { return first_; }  // the key where the batch begins
    const std::string& next() const { return next_; }    // the first key after the batch's records
    const DiskReads::AsOf& as_of() const { return as_of_; }
    // An error ended the read after the records. kStale: the database was reopened meanwhile.
    // kOutOfMemory: this process has no memory for the records. After either error there are no
    // records.
    const Status& read() const { return read_; }
    // Whether there was no record from next() on, as of as_of().
    bool is_last() const { return last_; }

   private:
    friend class ReadAhead;
    void read_from(const DiskReads& disk);
    void add(const RecordFields& record);

    std::size_t most_ = 0;  // records
    std::string first_;
    std::string next_;
    DiskReads::AsOf as_of_;
    Status read_;
    bool last_ = false;
    std::vector<RecordFields> records_;
    std::vector<std::byte> bytes_;  // of keys and values
  };

  static constexpr std::size_t kMostRecords = 1024;

  ReadAhead(const DiskReads& disk, std::unique_ptr<BackgroundThread> background)
      : disk_(disk), background_(std::move(background)) {}
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Starts the thread.
  void start();
  // Ends the thread after the read under way, and releases the memory of the batches.
  void stop();
  // Lets the thread read the records from `first` on, `most` of them at most. `as_of`: from
  // disk.begin(), called before. REQUIRES: started; not asked(). Does not block.
  void ask(const std::string& first, const DiskReads::AsOf& as_of, std::size_t most = kMostRecords);
  // Whether a batch was asked for and not awaited.
  bool asked() const { return asked_; }
  // Blocks until the batch is read. It stays valid until the second ask() from now. REQUIRES:
  // asked().
  const Batch& await();

 private:
  void run();

  const DiskReads& disk_;
  std::array<Batch, 2> batches_;  // the thread has batches_[next_] while reading_
  std::size_t next_ = 0;
  bool asked_ = false;
  Mutex mutex_;
  bool reading_ RKV_GUARDED_BY(mutex_) = false;
  const std::unique_ptr<BackgroundThread> background_;
};

}  // namespace rkv::server
