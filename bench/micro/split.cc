// The time to split a segment of the index, for which a writer of one of its keys may have to wait.
// Clients continue to READ meanwhile.
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "bench/micro/plain_memory.h"
#include "common/check.h"
#include "common/random.h"
#include "server/index/index.h"

namespace rkv::server {
namespace {

// An index without a store. Keys are 8 random bytes; records have only header and key, because a
// split reads nothing else of them.
class Grower {
 public:
  Grower() {
    const MemoryOptions options{.memory_bytes = std::size_t{256} << 20,
                                .epoch = 1,
                                .hash_seed = 2,
                                .initial_segments = 1,
                                .max_segments = kSegments,
                                .index_extent_bytes = kSegments * kSegmentBytes};
    memory_ = std::move(StoreMemory::create(options, bench::PlainMemory::make).value());
    index_ = std::make_unique<Index>(*memory_);
    data_ = memory_->add_extent(ExtentEntry::kData).value();
  }

  // Fills the next segment until as many keys are stashed as in a segment that must split. nullopt:
  // all segments are used up.
  std::optional<Segment> crowd_one() {
    while (memory_->segments().unused() != 0) {
      const auto key = insert();
      if (!key) return std::nullopt;
      const Segment segment = memory_->segments().route(*key);
      if (index_->wants_split(segment)) return segment;
    }
    return std::nullopt;
  }
  void split(Segment segment) { index_->split(segment, *memory_->segments().take()); }

  static constexpr std::uint32_t kGroups = MemoryOptions{}.groups_per_segment;

 private:
  static constexpr std::uint32_t kSegments = 256;
  static constexpr std::size_t kSegmentBytes = kGroups * kGroupBytes;

  std::optional<KeyHash> insert() {
    const std::uint64_t key = random_();
    const auto bytes = std::as_bytes(std::span(&key, 1));
    const std::uint64_t units = record_units(record_bytes(bytes.size(), 0));
    if (next_unit_ + units > data_.units()) return std::nullopt;
    const Location at = Location::of(data_.id, static_cast<std::uint32_t>(next_unit_));
    next_unit_ += units;
    std::array<std::byte, 2 * kUnitBytes> record{};
    encode_record(record, {.version = Version::of(1, next_unit_), .key = bytes}, RecordState::kLive,
                  memory_->epoch(), at);
    copy_to_shared(memory_->record(at, units), Bytes(record).first(units * kUnitBytes));
    const KeyHash hash = memory_->hash(bytes);
    const GroupPlace home = memory_->home(hash);
    const auto vacancy = index_->vacancy(home);
    RKV_CHECK(vacancy, "the stash has room for an eighth of the slots");
    index_->insert(home, *vacancy, Slot::of(hash.fingerprint(), units, at));
    return hash;
  }

  Random random_{5};
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Index> index_;
  StoreMemory::Extent data_;
  std::uint64_t next_unit_ = 0;
};

void segment_split(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  auto grower = std::make_unique<Grower>();
  for ([[maybe_unused]] auto _ : state) {
    auto segment = grower->crowd_one();
    if (!segment) {
      grower = std::make_unique<Grower>();
      segment = grower->crowd_one();
    }
    const auto begin = Clock::now();
    grower->split(*segment);
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  // A segment that must split has about as many keys as slots.
  state.SetItemsProcessed(
      static_cast<std::int64_t>(state.iterations() * Grower::kGroups * kSlotsPerGroup));
}
BENCHMARK(segment_split)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rkv::server
