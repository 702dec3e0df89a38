// The number of READs of a GET while its value is rewritten without pause, alone or with the 29
// others of its group. The server respects pins or ignores them. One thread: whole PUTs happen
// between the cache lines of the READs, every so many lines. Prints the table of bench/RESULTS.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "client/get/get.h"
#include "client/get/group_cache.h"
#include "client/get/remote_map.h"
#include "client/get/slot_cache.h"
#include "server/store/store.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_memory.h"
#include "tests/support/single_writer_history.h"

namespace rkv {
namespace {

using client::GetMachine;
using Next = GetMachine::Next;

constexpr std::uint64_t kEpoch = 0xA5A5'0001'0203'0405U;
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kShort = 1000;      // 16 lines and a part: a few PUTs during each READ
constexpr std::uint32_t kMostReads = 19;  // client/README.md: for a short record in its home group

constexpr std::uint64_t kBetweenGetsMs = 10 * std::uint64_t{kPinWindowMs};
constexpr int kGets = 500;

struct Load {
  const char* name;
  bool moving = false;      // lengths change, so records and slots move
  bool neighbours = false;  // each PUT of the key also rewrites a neighbour
  std::size_t lines = 0;    // lines READ between two PUTs
};

// Every word of a value names its PUT.
constexpr std::size_t kWord = 8;
std::string filled(const std::string& word, std::size_t length) {
  std::string value;
  while (value.size() < length)
    value += word;
  return value;
}

// One group with 30 keys; the GETs read the first.
class World {
 public:
  World(const Load& load, bool pins)
      : load_(load),
        memory_(testing::make_plain_memory({.memory_bytes = server::kMinMemoryBytes,
                                            .epoch = kEpoch,
                                            .hash_seed = 1,
                                            .groups_per_segment = 2,
                                            .initial_segments = 1,
                                            .max_segments = 1,
                                            .index_extent_bytes = 4 * std::size_t{kGroupBytes}})),
        log_(server::CommitLog::create_volatile()),
        store_(*memory_, *log_, clock_, 1) {
    if (pins) store_.records().add_hint_words(hints_.data());
    for (std::size_t i = 0; keys_.size() < kSlotsPerGroup; ++i) {
      std::string key = fmt::format("key-{}", i);
      if (memory_->hash(as_bytes(key)).group_index(2) == 0) keys_.push_back(std::move(key));
    }
    for (std::size_t i = 0; i < keys_.size(); ++i)
      put(i);
    load_map();
  }

  // A GET with an empty cache, long after the previous GET's pin has expired.
  void get() {
    tick_ms_ += kBetweenGetsMs;
    memory_->set_tick(tick_ms_);
    clock_.advance(static_cast<Nanos>(kBetweenGetsMs) * kNanosPerMs);
    const std::size_t oldest = history_.read_begins();
    client::GroupCache groups(0);
    client::SlotCache slots(0);
    GetMachine machine(map_, groups, slots, clock_);
    std::vector<std::byte> large(GetMachine::kLargeBufferBytes);
    Next next = machine.start(as_bytes(keys_.front()), buffers_);
    while (next == Next::kRead || next == Next::kLargeBuffer) {
      if (next == Next::kLargeBuffer) machine.give_buffer(large);
      if (next == Next::kRead) {
        for (const client::ReadRequest& read : machine.reads())
          carry_out(read);
      }
      next = machine.step();
    }
    ++gets_;
    reads_ += machine.counts().reads;
    most_reads_ = std::max(most_reads_, machine.counts().reads);
    pins_ += machine.counts().pins;
    if (next == Next::kTwoSided) {
      ++asked_;
      return;
    }
    ASSERT_EQ(next, Next::kFound);
    const std::string value(as_text(machine.value()));
    const std::string word = value.substr(0, kWord);
    EXPECT_EQ(value, filled(word, value.size())) << "torn";
    EXPECT_TRUE(history_.read_ended(oldest, word));
  }

  std::uint32_t most_reads() const { return most_reads_; }
  std::uint64_t pins() const { return pins_; }
  double asked_part() const { return static_cast<double>(asked_) / static_cast<double>(gets_); }
  double reads_per_get() const { return static_cast<double>(reads_) / static_cast<double>(gets_); }

 private:
  void load_map() {
    const Bytes root = memory_->root().bytes();
    map_.begin(kEpoch,
               {.address = memory_->root().address(),
                .remote_key = memory_->root().remote_key(),
                .length = static_cast<std::uint32_t>(root.size())},
               {.address = reinterpret_cast<std::uint64_t>(hints_.data()),
                .remote_key = 1,
                .length = static_cast<std::uint32_t>(hints_.size() * 8)},
               7);
    ASSERT_TRUE(map_.apply_identity(root.first(kRootPageBytes)));
    ASSERT_TRUE(map_.apply_extents(
        0, root.subspan(kExtentTableOffset, map_.extent_count() * kExtentEntryBytes)));
    ASSERT_TRUE(map_.apply_directory_line(root.first(kRootPageBytes)));
    const auto line = open_line<DirectoryLine>(root, kEpoch, kDirectoryLineOffset);
    map_.apply_directory(0, {reinterpret_cast<const std::byte*>(line->address),
                             std::size_t{8} << line->global_depth});
    map_.finish();
  }

  void put(std::size_t number) {
    const std::string word = fmt::format("{:08}", ++serial_);
    const std::string value = filled(word, kShort + (load_.moving ? serial_ % 3 * 13 * kWord : 0));
    if (number == 0) history_.write_begins(word);
    ASSERT_TRUE(store_.put(as_bytes(keys_[number]), as_bytes(value)));
    if (number == 0) history_.write_ended();
  }

  void carry_out(const client::ReadRequest& read) {
    if (read.swaps) {
      auto& word = *reinterpret_cast<std::uint64_t*>(read.from.address);
      std::memcpy(read.to.data(), &word, sizeof word);
      if (word == read.compare) word = read.desired;
      return;
    }
    for (std::size_t at = 0; at < read.to.size(); at += kLineBytes) {
      const std::size_t length = std::min(kLineBytes, read.to.size() - at);
      std::memcpy(read.to.data() + at, reinterpret_cast<const std::byte*>(read.from.address) + at,
                  length);
      if (++lines_ % load_.lines != 0) continue;
      put(0);
      if (load_.neighbours) put(1 + serial_ % (keys_.size() - 1));
    }
  }

  const Load load_;
  ManualClock clock_;
  std::vector<std::uint64_t> hints_ = std::vector<std::uint64_t>(kHintWords);
  std::unique_ptr<server::StoreMemory> memory_;
  std::unique_ptr<server::CommitLog> log_;
  server::Store store_;
  client::RemoteMap map_;
  client::GetMemory buffers_;
  std::vector<std::string> keys_;
  testing::SingleWriterHistory history_;
  std::uint64_t tick_ms_ = 100'000;
  std::uint64_t serial_ = 0;
  std::uint64_t lines_ = 0;
  std::uint64_t gets_ = 0;
  std::uint64_t asked_ = 0;
  std::uint64_t reads_ = 0;
  std::uint64_t pins_ = 0;
  std::uint32_t most_reads_ = 0;
};

void run(World& world) {
  for (int i = 0; i < kGets && !::testing::Test::HasFailure(); ++i)
    world.get();
}

class Rewriting : public ::testing::TestWithParam<Load> {};

TEST_P(Rewriting, IsReadWithinTheStatedNumberOfReads) {
  World with(GetParam(), true);
  World without(GetParam(), false);
  run(with);
  run(without);
  fmt::print(
      "{}, PUTs every {} lines: {:.2f} READs a GET, at most {}, {:.1f} % ask; without pins"
      " {:.2f}, at most {}, {:.1f} %\n",
      GetParam().name, GetParam().lines, with.reads_per_get(), with.most_reads(),
      100 * with.asked_part(), without.reads_per_get(), without.most_reads(),
      100 * without.asked_part());
  EXPECT_LE(with.most_reads(), kMostReads);
  EXPECT_LE(without.most_reads(), kMostReads);
  if (GetParam().moving) return;  // stays whole while it is read, pinned or not
  EXPECT_EQ(with.asked_part(), 0.0);
  EXPECT_GT(with.pins(), 0U);
  EXPECT_EQ(without.asked_part(), 1.0) << "nothing was torn: the pins had nothing to do";
}

INSTANTIATE_TEST_SUITE_P(Loads, Rewriting,
                         ::testing::Values(Load{"in place", false, false, 12},
                                           Load{"moving", true, false, 12},
                                           Load{"in place, neighbours too", false, true, 12},
                                           Load{"in place, neighbours too", false, true, 1},
                                           Load{"moving, neighbours too", true, true, 12},
                                           Load{"moving, neighbours too", true, true, 1}));

}  // namespace
}  // namespace rkv
