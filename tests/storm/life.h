// One life of a store in the storm, and the record of its operations.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/store/cells.h"
#include "server/store/store.h"
#include "tests/server/background/disk_fetcher_fixture.h"

namespace rkv::storm {

enum class Kind : std::uint8_t { kSmall, kGrowing, kOnDisk };

// The fault that a canary injects.
enum class Canary : std::uint8_t {
  kNone,
  kWrongByte,  // a value with a byte that no write wrote
  kOldValue,   // a write that is acknowledged before it is done
  kMissedKey,  // a key that is removed without a record
  kLostCount,  // an addition that is acknowledged and not done
  kLostBlock,  // a block that is never freed
  kDamage,     // a live record that is overwritten
};

inline constexpr std::uint32_t kWriters = 3;
inline constexpr std::uint32_t kReaders = 2;
inline constexpr std::uint32_t kCounters = 4;  // the last two are one-sided
// With a disk: values of some 2 KiB, so more data than the 16 MiB of memory.
inline constexpr std::uint32_t kMostKeys = 10'000;

// The value of write `number` of a key. It names the write, and every byte follows from the name.
std::string value_of(std::uint64_t key, std::uint64_t number);
std::string key_of(std::uint64_t key);
std::string counter_of(std::uint64_t counter);
// True if the writes of the key have a time to live.
inline bool expires(std::uint64_t key) {
  return key % 8 == 7;
}

// The facts about a key, shared by its one writer and all readers.
struct Known {
  std::atomic<std::uint64_t> acknowledged{0};  // number of the last acknowledged write
  // Odd from the acknowledgement of a put until a removal begins. A reader that loads the same odd
  // number before and after a GET may not have missed the key.
  std::atomic<std::uint64_t> presence{0};
};

class Life {
 public:
  Life(Kind kind, std::uint64_t seed, Canary canary);
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  // Runs all threads until each writer has done this many operations. Then checks everything once
  // more, at rest.
  void run(std::uint64_t operations);

  // The first violation, or empty.
  std::string violation() const;
  void report(std::string what);
  bool over() const { return over_.load(std::memory_order_relaxed); }

  server::Store& store() { return *store_; }
  server::StoreMemory& memory() { return *memory_; }
  // Like a worker: repeats the operation when there is space or the record is loaded.
  template <class Operation>
  auto run_operation(std::string_view key, Operation operation) {
    for (;;) {
      auto done = on_disk_ ? on_disk_->run(key, operation) : operation(server::DiskLookup());
      if (done || done.error().code != Code::kBusy || over()) return done;
      std::this_thread::yield();
    }
  }
  // Like a client: an atomic on the cell. False: the cell is sealed.
  bool add_to_cell(std::uint32_t cell, std::int64_t summand);

  const Kind kind;
  const Canary canary;
  const std::uint64_t keys;
  const Clock& clock() const { return clock_; }
  std::array<Known, kMostKeys> known{};
  std::array<std::atomic<std::int64_t>, kCounters> counted{};
  std::uint32_t network = 0;
  std::atomic<std::uint64_t> gets{0};
  std::atomic<std::uint64_t> one_sided{0};
  std::atomic<std::uint64_t> writes{0};

 private:
  void keep_house();
  void check_contents();
  void check_counters();
  void damage();

  const std::uint64_t seed_;
  SteadyClock clock_;
  std::unique_ptr<server::MapDisk> disk_;
  std::unique_ptr<server::StoreOnDisk> on_disk_;
  std::unique_ptr<server::StoreMemory> own_memory_;
  std::unique_ptr<server::CommitLog> own_log_;
  std::unique_ptr<server::Store> own_store_;
  server::StoreMemory* memory_ = nullptr;
  server::Store* store_ = nullptr;
  std::unique_ptr<rdma::Region> words_;
  std::unique_ptr<server::Cells> cells_;
  std::atomic<bool> over_{false};
  std::atomic<bool> house_is_kept_{true};
  mutable std::mutex mutex_;
  std::string violation_;
};

// Writes to the keys whose remainder by kWriters is `number`.
void write_storm(Life& life, std::uint32_t number, std::uint64_t seed, std::uint64_t operations);
// GETs by the client's GET core until the life is over.
void read_storm(Life& life, std::uint64_t seed);

}  // namespace rkv::storm
