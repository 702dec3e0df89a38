// The attack: between any two stores of a publication, readers carry out parts of their READs.
// Everything they return must be linearizable. One thread, one seed: every run can be repeated.
//
// The canaries at the end leave out one rule each - in the order of stores or in the reader - and
// the same attack must find a wrong result; otherwise it proves nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "common/random.h"
#include "server/memory/publish_hooks.h"
#include "tests/server/store/store_fixture.h"
#include "tests/support/single_writer_history.h"

static_assert(rkv::server::kStoreSteps, "link the stepped library");

namespace rkv::server {
namespace {

using testing::Answer;
using testing::ReadPort;
using testing::ReferenceReader;
using testing::SingleWriterHistory;
using testing::Task;

// A READ that touches the remote bytes piece by piece in any order, as a device may.
class TornRead {
 public:
  void begin(const ReadPort& port, Random& random) {
    constexpr std::size_t kPieces[] = {1, 4, 8, 64, 256};
    const std::size_t piece = kPieces[random.below(std::size(kPieces))];
    pieces_.clear();
    for (std::size_t at = 0; at < port.to.size(); at += piece)
      pieces_.push_back({at, std::min(piece, port.to.size() - at)});
    for (std::size_t i = pieces_.size(); i > 1; --i)
      std::swap(pieces_[i - 1], pieces_[random.below(i)]);
  }
  // True when the READ is complete.
  bool progress(const ReadPort& port, std::size_t count) {
    for (; count > 0 && !pieces_.empty(); --count) {
      const Piece piece = pieces_.back();
      pieces_.pop_back();
      std::memcpy(port.to.data() + piece.at, port.from + piece.at, piece.length);
    }
    return pieces_.empty();
  }

 private:
  struct Piece {
    std::size_t at;
    std::size_t length;
  };
  std::vector<Piece> pieces_;
};

// A canary changes the memory after a step: before the readers look, or after they have looked.
enum class When { kBeforeReaders, kAfterReaders };
using Tamper = std::function<void(When, Step, std::uint64_t* word)>;

class Attack {
 public:
  Attack(const MemoryOptions& options, std::uint64_t seed, testing::ReaderFlaws flaws = {},
         Tamper tamper = {}, std::size_t plain_keys = 50)
      : t_(options),
        reader_(t_.memory->root().bytes(), kTestEpoch, flaws),
        random_(seed),
        tamper_(std::move(tamper)),
        readers_(3) {
    choose_keys(plain_keys);
    step_hook = [this](Step step, std::uint64_t* word) {
      if (tamper_) tamper_(When::kBeforeReaders, step, word);
      advance_readers();
      if (tamper_) tamper_(When::kAfterReaders, step, word);
    };
  }
  ~Attack() { step_hook = nullptr; }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  // Runs until something not linearizable was returned; nothing if that did not happen.
  std::optional<std::string> run(int operations) {
    for (int i = 0; i < operations && !wrong_; ++i) {
      operate();
      answer_questions();
      advance_readers();
    }
    return wrong_;
  }
  std::uint64_t reads_ended() const { return reads_ended_; }
  std::uint64_t asked() const { return asked_; }
  std::uint64_t splits() const { return t_.store.stats().index_splits; }

 private:
  struct Key {
    std::string text;
    SingleWriterHistory history;
  };
  struct Reader {
    std::size_t key = 0;
    std::size_t oldest = 0;  // of the key's states, that this read may return
    bool asking = false;
    ReadPort port;
    TornRead read;
    std::optional<Task<Answer>> task;
    ReferenceReader::Cache cache;
  };

  // Ninety keys (or more) for the sixty slots of one pair, among them many that share their
  // fingerprint with another.
  void choose_keys(std::size_t plain_keys) {
    std::map<std::uint16_t, std::string> seen;
    for (std::uint64_t i = 0; keys_.size() < 40; ++i) {
      std::string key = fmt::format("{}", i);
      const std::uint16_t fingerprint = t_.memory->hash(as_bytes(key)).fingerprint();
      if (auto [at, fresh] = seen.try_emplace(fingerprint, key); !fresh) {
        keys_.push_back({.text = at->second, .history = {}});
        keys_.push_back({.text = key, .history = {}});
        seen.erase(at);
      }
    }
    for (std::size_t i = 0; i < plain_keys; ++i)
      keys_.push_back({.text = fmt::format("plain{}", i), .history = {}});
  }

  // Four keys (two pairs of twins) are hot, so that readers and writers meet.
  std::size_t some_key() { return random_.below(random_.below(2) == 0 ? 4 : keys_.size()); }

  void operate() {
    Key& key = keys_[some_key()];
    // The store is full at times and half empty at others.
    const bool rising = operations_++ / 1000 % 2 == 0;
    if (random_.below(8) == 0) {  // the value stays, and with it what readers may return
      (void)t_.store.touch(as_bytes(key.text), {.ttl_ms = random_.below(2) * 3'600'000}, t_.buffer);
      return;
    }
    if (random_.below(10) < (rising ? 9U : 4U)) {
      std::string value = fmt::format("{}.", ++value_number_);
      // Few sizes: records are rewritten in place, move, and come back to blocks they have had.
      constexpr std::size_t kLengths[] = {12, 12, 45, 80, 150};
      value.resize(kLengths[random_.below(std::size(kLengths))], '.');
      key.history.write_begins(value);
      if (t_.put(key.text, value)) {
        key.history.write_ended();
      } else {
        key.history.write_failed();
      }
    } else if (key.history.current()) {
      key.history.write_begins(std::nullopt);
      EXPECT_TRUE(t_.remove(key.text));
      key.history.write_ended();
    }
  }

  // Between two stores: usually little happens, sometimes several whole reads.
  void advance_readers() {
    const std::uint64_t moves = random_.below(8) != 0 ? random_.below(3) : random_.below(64);
    for (std::uint64_t i = 0; i < moves; ++i)
      advance(readers_[random_.below(readers_.size())]);
  }

  void advance(Reader& reader) {
    if (reader.asking) return;
    if (!reader.task) {
      begin(reader);
      return;
    }
    const std::size_t pieces = random_.below(2) == 0 ? 1 + random_.below(40) : 256;
    if (reader.read.progress(reader.port, pieces)) {
      reader.port.resume();
      after_resume(reader);
    }
  }

  void begin(Reader& reader) {
    reader.key = some_key();
    reader.oldest = keys_[reader.key].history.read_begins();
    // Caches grow stale for a long time, now and then they are dropped.
    if (random_.below(64) == 0) reader.cache.clear();
    ReferenceReader::Cache* cache = random_.below(2) == 0 ? &reader.cache : nullptr;
    reader.task.emplace(reader_.get(reader.port, keys_[reader.key].text, cache));
    reader.task->start();
    after_resume(reader);
  }

  void after_resume(Reader& reader) {
    if (!reader.task->done()) {
      reader.read.begin(reader.port, random_);
      return;
    }
    const Answer answer = std::move(reader.task->value());
    reader.task.reset();
    if (answer.kind == Answer::Kind::kAskServer) {
      reader.asking = true;  // the writer holds the lock now: the server answers between operations
      return;
    }
    ended(reader, answer.kind == Answer::Kind::kMiss ? std::nullopt : std::optional(answer.value));
  }

  void answer_questions() {
    for (Reader& reader : readers_) {
      if (!reader.asking) continue;
      reader.asking = false;
      ++asked_;
      ended(reader, t_.get(keys_[reader.key].text));
    }
  }

  void ended(Reader& reader, const std::optional<std::string>& state) {
    ++reads_ended_;
    Key& key = keys_[reader.key];
    if (key.history.read_ended(reader.oldest, state) || wrong_) return;
    wrong_ = fmt::format("operation {}: key {} read as {}, which it was not during the read",
                         operations_, key.text, state.value_or("(absent)"));
  }

  StoreUnderTest t_;
  ReferenceReader reader_;
  Random random_;
  Tamper tamper_;
  std::vector<Reader> readers_;
  std::vector<Key> keys_;
  std::optional<std::string> wrong_;
  std::uint64_t operations_ = 0;
  std::uint64_t value_number_ = 0;
  std::uint64_t reads_ended_ = 0;
  std::uint64_t asked_ = 0;
};

// RKV_SEED=n ctest -R server_core_steps_test repeats run n.
std::vector<std::uint64_t> seeds() {
  if (const char* seed = std::getenv("RKV_SEED")) return {std::strtoull(seed, nullptr, 10)};
  const std::uint64_t first = random_from_kernel() >> 16;
  return {1, 2, 3, first, first + 1, first + 2};
}

void expect_linearizable(const MemoryOptions& options) {
  std::uint64_t reads = 0;
  std::uint64_t asked = 0;
  for (const std::uint64_t seed : seeds()) {
    Attack attack(options, seed);
    const auto wrong = attack.run(kSanitized ? 1'000 : 8'000);
    EXPECT_FALSE(wrong) << *wrong << "\nrepeat with RKV_SEED=" << seed;
    reads += attack.reads_ended();
    asked += attack.asked();
  }
  fmt::print("{} reads, {} of them asked the server\n", reads, asked);
  EXPECT_GT(reads, 10'000U);
}

TEST(Steps, LinearizableBetweenAnyTwoStores) {
  expect_linearizable(one_pair());
}

TEST(Steps, LinearizableWithRoomInTheIndex) {
  MemoryOptions options = one_pair();
  fix_index(options, 4);
  expect_linearizable(options);
}

// Readers see blocks of which some words are zero already.
TEST(Steps, LinearizableWhileBlocksAreScrubbed) {
  MemoryOptions options = one_pair();
  options.scrub = true;
  expect_linearizable(options);
}

// Many short lives, for a store splits only while it is young.
constexpr std::size_t kManyKeys = 400;
constexpr int kOneChildhood = 1'200;

TEST(Steps, LinearizableWhileSegmentsSplit) {
  const std::uint64_t first = seeds().front();
  const bool repeat = seeds().size() == 1;
  std::uint64_t reads = 0;
  std::uint64_t splits = 0;
  for (std::uint64_t seed = first; seed < first + (repeat ? 1 : kSanitized ? 5 : 60); ++seed) {
    Attack attack(growing_pairs(), seed, {}, {}, kManyKeys);
    const auto wrong = attack.run(kOneChildhood);
    ASSERT_FALSE(wrong) << *wrong << "\nrepeat with RKV_SEED=" << seed;
    reads += attack.reads_ended();
    splits += attack.splits();
  }
  fmt::print("{} reads, {} splits\n", reads, splits);
  EXPECT_GE(splits, repeat ? 1U : kSanitized ? 15U : 180U);
}

// ------------------------------------------------------------------------------------- canaries

class StepsCanary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "tests of the test, for the plain build";
  }
};

// Some seed must show the wrong result.
bool finds(
    testing::ReaderFlaws flaws, const std::function<Tamper()>& tamper = [] { return Tamper{}; }) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Attack attack(one_pair(), seed, flaws, tamper());
    if (const auto wrong = attack.run(12'000)) {
      fmt::print("seed {}: {}\n", seed, *wrong);
      return true;
    }
  }
  return false;
}

// Also stands for a fresh insert that is written live at once.
TEST_F(StepsCanary, LiveBeforeTheOldRecordIsSuperseded) {
  EXPECT_TRUE(finds({}, [] {
    return [](When when, Step step, std::uint64_t* word) {
      if (when == When::kBeforeReaders && step == Step::kRecordPrepared) *word ^= kPreparedMask;
    };
  }));
}

// A DELETE whose record stays live until the group without it has been published.
TEST_F(StepsCanary, SlotClearedBeforeTheRecordIsSuperseded) {
  struct Late {
    bool replacing = false;  // a prepared record announces a replacement, not a DELETE
    std::uint64_t* held = nullptr;
    void operator()(When when, Step step, std::uint64_t* word) {
      if (step == Step::kRecordPrepared) replacing = true;
      if (step == Step::kRecordLive) replacing = false;
      // For a stashed record no group is published. Its block may be given to the next one.
      if (held != nullptr && step == Step::kRecordBody) {
        *std::exchange(held, nullptr) ^= kSupersededMask;
      }
      if (when == When::kBeforeReaders && step == Step::kRecordSuperseded && !replacing) {
        if (held != nullptr) *held ^= kSupersededMask;
        *word ^= kSupersededMask;
        held = word;
      } else if (when == When::kAfterReaders && step == Step::kGroupChecksum && held != nullptr) {
        *std::exchange(held, nullptr) ^= kSupersededMask;
      }
    }
  };
  EXPECT_TRUE(finds({}, [] { return Late{}; }));
}

// The new record becomes live when the old one is superseded, before the group leads to it. (Any
// time after the slot has been stored would do: until its checksum is stored too, the group serves
// neither a miss nor the licence to use a superseded record.)
TEST_F(StepsCanary, LiveBeforeTheSlotIsPublished) {
  struct Early {
    std::uint64_t* prepared = nullptr;
    void operator()(When when, Step step, std::uint64_t* word) {
      if (when != When::kBeforeReaders) return;
      if (step == Step::kRecordPrepared) prepared = word;
      if (step == Step::kRecordLive) prepared = nullptr;
      if (step == Step::kRecordSuperseded && prepared != nullptr) {
        *std::exchange(prepared, nullptr) ^= kPreparedMask;
      }
    }
  };
  EXPECT_TRUE(finds({}, [] { return Early{}; }));
}

TEST_F(StepsCanary, ReaderThatDoesNotReadHomeAgain) {
  EXPECT_TRUE(finds({.no_second_look_home = true}));
}

TEST_F(StepsCanary, ReaderThatDoesNotLookAgainAfterAnotherKey) {
  EXPECT_TRUE(finds({.no_second_look_other_key = true}));
}

TEST_F(StepsCanary, ReaderThatTrustsASupersededRecordOfItsCache) {
  EXPECT_TRUE(finds({.licence_from_cache = true}));
}

TEST_F(StepsCanary, ReaderThatBelievesAGroupOfAnotherPrefix) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Attack attack(growing_pairs(), seed, {.no_look_at_the_prefix = true}, {}, kManyKeys);
    if (const auto wrong = attack.run(kOneChildhood)) {
      fmt::print("seed {}: {}\n", seed, *wrong);
      return;
    }
  }
  FAIL() << "a reader that ignores prefixes was not caught";
}

}  // namespace
}  // namespace rkv::server
