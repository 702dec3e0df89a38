// WarmUp: after a start, loads all records on disk into memory while operations run. When memory is
// full, it adds them to the index only. Until it is done, any key may be on disk. One thread reads
// records (ReadAhead), another takes them.
//
// Invariants:
//  WARM-1  When end_loading() is called, every record on disk has been passed to the store as a
//      trustworthy read found it (DREAD-1, REMSEQ-2).
//  WARM-2  While a record cannot be read, or the index has no space for it, loading does not end.
//      Keys that are not found in memory are then still looked up on disk. That is slower but
//      misses nothing. If the thread gives up, end_loading() is never called.
//  WARM-3  The batch that is being taken, and the one that is read ahead, are read as of the
//      progress's sequence or a later one. When the disk fails, the mark of written entries falls,
//      and the next batch is not read ahead. Otherwise a record that is not in the batch could
//      leave memory without a slot.
//
// Thread safety: one owner; records(): any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/background/background_thread.h"
#include "server/background/disk_reads.h"
#include "server/background/read_ahead.h"
#include "server/store/store.h"

namespace rkv::server {

class WarmUp {
 public:
  struct Parts {
    Store& store;
    DiskReads disk;
    const Clock& clock;
    std::function<void(std::uint64_t sequence)> request_write;  // Applier::request_write
    std::uint64_t estimated_records = 0;
    std::uint64_t bytes_per_second = 0;  // 0: no limit
    MakeBackground make_background = background_threads;
  };
  explicit WarmUp(Parts parts)
      : parts_(std::move(parts)),
        reader_(parts_.disk, parts_.make_background()),
        background_(parts_.make_background()) {}
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  // Throws std::system_error if a thread cannot be started; stop() is allowed then.
  void start();
  void stop();
  std::uint64_t records() const { return records_.load(std::memory_order_relaxed); }

 private:
  enum class End : std::uint8_t { kMore, kWhole, kFailed };
  void run();
  End batch();
  void read_ahead(const ReadAhead::Batch& read);
  End after(const Error& error);
  Status take_all(const ReadAhead::Batch& read);
  Status take_next(const RecordFields& record, const DiskReads::AsOf& as_of);
  Status take(const RecordFields& record, const DiskReads::AsOf& as_of);
  bool has_room();
  void wait(Nanos time);

  const Parts parts_;
  ReadAhead reader_;
  std::string next_;                   // all records below it have been taken
  std::string why_;                    // why loading failed
  Nanos pause_ = 0;                    // before the next batch
  bool logged_that_it_waits_ = false;  // the log has a line saying that loading waits
  std::size_t batch_records_ = ReadAhead::kMostRecords;
  std::uint64_t wait_for_ = 0;  // sequence that must be written before the next batch
  std::uint64_t bytes_ = 0;
  std::uint64_t kept_on_disk_ = 0;
  std::uint64_t room_checked_ = 0;
  bool has_room_ = true;
  std::atomic<std::uint64_t> records_{0};
  Mutex mutex_;
  const std::unique_ptr<BackgroundThread> background_;
};

}  // namespace rkv::server
