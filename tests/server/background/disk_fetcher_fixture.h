// A store whose records come from a disk and go back to it: store, commit log, applier, loads and
// warm-up, with threads, on a disk of plain memory.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "server/background/disk_fetcher.h"
#include "server/background/warm_up.h"
#include "server/persistence/applier.h"
#include "tests/support/plain_memory.h"

namespace rkv::server {

inline constexpr std::uint16_t kBoot = 7;

// A map that serves as the database for its readers and writers.
class MapDisk final : public Storage {
 public:
  struct Record {
    Version version;
    std::uint64_t expiry_ms = 0;
    bool counter = false;
    std::string value;
  };
  using Records = std::map<std::string, std::shared_ptr<const Record>>;

  // Canary: writes show so many batches late, as if marks rose before the disk had what they say.
  std::size_t batches_late = 0;
  bool yields = false;  // between a read and what is made of it, so that anything may happen there
  std::atomic<int> write_failures{0};  // so many writes fail, each followed by a recovery

  void add_put(const RecordFields& record) override {
    batch_.emplace_back(std::string(as_text(record.key)),
                        Record{.version = record.version,
                               .expiry_ms = record.expiry_ms,
                               .counter = record.counter,
                               .value = std::string(as_text(record.value))});
  }
  void add_remove(Bytes key) override {
    batch_.emplace_back(std::string(as_text(key)), std::nullopt);
  }
  void clear_batch() override { batch_.clear(); }
  Status write_batch() override {
    if (write_failures > 0) {
      --write_failures;
      return fail(Code::kIo, "no");
    }
    const std::scoped_lock lock(mutex_);
    late_.push_back(std::move(batch_));
    batch_.clear();
    for (; late_.size() > batches_late; late_.pop_front()) {
      for (auto& [key, record] : late_.front()) {
        if (record) {
          records_[key] = std::make_shared<const Record>(std::move(*record));
        } else {
          records_.erase(key);
        }
      }
    }
    return {};
  }
  Status sync() override {
    const std::scoped_lock lock(mutex_);
    synced_ = records_;
    return {};
  }
  // As after a fatal error: what was not synced is gone until it is written again.
  Status recover() override {
    {
      const std::scoped_lock lock(open_, mutex_);
      ++reopened_;
      records_ = synced_;
    }
    if (after_loss) after_loss();
    return {};
  }

  // Called by those who read: before they have begun, after what they read was read and before they
  // do anything with it, before and after a batch of a warm-up was read; by the applier, when it
  // has reopened the database.
  std::function<void(std::string_view key)> before_read;
  std::function<void(std::string_view key)> after_read;
  std::function<void(std::string_view first)> before_walk;
  std::function<void()> before_count;  // of the times that it was reopened
  std::function<void(std::string_view first)> after_walk;
  std::function<void()> after_loss;
  int reads_of(const std::string& key) const {
    const std::scoped_lock lock(mutex_);
    const auto found = read_.find(key);
    return found == read_.end() ? 0 : found->second;
  }

  void preload(const std::string& key, Record record) {
    records_[key] = synced_[key] = std::make_shared<const Record>(std::move(record));
  }
  Records records() const {
    const std::scoped_lock lock(mutex_);
    return records_;
  }

  DiskReads reads(const CommitLog& log) const {
    return {
        .log = log,
        .read = [this](Bytes key, const DiskReads::Visitor& visit) { return read(key, visit); },
        .read_from = [this](Bytes first,
                            const DiskReads::RangeVisitor& visit) { return walk(first, visit); },
        .reopened =
            [this] {
              if (before_count) before_count();
              return reopened_.load();
            }};
  }

 private:
  using Batch = std::vector<std::pair<std::string, std::optional<Record>>>;

  template <class Visit>
  auto show(const std::string& key, const Record& record, const Visit& visit) const {
    if (yields) std::this_thread::yield();
    return visit({.version = record.version,
                  .expiry_ms = record.expiry_ms,
                  .counter = record.counter,
                  .key = as_bytes(key),
                  .value = as_bytes(record.value)});
  }
  Status read(Bytes key, const DiskReads::Visitor& visit) const {
    const std::string name(as_text(key));
    if (before_read) before_read(name);
    const std::shared_lock open(open_);  // reopened only between reads
    std::shared_ptr<const Record> record;
    {
      const std::scoped_lock lock(mutex_);
      ++read_[name];
      const auto found = records_.find(name);
      if (found == records_.end()) return fail(Code::kNotFound, nullptr);
      record = found->second;
    }
    if (after_read) after_read(name);
    return show(name, *record, visit);
  }
  Status walk(Bytes first, const DiskReads::RangeVisitor& visit) const {
    if (before_walk) before_walk(as_text(first));
    const std::shared_lock open(open_);
    std::vector<std::pair<std::string, std::shared_ptr<const Record>>> some;
    {
      const std::scoped_lock lock(mutex_);
      for (auto at = records_.lower_bound(std::string(as_text(first))); at != records_.end(); ++at)
        some.emplace_back(*at);
    }
    for (const auto& [key, record] : some) {
      if (!show(key, *record, visit)) break;
    }
    if (after_walk) after_walk(as_text(first));
    return {};
  }

  mutable std::shared_mutex open_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, int> read_;
  Records records_;
  Records synced_;
  Batch batch_;
  std::deque<Batch> late_;
  std::atomic<std::uint64_t> reopened_{0};
};

inline MemoryOptions memory_with_extents(std::size_t bytes, std::uint32_t index_growth) {
  return {.memory_bytes = bytes,
          .epoch = 0x1D0C'0FFE'E000'0001U,
          .hash_seed = 42,
          .data_extent_bytes = std::size_t{2} << 20,
          .index_growth = index_growth};
}

// Everything between the operations and the disk.
class StoreOnDisk {
 public:
  explicit StoreOnDisk(MapDisk& disk, std::size_t memory_bytes = kMinMemoryBytes,
                       std::uint64_t load_rate = 0, int sync_interval_ms = 5,
                       std::uint32_t index_growth = 3)
      : disk_(disk),
        memory_(testing::make_plain_memory(memory_with_extents(memory_bytes, index_growth))),
        log_(*CommitLog::create(CommitLog::kMinServerCapacityBytes)),
        store(*memory_, *log_, clock_, kBoot, kUnixMsAtZero),
        applier_(*log_, disk, clock_,
                 {.linger_us = 100, .sync_interval_ms = sync_interval_ms, .retry_ms_min = 1},
                 [this] { loads.marks_changed(); }),
        loads({.store = store,
               .disk = disk.reads(*log_),
               .request_write = [this](std::uint64_t s) { applier_.request_write(s); },
               .finished =
                   [this] {
                     ++finished_;
                     finished_.notify_all();
                   },
               .threads = 2}),
        warm_up({.store = store,
                 .disk = disk.reads(*log_),
                 .clock = clock_,
                 .request_write = [this](std::uint64_t s) { applier_.request_write(s); },
                 .estimated_records = 0,
                 .bytes_per_second = load_rate}) {
    store.disk().begin_loading();
    applier_.start();
    loads.start();
    janitor_ = std::thread([this] {
      while (!stopping_) {
        if (store.growth().wants_memory()) (void)store.growth().grow();
        if (store.evictor().is_needed() && !store.evictor().evict_for_space() &&
            store.evictor().evicts_after_sync()) {
          applier_.request_sync(log_->last_begun());
        }
        loads.room_made();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its pace
      }
    });
  }
  ~StoreOnDisk() { stop(); }
  // All of its threads; the memory is then at rest, and must be well.
  void stop() {
    if (stopping_.exchange(true)) return;
    warm_up.stop();
    loads.stop();
    janitor_.join();
    EXPECT_TRUE(applier_.stop());
    EXPECT_EQ(store.check_at_rest(), "");
  }
  StoreMemory& memory() { return *memory_; }
  StoreOnDisk(const StoreOnDisk&) = delete;
  StoreOnDisk& operator=(const StoreOnDisk&) = delete;

  // As a worker does it: again, when the record has come.
  template <class Operation>
  auto run(std::string_view key, Operation operation) {
    std::shared_ptr<const Load> load;
    for (;;) {
      auto done = operation(load ? load->look() : DiskLookup());
      if (done) return done;
      if (done.error().on_disk) {
        load = bring(key);
      } else if (done.error().code == Code::kBusy) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));  // as a client does
      } else {
        return done;
      }
    }
  }
  std::optional<std::string> get(std::string_view key) {
    static thread_local std::vector<std::byte> buffer(kMaxInlineBytes);
    const auto got =
        run(key, [&](DiskLookup look) { return store.get(as_bytes(key), buffer, look); });
    if (!got) return std::nullopt;
    return std::string(as_text(Bytes(buffer).first(got->value_length)));
  }
  Result<PutResult> put(std::string_view key, std::string_view value) {
    return run(key, [&](DiskLookup look) {
      return store.put(as_bytes(key), as_bytes(value), {.look = look});
    });
  }
  Result<Version> remove(std::string_view key) {
    return run(key,
               [&](DiskLookup look) { return store.remove(as_bytes(key), std::nullopt, look); });
  }
  std::shared_ptr<const Load> bring(std::string_view key) {
    for (;;) {
      auto load = loads.ask(as_bytes(key));
      while (!load->done()) {
        const int seen = finished_;
        if (!load->done()) finished_.wait(seen);
      }
      if (!load->failure()) return load;
      const Code code = load->failure()->code;
      EXPECT_TRUE(code == Code::kBusy || code == Code::kIo) << to_string(*load->failure());
    }
  }
  void await_loaded() const {
    while (store.stats().loading)
      std::this_thread::yield();
  }
  void await_synced() {
    const std::uint64_t through = log_->last_begun();
    applier_.request_sync(through);
    while (log_->sync_mark() < through)
      std::this_thread::yield();
  }
  void await_written() {
    const std::uint64_t through = log_->last_begun();
    applier_.request_write(through);
    while (log_->wal_mark() < through)
      std::this_thread::yield();
  }
  static constexpr std::uint64_t kUnixMsAtZero = 1'000'000;

 private:
  MapDisk& disk_;
  const SteadyClock clock_;
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<CommitLog> log_;

 public:
  Store store;

 private:
  Applier applier_;
  std::atomic<int> finished_{0};
  std::atomic<bool> stopping_{false};

 public:
  DiskFetcher loads;
  WarmUp warm_up;

 private:
  std::thread janitor_;
};

}  // namespace rkv::server
