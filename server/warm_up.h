// After a start: brings what is on disk into memory, or, when memory is full, into the index alone,
// while operations run. Until it has come to the end any key may be on disk.
//
// Invariants:
//  Y1  When the store is told end_loading(), every record that is on disk has been given to it, as
//      it was in a read that may be believed (J1, V2).
//  Y2  As long as something cannot be read, or has no room in the index, the loading does not end:
//      keys that are not found in memory go on being looked up on disk. Nothing is missed; it is
//      slower.
//
// Thread safety: one owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/background.h"
#include "server/disk_reads.h"
#include "server/store.h"

namespace rkv::server {

class WarmUp {
 public:
  struct Parts {
    Store& store;
    DiskReads disk;
    const Clock& clock;
    std::function<void(std::uint64_t sequence)> request_write;  // as of the applier
    std::uint64_t estimated_records = 0;
    std::uint64_t bytes_per_second = 0;  // 0: as fast as it goes
    MakeBackground make_background = background_threads;
  };
  explicit WarmUp(Parts parts) : parts_(std::move(parts)), background_(parts_.make_background()) {}
  ~WarmUp();  // stopped
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  void start();
  void stop();
  std::uint64_t records() const { return records_.load(std::memory_order_relaxed); }

 private:
  enum class End : std::uint8_t { kMore, kWhole, kFailed };
  void run();
  End batch();
  End read_batch(const DiskReads::AsOf& as_of);
  // What was read and not yet given to the store. Records lie all over its memory, so a handful of
  // them is waited for together.
  class Ahead {
   public:
    // Copies it. False: there is no room beside the others.
    bool add(const RecordFields& record);
    void clear();
    std::span<const RecordFields> records() const { return records_; }

   private:
    std::vector<RecordFields> records_;
    std::vector<std::byte> bytes_;
  };
  Status take_ahead(const DiskReads::AsOf& as_of);
  Status take_next(const RecordFields& record, const DiskReads::AsOf& as_of);
  Status take(const RecordFields& record, const DiskReads::AsOf& as_of);
  bool has_room();
  void wait(Nanos time);
  bool stopping();

  const Parts parts_;
  const std::unique_ptr<Background> background_;
  Ahead ahead_;
  std::string next_;  // nothing below it is to be taken any more
  std::string why_;
  Nanos pause_ = 0;             // before the next batch
  bool told_ = false;           // that it waits
  std::uint64_t wait_for_ = 0;  // what must be written before it can be
  std::uint64_t bytes_ = 0;
  std::uint64_t kept_on_disk_ = 0;
  std::uint64_t room_checked_ = 0;
  bool has_room_ = true;
  std::atomic<std::uint64_t> records_{0};
  std::mutex mutex_;  // guards the next
  bool stopping_ = false;
};

}  // namespace rkv::server
