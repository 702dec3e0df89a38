// Real threads: writers storm, a reader copies words out of the memory at the same time. What it
// can prove must be something that was written, and never older than what it saw before. Run under
// ThreadSanitizer too: remote reads race with stores on purpose, through atomics only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "common/random.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

constexpr std::uint64_t kKeys = 80;  // more than one pair has slots: guests and stash are at work
constexpr std::uint64_t kMaxKeys = 800;                               // of a store that grows
constexpr std::uint64_t kValuesRead = kSanitized ? 20'000 : 200'000;  // then the storm is over
constexpr std::uint64_t kLifeValues = 5'000;  // of one of many stores that grow
constexpr std::uint64_t kLifeSplits = 8;
constexpr std::uint64_t kLongLife = 3'600'000;  // in ms, of a key that is touched

std::string key_of(std::uint64_t i) {
  return fmt::format("key{}", i);
}

// "<number>:" and a filling that follows from the number.
std::string value_of(std::uint64_t number, std::size_t step = 40) {
  std::string value = fmt::format("{}:", number);
  value.resize(20 + mix64(number) % 5 * step, static_cast<char>('a' + number % 26));
  return value;
}
std::uint64_t number_in(const std::string& value, std::size_t step) {
  const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
  EXPECT_TRUE(value == value_of(number, step)) << "not a value that was ever written";
  return number;
}

struct Shared {
  explicit Shared(const MemoryOptions& options = one_pair(), std::uint64_t key_count = kKeys)
      : keys(key_count), memory(testing::make_plain_memory(options)) {}
  const std::uint64_t keys;
  SteadyClock clock;
  std::unique_ptr<StoreMemory> memory;
  std::unique_ptr<CommitLog> log = CommitLog::create_volatile();
  Store store{*memory, *log, clock, kTestBoot};
  std::size_t step = 40;        // of the values' lengths
  std::uint64_t ballast = 0;    // other records
  bool has_background = false;  // a further thread changes the store until `stop`
  bool may_be_full = false;     // then a put may be refused, and changes nothing
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> looked_at{0};  // records, for runs
  std::atomic<std::uint64_t> runs{0};       // made
  // Per key: the number that the last acknowledged put left.
  std::array<std::atomic<std::uint64_t>, kMaxKeys> acknowledged{};
  // Per key: odd from the acknowledgement of a put until a remove begins. A reader that finds the
  // same odd number before and after its GET may not have missed the key.
  std::array<std::atomic<std::uint64_t>, kMaxKeys> presence{};
};

// Writes to the keys whose number leaves `remainder` when divided by `writers`, so that each key
// has one writer and its numbers rise.
void write_storm(Shared& shared, std::uint64_t remainder, std::uint64_t writers) {
  Random random(remainder + 1);
  std::vector<std::byte> buffer(kMaxInlineBytes);
  std::uint64_t number = 0;
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const std::uint64_t key = random.below(shared.keys / writers) * writers + remainder;
    std::atomic<std::uint64_t>& presence = shared.presence[key];
    const std::uint64_t present = presence.load(std::memory_order_relaxed);
    if (random.below(8) == 0) {
      if (present % 2 == 1) presence.store(present + 1, std::memory_order_release);
      const auto removed = shared.store.remove(as_bytes(key_of(key)));
      EXPECT_TRUE(removed || removed.error().code == Code::kNotFound);
      continue;
    }
    if (random.below(8) == 0) {  // the number stays
      const PutOptions options{.ttl_ms = random.below(2) * kLongLife};
      const auto touched = shared.store.touch(as_bytes(key_of(key)), options, buffer);
      const Code code = touched ? Code{} : touched.error().code;
      EXPECT_TRUE(touched || code == Code::kNotFound || code == Code::kBusy ||
                  (shared.may_be_full && code == Code::kOutOfMemory))
          << to_string(touched.error());
      continue;
    }
    number += 1;
    const std::string value = value_of(number, shared.step);
    auto put = shared.store.put(as_bytes(key_of(key)), as_bytes(value));
    while (!put && put.error().code == Code::kBusy) {  // memory is on its way
      if (shared.stop.load(std::memory_order_relaxed)) return;
      put = shared.store.put(as_bytes(key_of(key)), as_bytes(value));
    }
    if (!put && shared.may_be_full && put.error().code == Code::kOutOfMemory) {
      std::this_thread::yield();  // to the background, which makes room
      continue;
    }
    ASSERT_TRUE(put) << to_string(put.error());
    // Release: a reader that sees this number may expect nothing older.
    shared.acknowledged[key].store(number, std::memory_order_release);
    if (present % 2 == 0) presence.store(present + 1, std::memory_order_release);
  }
}

struct ReadCounts {
  std::uint64_t values = 0;
  std::uint64_t misses = 0;
  std::uint64_t hits_foreseen = 0;  // of keys that were there all the while: a miss would be wrong
  std::uint64_t asked = 0;
};

// The least counts at which a storm ends.
struct Until {
  std::uint64_t values = kValuesRead;
  std::uint64_t splits = 0;   // of segments
  std::uint64_t evicted = 0;  // records
  std::uint64_t runs = 0;     // made
  // Records, for runs. Or twenty times as many runs are made: where free memory lies together, they
  // need no look at records.
  std::uint64_t looked_at = 0;
};

bool is_reached(const Until& until, const Shared& shared) {
  if (shared.looked_at < until.looked_at && shared.runs < 20 * until.looked_at) return false;
  if (shared.runs < until.runs) return false;
  if (until.splits == 0 && until.evicted == 0) return true;  // stats() would slow the reader
  const StoreStats stats = shared.store.stats();
  return stats.index_splits >= until.splits && stats.evicted >= until.evicted;
}

ReadCounts read_storm(Shared& shared, const Until& until) {
  const testing::ReferenceReader reader(shared.memory->root().bytes(), kTestEpoch);
  testing::ReadPort port;
  testing::ReferenceReader::Cache cache;
  ReadCounts counts;
  std::array<std::uint64_t, kMaxKeys> newest{};
  std::array<Version, kMaxKeys> newest_version{};
  std::vector<std::byte> buffer(kMaxInlineBytes);
  Random random(99);
  const auto over = [&] { return counts.values >= until.values && is_reached(until, shared); };
  while (!over() && !::testing::Test::HasFailure()) {
    const std::uint64_t key = random.below(shared.keys);
    const std::uint64_t present = shared.presence[key].load(std::memory_order_acquire);
    const std::uint64_t least = shared.acknowledged[key].load(std::memory_order_acquire);
    testing::Answer answer =
        reader.get_now(port, key_of(key), random.below(2) == 0 ? &cache : nullptr);
    // Release: the GET's loads are over when the number is looked at again.
    const bool there_throughout =
        present % 2 == 1 && shared.presence[key].fetch_add(0, std::memory_order_acq_rel) == present;
    counts.hits_foreseen += there_throughout ? 1U : 0U;
    if (answer.kind == testing::Answer::Kind::kAskServer) {
      counts.asked += 1;
      const auto got = shared.store.get(as_bytes(key_of(key)), buffer);
      if (!got) continue;
      answer.value = std::string(as_text(Bytes(buffer).first(got->value_length)));
      answer.version = got->version;
    } else if (answer.kind == testing::Answer::Kind::kMiss) {
      counts.misses += 1;
      EXPECT_FALSE(there_throughout && !shared.store.evictor().drops())
          << key_of(key) << " was there and was missed";
      continue;
    }
    counts.values += 1;
    const std::uint64_t number = number_in(answer.value, shared.step);
    EXPECT_GE(number, least) << "older than what had been acknowledged";
    EXPECT_GE(number, newest[key]) << "older than what had been read";
    EXPECT_GE(answer.version, newest_version[key]);
    newest[key] = number;
    newest_version[key] = answer.version;
  }
  return counts;
}

ReadCounts storm(Shared& shared, std::uint64_t writers, const Until& until = {}) {
  std::vector<std::thread> threads;
  threads.reserve(writers);
  for (std::uint64_t i = 0; i < writers; ++i)
    threads.emplace_back([&, i] { write_storm(shared, i, writers); });
  const ReadCounts counts = read_storm(shared, until);
  shared.stop = true;
  for (std::thread& thread : threads)
    thread.join();
  fmt::print("log at {}; {} values read, {} misses, {} questions\n", shared.log->last_begun(),
             counts.values, counts.misses, counts.asked);
  EXPECT_LE(shared.store.stats().records, shared.keys + shared.ballast);
  if (until.splits == 0 && !shared.has_background) {  // else it still grows, drops or moves
    EXPECT_EQ(shared.store.check_at_rest(), "");
  }
  return counts;
}

void expect_both_answers(const ReadCounts& counts) {
  EXPECT_GT(counts.misses, 0U);
  EXPECT_GT(counts.hits_foreseen, counts.values / 10);
}

TEST(Race, OneWriterOneReader) {
  Shared shared;
  expect_both_answers(storm(shared, 1));
}
TEST(Race, TwoWritersOfOnePairOneReader) {
  Shared shared;
  expect_both_answers(storm(shared, 2));
}

MemoryOptions scrubbed(MemoryOptions options) {
  options.scrub = true;
  return options;
}

// Blocks become zero under the readers' eyes. When the writers have ended, all that is free is zero
// (SCRUB-1, by check_at_rest()).
TEST(Race, TwoWritersOneReaderOfScrubbedMemory) {
  Shared shared(scrubbed(one_pair()));
  expect_both_answers(storm(shared, 2));
}

// The store is small when the storm begins: segments split and extents come under the readers'
// eyes, time and again.
TEST(Race, TwoWritersOneReaderAndGrowth) {
  ReadCounts sum;
  for (int life = 0; life < (kSanitized ? 2 : 20) && !HasFailure(); ++life) {
    Shared shared(growing_pairs(), kMaxKeys);
    std::thread grower([&] {
      while (!shared.stop.load(std::memory_order_relaxed)) {
        EXPECT_TRUE(shared.store.growth().grow());
        std::this_thread::yield();
      }
    });
    const ReadCounts counts = storm(shared, 2, {.values = kLifeValues, .splits = kLifeSplits});
    grower.join();
    EXPECT_EQ(shared.store.check_at_rest(), "");
    sum.values += counts.values;
    sum.misses += counts.misses;
    sum.hits_foreseen += counts.hits_foreseen;
  }
  expect_both_answers(sum);
}

// A cache whose index is full: writers of two pairs take places from each other's chains.
TEST(Race, TwoWritersOneReaderOfAFullIndex) {
  MemoryOptions options = one_pair();
  options.groups_per_segment = 4;
  Shared shared(options, kMaxKeys);
  shared.store.evictor().drop_when_full();
  constexpr std::uint64_t kEvicted = 1000;
  const ReadCounts counts = storm(shared, 2, {.evicted = kEvicted + 1});
  EXPECT_GT(counts.asked, 0U) << "no key was stashed";
  EXPECT_GT(shared.store.stats().evicted, kEvicted);
  EXPECT_EQ(shared.store.check_at_rest(), "");
}

// A cache whose memory is full: records are dropped under the readers' eyes, one by one and by
// stretches, and blocks are given to others.
void race_with_drops(MemoryOptions options, std::uint64_t values) {
  options.initial_segments = options.max_segments;
  Shared shared(options, kMaxKeys);
  shared.has_background = true;
  shared.store.evictor().drop_when_full();
  shared.step = 30'000;  // 0 to 120 KB
  std::thread background([&] {
    while (!shared.stop.load(std::memory_order_relaxed)) {
      EXPECT_TRUE(shared.store.growth().grow());
      shared.store.evictor().evict_for_space();
      std::this_thread::yield();
    }
    shared.store.evictor().give_up_runs();
  });
  constexpr std::uint64_t kEvicted = kSanitized ? 1 : 20;
  const ReadCounts counts = storm(shared, 2, {.values = values, .evicted = kEvicted + 1});
  background.join();
  EXPECT_GT(counts.values, 0U);
  EXPECT_GT(shared.store.stats().evicted, kEvicted);
  EXPECT_EQ(shared.store.check_at_rest(), "");
}

TEST(Race, TwoWritersOneReaderAndDrops) {
  race_with_drops(growing_pairs(), kValuesRead);
}
TEST(Race, TwoWritersOneReaderAndDropsInScrubbedMemory) {
  race_with_drops(scrubbed(growing_pairs()), kValuesRead / 10);
}

// A store that keeps all its records: they are moved together under the readers' eyes, while
// writers replace and remove them.
void race_with_moves(MemoryOptions options) {
  options.initial_segments = options.max_segments;
  Shared shared(options, kMaxKeys);
  shared.has_background = true;
  Store& store = shared.store;
  store.move_records_for_long_ones();
  shared.step = 1'000;  // 0 to 4 KB
  // All extents but some are full.
  const std::string ballast((std::size_t{1} << 20) - 8192, 'b');
  for (int tries = 0; tries < 10;) {
    if (store.put(as_bytes(fmt::format("ballast-{}", shared.ballast)), as_bytes(ballast))) {
      ++shared.ballast;
    } else if (!store.growth().grow().value_or(false)) {
      ++tries;
    }
  }
  // Slow writers leave few holes, so they get less room: their records and the pieces take up
  // to 1.93 of 2 MiB, and both may meet no room.
  constexpr std::uint64_t kEmpty = kSanitized ? 2 : 3;
  shared.may_be_full = kSanitized;
  ASSERT_GT(shared.ballast, kEmpty);
  for (std::uint64_t i = 0; i < kEmpty; ++i)
    ASSERT_TRUE(store.remove(as_bytes(fmt::format("ballast-{}", --shared.ballast))));
  constexpr std::uint64_t kPieces = 60;
  shared.ballast += kPieces;
  std::thread background([&] {
    while (!shared.stop.load(std::memory_order_relaxed)) {
      store.evictor().call(record_units(std::size_t{500} << 10));
      shared.runs += store.evictor().evict_for_space() ? 1 : 0;
      store.evictor().give_up_runs();
      shared.looked_at = store.evictor().records_visited_for_runs();
      // The run does not stay one.
      for (std::uint64_t i = 0; i < kPieces; ++i)
        (void)store.put(as_bytes(fmt::format("piece-{}", i)), as_bytes(ballast).first(8'000));
      for (std::uint64_t i = 0; i < kPieces; ++i)
        if (i % 3 != 0) (void)store.remove(as_bytes(fmt::format("piece-{}", i)));
    }
  });
  constexpr std::uint64_t kRuns = 5;
  constexpr std::uint64_t kLookedAt = kSanitized ? 200 : 1'000;
  const ReadCounts counts = storm(shared, 2, {.runs = kRuns + 1, .looked_at = kLookedAt});
  background.join();
  EXPECT_EQ(store.check_at_rest(), "");
  expect_both_answers(counts);
  EXPECT_GT(shared.runs, kRuns);
  EXPECT_GT(shared.looked_at, 20U);
  fmt::print("{} runs, {} records looked at\n", shared.runs.load(), shared.looked_at.load());
}

TEST(Race, TwoWritersOneReaderAndMoves) {
  race_with_moves(growing_pairs());
}
TEST(Race, TwoWritersOneReaderAndMovesInScrubbedMemory) {
  race_with_moves(scrubbed(growing_pairs()));
}

TEST(Race, WritersOfTheSameKeysAgreeWithTheLog) {
  // Four threads put to the same few keys; the store must end with the highest version of each.
  Shared shared;
  constexpr std::uint64_t kFew = 4;
  std::array<std::array<Version, kFew>, 4> last{};
  std::vector<std::thread> threads;
  threads.reserve(last.size());
  for (std::size_t t = 0; t < last.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < (kSanitized ? 1'000U : 5'000U); ++i) {
        const auto put =
            shared.store.put(as_bytes(key_of(i % kFew)), as_bytes(value_of(i * 4 + t)));
        ASSERT_TRUE(put);
        EXPECT_LT(last[t][i % kFew], put->version);
        last[t][i % kFew] = put->version;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  std::vector<std::byte> buffer(kMaxInlineBytes);
  for (std::uint64_t key = 0; key < kFew; ++key) {
    Version highest;
    for (const auto& of_thread : last)
      highest = std::max(highest, of_thread[key]);
    EXPECT_EQ(shared.store.get(as_bytes(key_of(key)), buffer)->version, highest);
  }
  EXPECT_EQ(shared.store.stats().records, kFew);
  EXPECT_EQ(shared.store.check_at_rest(), "");
}

}  // namespace
}  // namespace rkv::server
