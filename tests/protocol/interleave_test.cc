// Store against GetMachine, step by step: while the store publishes, readers fetch the bytes of
// their READs piece by piece, in random order, between any two stores. Every answer is checked
// against the history of its key. One thread, seeded: a failing seed repeats exactly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/get/get.h"
#include "client/get/group_cache.h"
#include "client/get/remote_map.h"
#include "common/random.h"
#include "server/memory/publish_hooks.h"
#include "server/store/store.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_memory.h"
#include "tests/support/single_writer_history.h"

namespace rkv {
namespace {

using client::GetMachine;
using Next = GetMachine::Next;

constexpr std::uint64_t kEpoch = 0xA5A5'0001'0203'0405U;

// The fabric's fault in READs, besides tearing.
enum class Fault { kNone, kStale };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 8;
#else
constexpr std::uint64_t kSeeds = 60;
#endif

// With more keys than this, segments split.
constexpr std::size_t kGrowing = 110;

struct World {
  World(std::uint64_t seed, std::size_t key_count, bool pins, bool scrub)
      : random(seed),
        memory(testing::make_plain_memory({.memory_bytes = server::kMinMemoryBytes,
                                           .epoch = kEpoch,
                                           .hash_seed = seed,
                                           .groups_per_segment = 2,
                                           .initial_segments = 1,
                                           // 16 segments for the many keys of a growing store; else
                                           // one pair.
                                           .max_segments = key_count > kGrowing ? 16U : 1U,
                                           .index_extent_bytes = 2 * 2 * kGroupBytes,
                                           .scrub = scrub})),
        log(server::CommitLog::create_volatile()),
        store(*memory, *log, clock, 1),
        histories(key_count) {
    if (pins) store.records().add_hint_words(hints.data());
    load_map(map);
    map.finish();
  }

  std::string key(std::size_t i) const { return fmt::format("key-{}", i); }

  void load_map(client::RemoteMap& target) const {
    const Bytes root = memory->root().bytes();
    target.begin(kEpoch,
                 {.address = memory->root().address(),
                  .remote_key = memory->root().remote_key(),
                  .length = static_cast<std::uint32_t>(root.size())},
                 {.address = reinterpret_cast<std::uint64_t>(hints.data()),
                  .remote_key = 1,
                  .length = static_cast<std::uint32_t>(hints.size() * 8)},
                 7);
    load_extents(target);
    EXPECT_TRUE(target.apply_directory_line(root.first(kRootPageBytes)));
    const auto line = open_line<DirectoryLine>(root, kEpoch, kDirectoryLineOffset);
    target.apply_directory(0, {reinterpret_cast<const std::byte*>(line->address),
                               std::size_t{8} << line->global_depth});
  }
  void load_extents(client::RemoteMap& target) const {
    const Bytes root = memory->root().bytes();
    EXPECT_TRUE(target.apply_identity(root.first(kRootPageBytes)));
    EXPECT_TRUE(target.apply_extents(
        0, root.subspan(kExtentTableOffset, target.extent_count() * kExtentEntryBytes)));
  }

  Random random;
  ManualClock clock;
  // Clients always swap hints; a server may read them or not.
  std::vector<std::uint64_t> hints = std::vector<std::uint64_t>(kHintWords);
  std::unique_ptr<server::StoreMemory> memory;
  std::unique_ptr<server::CommitLog> log;
  server::Store store;
  client::RemoteMap map;
  std::vector<testing::SingleWriterHistory> histories;
  std::string violation;
};

// One client with at most one GET under way, whose READs arrive in pieces.
class Reader {
 public:
  // `slowness`: acts on one in this many calls.
  enum class Cache : std::uint8_t { kNone, kGroups, kBoth };
  Reader(World& world, Fault fault, Cache cache, std::uint64_t slowness)
      : world_(world),
        fault_(fault),
        cache_(cache != Cache::kNone ? 4096 : 0),
        slots_(cache == Cache::kBoth ? 4096 : 0),
        slowness_(slowness),
        map_(world.map),
        machine_(map_, cache_, slots_, world.clock) {}

  // One small step: a GET begins, or some pieces of its READs arrive. Called between any two stores
  // of the writer.
  void advance() {
    if (wants_server_ || world_.random.below(slowness_) != 0) return;
    if (!busy_) {
      begin();
      return;
    }
    for (std::size_t n = world_.random.below(4); n > 0 && !pieces_.empty(); --n)
      land_one();
    if (pieces_.empty()) act(machine_.step());
  }
  // Called between writes: runs a request to the server, if the reader needs one.
  void ask_server() {
    if (!wants_server_) return;
    std::vector<std::byte> value(kMaxInlineBytes);
    const auto got = world_.store.get(as_bytes(key_), value);
    wants_server_ = false;
    if (got) {
      end(std::string(as_text(Bytes(value).first(got->value_length))));
    } else {
      end(std::nullopt);
    }
  }
  std::uint64_t answers() const { return answers_; }
  std::uint64_t tears() const { return tears_; }
  std::uint64_t swaps() const { return swaps_; }

 private:
  struct Piece {
    std::size_t read;
    std::size_t offset;
    std::size_t length;
  };

  void begin() {
    number_ = world_.random.below(world_.histories.size());
    key_ = world_.key(number_);
    oldest_ = world_.histories[number_].read_begins();
    busy_ = true;
    act(machine_.start(as_bytes(key_), memory_));
  }

  void act(Next next) {
    while (true) {
      switch (next) {
        case Next::kRead:
          cut_reads();
          return;
        case Next::kLargeBuffer:
          machine_.give_buffer(large_);
          next = machine_.step();
          continue;
        case Next::kValueBuffer:
          world_.violation = "a large value that nobody put";
          return;
        case Next::kRefreshExtents:
          world_.load_extents(map_);
          next = machine_.step();
          continue;
        case Next::kRefreshDirectory:
          world_.violation = "the directory has moved";
          return;
        case Next::kFound:
          end(std::string(as_text(machine_.value())));
          return;
        case Next::kMissing:
          end(std::nullopt);
          return;
        case Next::kTwoSided:
          wants_server_ = true;
          return;
      }
    }
  }

  // Cuts the READs into pieces at any byte, to arrive in any order.
  void cut_reads() {
    pieces_.clear();
    const auto reads = machine_.reads();
    for (std::size_t r = 0; r < reads.size(); ++r) {
      for (std::size_t at = 0; at < reads[r].to.size();) {
        const std::size_t length =
            std::min<std::size_t>(reads[r].to.size() - at, 1 + world_.random.below(200));
        pieces_.push_back({r, at, length});
        at += length;
      }
    }
    std::shuffle(pieces_.begin(), pieces_.end(), world_.random);
  }
  void land_one() {
    const Piece piece = pieces_.back();
    pieces_.pop_back();
    const client::ReadRequest& read = machine_.reads()[piece.read];
    if (read.swaps) {
      swap(read);
      return;
    }
    const auto* from = reinterpret_cast<const std::byte*>(read.from.address) + piece.offset;
    const MutableBytes to = read.to.subspan(piece.offset, piece.length);
    std::memcpy(to.data(), from, to.size());
    if (fault_ == Fault::kStale) replay(read.from.address + piece.offset, to);
  }
  void swap(const client::ReadRequest& read) {
    auto& word = *reinterpret_cast<std::uint64_t*>(read.from.address);
    if (word == read.compare) word = read.desired;
    pieces_.clear();
    ++swaps_;
  }
  // The faulty fabric: sometimes answers with the bytes of the first READ of this place.
  void replay(std::uint64_t address, MutableBytes to) {
    const auto [it, first] = seen_.try_emplace({address, to.size()}, to.begin(), to.end());
    if (!first && world_.random.below(4) != 0)
      std::copy_n(it->second.begin(), to.size(), to.data());
  }

  void end(const testing::SingleWriterHistory::State& state) {
    busy_ = false;
    ++answers_;
    tears_ += machine_.counts().tears;
    if (machine_.counts().reads > GetMachine::kMaxReads) world_.violation = "too many READs";
    if (!world_.histories[number_].read_ended(oldest_, state)) {
      world_.violation = fmt::format("{} answered {}", key_, state ? *state : "(absent)");
    }
  }

  World& world_;
  Fault fault_;
  client::GroupCache cache_;  // one per reader, with its own past
  client::SlotCache slots_;
  std::uint64_t slowness_;
  client::RemoteMap map_;  // as old as this reader, until it reads the map again
  GetMachine machine_;
  client::GetMemory memory_;
  std::vector<std::byte> large_ = std::vector<std::byte>(GetMachine::kLargeBufferBytes);
  std::vector<Piece> pieces_;
  std::map<std::pair<std::uint64_t, std::size_t>, std::vector<std::byte>> seen_;
  bool busy_ = false;
  bool wants_server_ = false;
  std::size_t number_ = 0;
  std::string key_;
  std::size_t oldest_ = 0;
  std::uint64_t answers_ = 0;
  std::uint64_t tears_ = 0;
  std::uint64_t swaps_ = 0;
};

struct Outcome {
  std::string violation;
  std::uint64_t answers = 0;
  std::uint64_t tears = 0;
  std::uint64_t stashed = 0;
  std::uint64_t splits = 0;
  std::uint64_t swaps = 0;
};

// One random write, recorded in its history.
void write_something(World& world, std::uint64_t serial) {
  const std::size_t number = world.random.below(world.histories.size());
  auto& history = world.histories[number];
  const std::string key = world.key(number);
  // Freed blocks become old enough to be reused at once, by the same key too.
  world.clock.advance(10 * kNanosPerMs);
  // Some pins are old when the server reads them; some lie in the server's future.
  if (world.random.below(4) == 0) world.memory->set_tick(world.memory->tick() + 100);
  if (world.random.below(4) == 0) {
    history.write_begins(std::nullopt);
    if (!world.store.remove(as_bytes(key))) {
      history.write_failed();
    } else {
      history.write_ended();
    }
    return;
  }
  // Mostly lengths that fit in place, sometimes others; rarely longer than a small READ.
  static constexpr std::size_t kLengths[] = {30, 30, 30, 31, 70, 200, 5000, 0};
  std::string value = fmt::format("{:08}", serial);
  value.resize(std::max<std::size_t>(value.size(), kLengths[world.random.below(8)]), '.');
  history.write_begins(value);
  ASSERT_TRUE(world.store.put(as_bytes(key), as_bytes(value)));
  history.write_ended();
}

Outcome run_seed(std::uint64_t seed, std::size_t key_count, Fault fault, bool scrub = false) {
  World world(seed, key_count, seed % 2 == 0, scrub);
  std::vector<std::unique_ptr<Reader>> readers;
  // The slowest READs last for several writes, long enough for a block to be reused.
  for (const std::uint64_t slowness : {1, 20, 100}) {
    for (const auto cache : {Reader::Cache::kNone, Reader::Cache::kGroups, Reader::Cache::kBoth})
      readers.push_back(std::make_unique<Reader>(world, fault, cache, slowness));
  }
  const auto one_reader = [&] { readers[world.random.below(readers.size())]->advance(); };
  server::step_hook = [&](server::Step, std::uint64_t*) {
    // No step, one piece, or whole GETs.
    static constexpr std::size_t kPace[] = {0, 0, 1, 1, 4, 40};
    for (std::size_t n = kPace[world.random.below(6)]; n > 0; --n) {
      one_reader();
    }
  };
  Outcome outcome;
  for (std::uint64_t serial = 0; serial < 400 && world.violation.empty(); ++serial) {
    write_something(world, serial);
    for (auto& reader : readers)
      reader->ask_server();
    for (std::size_t n = world.random.below(20); n > 0; --n)
      one_reader();
    outcome.stashed = std::max(outcome.stashed, world.store.stats().stashed_records);
    EXPECT_TRUE(world.store.growth().grow());
  }
  outcome.splits = world.store.stats().index_splits;
  server::step_hook = nullptr;
  outcome.violation = world.violation;
  for (const auto& reader : readers) {
    outcome.answers += reader->answers();
    outcome.tears += reader->tears();
    outcome.swaps += reader->swaps();
  }
  return outcome;
}

std::uint64_t first_seed() {
  const char* given = std::getenv("RKV_SEED");
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

// A quarter of the keys are absent at a time. With few keys, all keys are in their home groups, and
// the same key reuses blocks. With more than 60, the pair's 60 slots are full, and keys move
// between home, neighbour and the server's stash.
class Interleave : public ::testing::TestWithParam<std::size_t> {};

void expect_linearizable(std::size_t key_count, bool scrub = false) {
  Outcome sum;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + kSeeds; ++seed) {
    const Outcome one = run_seed(seed, key_count, Fault::kNone, scrub);
    ASSERT_EQ(one.violation, "") << "repeat: RKV_SEED=" << seed << " interleave_test";
    sum.answers += one.answers;
    sum.tears += one.tears;
    sum.stashed = std::max(sum.stashed, one.stashed);
    sum.splits += one.splits;
    sum.swaps += one.swaps;
  }
  std::printf(
      "%zu keys: %lu GETs, %lu tears detected, up to %lu keys stashed, %lu splits, %lu pins\n",
      key_count, sum.answers, sum.tears, sum.stashed, sum.splits, sum.swaps);
  EXPECT_GT(sum.swaps, 0U);
  EXPECT_GT(sum.answers, 10'000U);
  EXPECT_GT(sum.tears, 100U) << "the attack tore nothing: it attacks nothing";
  if (key_count > 80) {
    EXPECT_GT(sum.stashed, 0U);
  }
  if (key_count > kGrowing) {
    EXPECT_GT(sum.splits, kSeeds);
  }
}

TEST_P(Interleave, EveryAnswerIsLinearizable) {
  expect_linearizable(GetParam());
}

// READs meet blocks of which some words are zero already.
TEST_P(Interleave, EveryAnswerIsLinearizableInScrubbedMemory) {
  expect_linearizable(GetParam(), /*scrub=*/true);
}

INSTANTIATE_TEST_SUITE_P(Keys, Interleave, ::testing::Values(1, 3, 8, 70, 78, 110, 260));

TEST(InterleaveCanary, AFabricThatAnswersWithOldBytesIsCaught) {
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    if (!run_seed(seed, 4, Fault::kStale).violation.empty()) ++caught;
  }
  EXPECT_GT(caught, 0);
}

}  // namespace
}  // namespace rkv
