// Random operations against std::map, seen by the server's own GET and by the reference reader.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "common/random.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

using Model = std::map<std::string, std::string>;

// Every flag of the index says what is true: overflow exactly while the neighbour holds a guest,
// spilled exactly while keys are stashed, nobody waits while there is room.
void check_flags(const StoreUnderTest& t, const Model& model) {
  std::map<std::uint64_t, std::uint64_t> keys_of_pair;
  std::map<std::uint64_t, std::uint64_t> keys_of_home;
  for (const auto& [key, value] : model) {
    const GroupPlace home = t.memory->home(t.memory->hash(as_bytes(key)));
    keys_of_home[home.bits()] += 1;
    keys_of_pair[home.bits() / 2] += 1;
  }
  for (const auto& [bits, keys] : keys_of_home) {
    const GroupPlace home{.extent = static_cast<std::uint32_t>(bits >> 32),
                          .number = static_cast<std::uint32_t>(bits)};
    const Group& group = *t.memory->group(home);
    RC_ASSERT(verify_group(group, kTestEpoch, home));
    const GroupHeader header = GroupHeader::decode(group.header);
    const std::uint64_t pair = keys_of_pair[home.bits() / 2];
    // More keys than a home has slots: some are abroad. No more than that: all are at home, unless
    // guests were there first.
    if (keys > kSlotsPerGroup) RC_ASSERT(header.overflow || header.spilled);
    if (pair <= 2 * kSlotsPerGroup) RC_ASSERT(!header.spilled);
    const auto used = std::count_if(group.slots.begin(), group.slots.end(),
                                    [](std::uint64_t slot) { return slot != 0; });
    if (header.overflow || header.spilled) RC_ASSERT(used == kSlotsPerGroup);
  }
}

void check_everything(StoreUnderTest& t, const Model& model, int key_count) {
  for (int i = 0; i < key_count; ++i) {
    const std::string key = fmt::format("key{}", i);
    const auto expected = model.find(key);
    const auto value = t.get(key);
    RC_ASSERT(value.has_value() == (expected != model.end()));
    if (value) RC_ASSERT(*value == expected->second);
    RC_ASSERT(t.read_or_ask(key) == value);
  }
  RC_ASSERT(t.store.stats().records == model.size());
  check_flags(t, model);
}

std::string random_value(Random& random) {
  // Mostly small, so that rewriting in place is common; a few of every size up to the limit.
  const std::size_t length = random.below(40) == 0  ? random.below(kMaxInlineBytes + 1)
                             : random.below(4) == 0 ? random.below(2000)
                                                    : random.below(60);
  return std::string(length, static_cast<char>('a' + random.below(26)));
}

void run_model(const MemoryOptions& options, std::uint64_t seed, int key_count, int steps) {
  StoreUnderTest t(options);
  Model model;
  Random random(seed);
  for (int step = 0; step < steps; ++step) {
    const std::string key = fmt::format("key{}", random.below(key_count));
    // Tides: the store fills, then empties, so that the stash fills and empties too.
    const bool rising = step / (3 * key_count) % 2 == 0;
    if (random.below(10) < (rising ? 8U : 3U)) {
      const std::string value = random_value(random);
      const auto put = t.put(key, value);
      if (put) {
        model[key] = value;
      } else {
        RC_ASSERT(put.error().code == Code::kOutOfMemory);
      }
    } else {
      RC_ASSERT(t.remove(key).has_value() == (model.erase(key) == 1));
    }
    if (step % key_count == 0) check_everything(t, model, key_count);
  }
  check_everything(t, model, key_count);
  for (const auto& [key, value] : model)
    RC_ASSERT(t.remove(key).has_value());
  RC_ASSERT(t.store.stats().data_bytes_used == 0U);
  RC_ASSERT(t.store.stats().stashed_records == 0U);
}

TEST(StoreModel, OnePair) {
  EXPECT_TRUE(rc::check(
      [](std::uint64_t seed) { run_model(one_pair(), seed, 90, kSanitized ? 500 : 3000); }));
}

// Tides again: what split when the store was full stays split when it is empty.
TEST(StoreModel, SegmentsSplit) {
  EXPECT_TRUE(rc::check(
      [](std::uint64_t seed) { run_model(growing_pairs(), seed, 600, kSanitized ? 1500 : 6000); }));
}

TEST(StoreModel, ManyPairsSeveralExtents) {
  MemoryOptions options = small_memory();
  options.data_extent_bytes = std::size_t{1} << 20;
  fix_index(options, 4);
  options.groups_per_segment = 4;
  EXPECT_TRUE(rc::check(
      [&](std::uint64_t seed) { run_model(options, seed, 500, kSanitized ? 500 : 6000); }));
}

}  // namespace
}  // namespace rkv::server
