// Scans of a real database while others write, judged against what they wrote.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <thread>

#include "common/clock.h"
#include "common/random.h"
#include "server/background/scans.h"
#include "server/persistence/applier.h"
#include "server/persistence/storage_engine.h"
#include "server/store/store.h"
#include "tests/server/persistence/support.h"
#include "tests/support/plain_memory.h"
#include "tests/support/scan_judge.h"

namespace rkv::server {
namespace {

using rkv::testing::ScanJudge;
using ::testing::HasSubstr;

constexpr std::size_t kWriters = 2;
constexpr std::size_t kKeys = 150;  // each
constexpr int kScans = 8;

struct Key {
  std::string name;
  bool steady = false;
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> done{0};
};

class ScanRace : public ::testing::Test {
 protected:
  ScanRace() {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      keys_[i].name = fmt::format("key{:04}-{}", mix64(i) % 10'000, i);
      keys_[i].steady = i % 3 == 0;
    }
    applier_.start();
    scans_.start();
    // Every steady key is there when the first scan begins.
    for (Key& key : keys_)
      write(key);
  }
  ~ScanRace() override {
    stop_ = true;
    for (std::thread& writer : writers_)
      writer.join();
    scans_.stop();
    EXPECT_TRUE(applier_.stop());
  }
  void start_writers() {
    for (std::size_t writer = 0; writer < kWriters; ++writer) {
      writers_.emplace_back([this, writer] {
        Random random(test::test_seed() + writer);
        while (!stop_)
          write(keys_[random.below(kKeys) * kWriters + writer]);
      });
    }
  }
  void write(Key& key) {
    const std::uint64_t number = key.begun + 1;
    key.begun = number;
    const Bytes name = as_bytes(key.name);
    const bool puts = key.steady || number % 2 == 1;
    const std::string value = std::to_string(number);
    for (;;) {  // a full log is waited for
      const bool written =
          puts ? store_.put(name, as_bytes(value)).has_value() : store_.remove(name).has_value();
      if (written) break;
      std::this_thread::yield();
    }
    key.done = number;
  }
  // A page, judged.
  std::optional<std::string> judged_page(ScanJudge& judge, ScanQuery& query,
                                         std::vector<std::byte>& token) {
    query.token = token;
    std::map<std::string, ScanJudge::Known> known;
    for (const Key& key : keys_)
      known[key.name] = {.steady = key.steady, .progress = {.done = key.done, .begun = 0}};
    std::vector<std::byte> asked(kMaxScanQueryBytes);
    asked.resize(encode(query, asked));
    const auto page = scans_.ask(asked, log_->last_begun());
    if (!page) return "refused";
    while (!(*page)->done())
      std::this_thread::yield();
    for (const Key& key : keys_)
      known[key.name].progress.begun = key.begun;
    if ((*page)->failure()) return to_string(*(*page)->failure());
    const auto view = decode_scan_page((*page)->bytes(), false);
    if (!view) return "no page";
    std::vector<ScanJudge::Entry> entries;
    for (const ScanItem& item : view->items) {
      entries.push_back({std::string(as_text(item.key)),
                         std::strtoull(std::string(as_text(item.value)).c_str(), nullptr, 10)});
    }
    token.assign(view->token.begin(), view->token.end());
    return judge.page(entries, token.empty(), known);
  }

  test::TempDir dir_;
  SteadyClock clock_;
  std::unique_ptr<StorageEngine> engine_ = std::move(*StorageEngine::open(dir_.path()));
  std::unique_ptr<CommitLog> log_ = std::move(*CommitLog::create(CommitLog::kMinCapacityBytes));
  std::unique_ptr<StoreMemory> memory_ = rkv::testing::make_plain_memory(
      {.memory_bytes = kMinMemoryBytes, .epoch = 1, .hash_seed = 2});
  Store store_{*memory_, *log_, clock_, 1};
  Applier applier_{*log_, *engine_, clock_, {}, [this] { scans_.marks_changed(); }};
  Scans scans_{{.log = *log_,
                .sweep = [] { return Status{}; },
                .request_write = [this](std::uint64_t through) { applier_.request_write(through); },
                .read = [this](const KeyRange& range,
                               const auto& visit) { return engine_->read_range(range, visit); },
                .has_expired = [](const RecordFields&) { return false; },
                .finished = [] {}}};
  std::array<Key, kWriters * kKeys> keys_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> writers_;
};

TEST_F(ScanRace, EveryPageIsRight) {
  start_writers();
  for (int scan = 0; scan < kScans; ++scan) {
    ScanJudge judge;
    ScanQuery query{.limit = static_cast<std::uint32_t>(std::array{0, 1, 7, 50}[scan % 4])};
    std::vector<std::byte> token;
    do {
      const auto problem = judged_page(judge, query, token);
      ASSERT_FALSE(problem) << *problem;
    } while (!token.empty());
  }
}

// ------------------------------------------------------- that the judge sees what it is there for

class ScanJudged : public ::testing::Test {
 protected:
  using Entries = std::vector<ScanJudge::Entry>;
  static std::string judge(const Entries& entries) {
    return ScanJudge().page(entries, true, kKnown).value_or("");
  }
  static const inline std::map<std::string, ScanJudge::Known> kKnown = {
      {"coming", {.progress = {.done = 0, .begun = 1}}},
      {"going", {.progress = {.done = 3, .begun = 4}}},
      {"gone", {.progress = {.done = 4, .begun = 4}}},
      {"stays", {.progress = {.done = 5, .begun = 5}}},
      {"steady", {.steady = true, .progress = {.done = 8, .begun = 10}}}};
};

TEST_F(ScanJudged, RightOnesPass) {
  EXPECT_EQ(judge({{"stays", 5}, {"steady", 8}}), "");
  EXPECT_EQ(judge({{"coming", 1}, {"going", 3}, {"stays", 5}, {"steady", 10}}), "");
}

TEST_F(ScanJudged, WrongOnesDoNot) {
  EXPECT_THAT(judge({{"steady", 8}}), HasSubstr("stays is missing"));
  EXPECT_THAT(judge({{"stays", 5}}), HasSubstr("steady is missing"));
  EXPECT_THAT(judge({}), HasSubstr("missing"));
  EXPECT_THAT(judge({{"stays", 5}, {"stays", 5}, {"steady", 8}}), HasSubstr("comes behind"));
  EXPECT_THAT(judge({{"steady", 8}, {"stays", 5}}), HasSubstr("missing"));
  EXPECT_THAT(judge({{"stays", 3}, {"steady", 8}}), HasSubstr("stays is 3")) << "an old value";
  EXPECT_THAT(judge({{"stays", 5}, {"steady", 11}}), HasSubstr("steady is 11")) << "not begun";
  EXPECT_THAT(judge({{"gone", 3}, {"stays", 5}, {"steady", 8}}), HasSubstr("gone is 3"));
  EXPECT_THAT(judge({{"nobody", 1}, {"stays", 5}, {"steady", 8}}), HasSubstr("nobody wrote"));
}

TEST_F(ScanJudged, PagesAreOneScan) {
  ScanJudge judge;
  EXPECT_FALSE(judge.page({{"stays", 5}}, false, kKnown));
  EXPECT_TRUE(judge.page({{"stays", 5}, {"steady", 8}}, true, kKnown)) << "a key comes again";
  ScanJudge another;
  EXPECT_FALSE(another.page({{"going", 3}}, false, kKnown));
  EXPECT_TRUE(another.page({{"steady", 8}}, true, kKnown)) << "a key between the pages";
}

}  // namespace
}  // namespace rkv::server
