#include "server/store/stretch_clearer.h"

#include <algorithm>
#include <optional>

namespace rkv::server {

namespace {

// Blocks that are found under one lock of the extent.
constexpr std::size_t kAtOnce = 64;
// Others free blocks that lie in the stretch: these wait, and come to it when they are put back.
constexpr int kPasses = 4;
constexpr std::uint64_t kLongestInlineUnits = record_units(kMaxInlineRecordBytes);

}  // namespace

// Returns no bytes if the block's bytes are not those of a record. Any thread may write the block
// meanwhile.
Bytes StretchClearer::key_in(Location block, std::uint64_t units) {
  const std::byte* const record = table_.memory().record(block, units);
  const std::uint64_t lengths = load_word(reinterpret_cast<const std::uint64_t*>(record + 16));
  const std::size_t offset = record_key_offset(lengths);
  const std::size_t length = record_key_length(lengths);
  if (length == 0 || length > kMaxKeyBytes || offset + length > units * kUnitBytes) return {};
  copy_from_shared(MutableBytes(key_).first(length), record + offset);
  return Bytes(key_).first(length);
}

// STRETCH-1
template <class Visit>
bool StretchClearer::with_record(Location block, std::uint64_t units, Visit visit) {
  const Bytes key = key_in(block, units);
  if (key.empty()) return false;
  visited_.fetch_add(1, std::memory_order_relaxed);
  const KeyHash hash = table_.memory().hash(key);
  const RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, key);
  if (!at.found || at.found->slot.location() != block) return false;
  visit(at);
  return true;
}

// Until visit(item) returns false. Returns whether it went to the end.
template <class Visit>
bool StretchClearer::for_each_block(const Stretch& stretch, const std::function<void()>& pause,
                                    Visit visit) {
  const ExtentSpace& space = table_.blocks().space(stretch.number);
  std::array<ExtentSpace::Item, kAtOnce> items;
  std::size_t since_pause = 0;
  for (std::uint32_t at = stretch.begin; at < stretch.end;) {
    const std::size_t count = space.blocks_in(&at, stretch.end, items);
    for (const ExtentSpace::Item& item : std::span(items).first(count))
      if (!visit(item)) return false;
    since_pause += count;
    if (since_pause < 16 * kAtOnce) continue;
    since_pause = 0;
    pause();
  }
  return true;
}

double StretchClearer::cost_of(const Stretch& stretch) {
  const std::uint32_t length = stretch.end - stretch.begin;
  std::uint64_t units = 0;
  std::uint64_t uses = 0;
  if (!drops()) {
    for_each_block(
        stretch, [] {},
        [&](const ExtentSpace::Item& item) {
          units += item.units;
          return true;
        });
    return static_cast<double>(units) / length;
  }
  constexpr std::uint32_t kPlaces = 8;
  const ExtentSpace& space = table_.blocks().space(stretch.number);
  std::array<ExtentSpace::Item, 8> items;
  for (std::uint32_t place = 0; place < kPlaces; ++place) {
    std::uint32_t at = stretch.begin + length / kPlaces * place;
    const std::size_t count = space.blocks_in(&at, stretch.end, items);
    for (const ExtentSpace::Item& item : std::span(items).first(count)) {
      with_record(block_at(stretch, item), item.units, [&](const Target& target) {
        units += item.units;
        uses += item.units * table_.index().uses_of(target.home, *target.found);
      });
    }
  }
  return units == 0 ? 0 : static_cast<double>(uses) / static_cast<double>(units);
}

std::uint32_t StretchClearer::end_of_long_block(const Stretch& stretch, std::uint64_t units) {
  if (drops()) return 0;
  std::uint32_t end = 0;
  for_each_block(
      stretch, [] {},
      [&](const ExtentSpace::Item& item) {
        if (item.units > kLongestInlineUnits || 2 * std::uint64_t{item.units} >= units)
          end = item.unit + item.units;
        return end == 0;
      });
  return end;
}

// Counters in cells stay, because clients change them. Long records are not moved: the copy would
// be made under a lock.
bool StretchClearer::may_go(const RecordFields& record) const {
  return !record.in_cell && (drops() || !is_large(record.value.size()));
}

StretchClearer::Obstacle StretchClearer::look_for_obstacle(const Stretch& stretch,
                                                           const std::function<void()>& pause) {
  Obstacle obstacle = Obstacle::kNone;
  for_each_block(stretch, pause, [&](const ExtentSpace::Item& item) {
    const Location block = block_at(stretch, item);
    bool stays = false;
    const bool is_record = with_record(block, item.units, [&](const Target& at) {
      stays = !may_go(table_.record_at(at.found->slot.location()));
    });
    if (stays) obstacle = Obstacle::kStays;
    // Shorter ones are written, and freed, in a moment.
    if (!is_record && item.units > kLongestInlineUnits) obstacle = Obstacle::kPasses;
    return obstacle == Obstacle::kNone;
  });
  return obstacle;
}

// Whether the record of this block is out of it, or there is none. False: it stays.
bool StretchClearer::take_out(Location block, std::uint64_t units) {
  std::optional<Location> to;
  bool stays = false;
  const bool is_record = with_record(block, units, [&](const Target& at) {
    stays = !may_go(table_.record_at(block));
    if (!stays && !drops()) {
      to = table_.blocks().allocate(units);
      stays = !to;
    }
    if (stays) return;
    if (drops()) {
      table_.erase(at);
      at.counters->evicted += 1;
    } else {
      move_(at, *to, units);
    }
  });
  if (!is_record || stays) return !stays;
  ++gone_;
  table_.blocks().release_at_once(block, units);
  return true;
}

bool StretchClearer::take_out(const Stretch& stretch, const std::function<void()>& pause) {
  return for_each_block(stretch, pause, [&](const ExtentSpace::Item& item) {
    return take_out(block_at(stretch, item), item.units);
  });
}

// The block at the beginning may begin before it. It is looked at first, so that nothing is lost if
// it stays.
std::size_t StretchClearer::clear(const Stretch& stretch, std::uint64_t units,
                                  std::span<Location> blocks, const std::function<void()>& pause,
                                  bool* passes) {
  RecordAllocator& allocator = table_.blocks();
  ExtentSpace& space = allocator.space(stretch.number);
  const std::uint32_t begin = space.close(stretch.begin, stretch.end);
  const Stretch closed{
      .number = stretch.number, .begin = begin, .end = begin + (stretch.end - stretch.begin)};
  std::size_t count = 0;
  bool all_out = true;
  for (int pass = 0; pass < kPasses && count == 0; ++pass) {
    all_out = take_out(closed, pause);
    if (!all_out) break;
    allocator.put_back_everything();
    count = allocator.allocate_closed(stretch.number, units, blocks);
  }
  space.reopen();
  if (all_out && count == 0) *passes = true;
  return count;
}

}  // namespace rkv::server
