// Real threads in the allocator. A map says which block each unit belongs to, so that a unit that
// is handed out twice is seen at once; and at rest the allocator's count is that of the blocks that
// live.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/random.h"
#include "server/memory/record_allocator.h"
#include "tests/server/store/store_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

// By unit, the number of the block that it belongs to; 0: none.
class Owners {
 public:
  explicit Owners(const StoreMemory& memory) : extents_(memory.extent_count()) {
    for (std::uint32_t id = 0; id < memory.extent_count(); ++id) {
      if (memory.extent(id).kind == ExtentEntry::kData)
        extents_[id] = std::vector<std::atomic<std::uint32_t>>(memory.extent(id).units());
    }
  }
  void take(Location block, std::uint64_t units, std::uint32_t number) {
    for (std::uint64_t i = 0; i < units; ++i) {
      if (at(block, i).exchange(number, std::memory_order_relaxed) != 0)
        overlaps_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  void give_back(Location block, std::uint64_t units, std::uint32_t number) {
    for (std::uint64_t i = 0; i < units; ++i) {
      if (at(block, i).exchange(0, std::memory_order_relaxed) != number)
        overlaps_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::uint64_t overlaps() const { return overlaps_; }

 private:
  std::atomic<std::uint32_t>& at(Location block, std::uint64_t i) {
    return extents_[block.extent()][block.unit() + i];
  }
  std::vector<std::vector<std::atomic<std::uint32_t>>> extents_;
  std::atomic<std::uint64_t> overlaps_{0};
};

// Takes blocks out of an allocator and gives them back, by several threads.
template <class Allocator>
class AllocatorStorm {
 public:
  AllocatorStorm(Allocator& allocator, const StoreMemory& memory)
      : allocator_(allocator), owners_(memory) {}

  // By so many steps each. One has hundreds of blocks of all sizes; one takes short ones, which are
  // cut ahead, and gives all of them back; two have a few longer ones, beside what is being cut.
  void run(std::uint64_t steps) {
    std::vector<std::thread> all;
    all.emplace_back([=, this] { work(1, steps, 500, 1, 40); });
    all.emplace_back([=, this] { work(2, steps, 300, 1, 8, true); });
    all.emplace_back([=, this] { work(3, steps, 2, 17, 40); });
    all.emplace_back([=, this] { work(4, steps, 8, 1, 100); });
    for (std::thread& thread : all)
      thread.join();
  }
  // At rest: what is wrong, or nothing.
  std::string violation() const {
    if (owners_.overlaps() != 0) return fmt::format("{} units had two owners", owners_.overlaps());
    const std::uint64_t live = live_units_ * kUnitBytes;
    const std::uint64_t used = allocator_.usage().used_bytes;
    return used == live ? "" : fmt::format("{} bytes used, {} in live blocks", used, live);
  }

 private:
  struct Taken {
    Location at;
    std::uint64_t units = 0;
    std::uint32_t number = 0;
  };

  // At most `blocks` blocks of `least` to `most` units.
  void work(std::uint32_t thread, std::uint64_t steps, std::size_t blocks, std::uint64_t least,
            std::uint64_t most, bool all_at_once = false) {
    Random random(thread);
    std::vector<Taken> mine;
    std::uint32_t number = thread;
    const auto give_back_one = [&] {
      std::swap(mine[random.below(mine.size())], mine.back());
      const Taken block = mine.back();
      mine.pop_back();
      owners_.give_back(block.at, block.units, block.number);
      allocator_.release(block.at, block.units);
    };
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (mine.size() < blocks) {
        const std::uint64_t units = least + random.below(most - least + 1);
        const auto at = allocator_.allocate(units);
        if (!at) continue;
        number += 8;
        owners_.take(*at, units, number);
        mine.push_back({*at, units, number});
      } else {
        do
          give_back_one();
        while (all_at_once && !mine.empty());
      }
    }
    for (const Taken& block : mine)
      live_units_ += block.units;
  }

  Allocator& allocator_;
  Owners owners_;
  std::atomic<std::uint64_t> live_units_{0};
};

std::unique_ptr<StoreMemory> whole_memory() {
  auto memory = testing::make_plain_memory(small_memory());
  add_all_data_extents(*memory);
  return memory;
}

constexpr std::uint64_t kSteps = kSanitized ? 60'000 : 1'500'000;  // of each thread

TEST(AllocatorRace, NoUnitBelongsToTwoBlocks) {
  for (const Nanos min_age : {Nanos{0}, Nanos{20'000}}) {
    SteadyClock clock;
    const auto memory = whole_memory();
    RecordAllocator records(*memory, clock, min_age);
    AllocatorStorm storm(records, *memory);
    storm.run(kSteps);
    EXPECT_EQ(storm.violation(), "");
  }
}

// Each thread has one block at most, a thirteenth of the memory. Freed blocks wait for an hour, so
// the wait is cut short again and again, while others cut their blocks from the only free run.
TEST(AllocatorRace, NothingIsRefusedWhileMostIsFree) {
  ManualClock clock;
  const auto memory = testing::make_plain_memory(small_memory());
  RecordAllocator records(*memory, clock, 3'600 * kNanosPerSecond);
  const std::uint64_t most = records.usage().capacity_bytes / kUnitBytes / 13;
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> all;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    all.emplace_back([&, seed] {
      Random random(seed);
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::uint64_t units = most - random.below(most / 5);
        if (const auto block = records.allocate(units)) {
          records.release(*block, units);
        } else {
          refused.fetch_add(1, std::memory_order_relaxed);
        }
      }
    });
  }
  for (std::thread& thread : all)
    thread.join();
  EXPECT_EQ(refused, 0U);
}

// Canaries: what one length that was read wrongly makes of the allocator is seen, though it happens
// once in thousands of steps.
struct Faulty {
  enum class Fault : std::uint8_t { kTwoOwners, kWrongCount };
  std::optional<Location> allocate(std::uint64_t units) {
    const bool now = fault == Fault::kTwoOwners && steps.fetch_add(1) % 5'000 == 4'999;
    const auto block = records.allocate(units);
    if (!now || !block) return block;
    // As if the block before it had been taken for longer than it is.
    return Location::of(block->extent(), std::max(block->unit(), 1U) - 1);
  }
  void release(Location block, std::uint64_t units) {
    if (fault == Fault::kTwoOwners) return;  // the book-keeping is not what is tried
    if (steps.fetch_add(1) % 5'000 != 4'999) records.release(block, units);
  }
  RecordAllocator::Usage usage() const { return records.usage(); }

  RecordAllocator& records;
  Fault fault;
  std::atomic<std::uint64_t> steps{0};
};

TEST(AllocatorRace, TheCheckerCatchesViolations) {
  for (const auto fault : {Faulty::Fault::kTwoOwners, Faulty::Fault::kWrongCount}) {
    SteadyClock clock;
    const auto memory = whole_memory();
    RecordAllocator records(*memory, clock, 0);
    Faulty faulty{.records = records, .fault = fault};
    AllocatorStorm storm(faulty, *memory);
    storm.run(20'000);
    EXPECT_NE(storm.violation().find(fault == Faulty::Fault::kTwoOwners ? "two owners" : "used"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace rkv::server
