// Ranges of the real database: order, bounds, one instant, and nothing missing after trouble.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RangeTest : public ::testing::Test {
 protected:
  void put(const std::string& key, const std::string& value = "v") {
    engine_->add_put(
        {.version = Version::of(1, 8), .key = as_bytes(key), .value = as_bytes(value)});
    ASSERT_TRUE(engine_->write_batch());
  }
  std::vector<std::string> keys(const KeyRange& range, std::size_t most = 100) const {
    std::vector<std::string> keys;
    EXPECT_TRUE(engine_->read_range(range, [&](const RecordFields& record) {
      keys.emplace_back(as_text(record.key));
      return keys.size() < most;
    }));
    return keys;
  }
  test::TempDir dir_;
  std::unique_ptr<StorageEngine> engine_ = std::move(*StorageEngine::open(dir_.path()));
};

TEST_F(RangeTest, OrderAndBounds) {
  for (const char* key : {"b", "a", "c", "\xFF", "ab"})
    put(key);
  EXPECT_THAT(keys({}), ElementsAre("a", "ab", "b", "c", "\xFF"));
  EXPECT_THAT(keys({.reverse = true}), ElementsAre("\xFF", "c", "b", "ab", "a"));
  EXPECT_THAT(keys({.lower = "ab", .upper = "c"}), ElementsAre("ab", "b"));
  EXPECT_THAT(keys({.lower = "ab", .upper = "c", .reverse = true}), ElementsAre("b", "ab"));
  EXPECT_THAT(keys({.lower = "d"}), ElementsAre("\xFF"));
  EXPECT_THAT(keys({.upper = "b"}), ElementsAre("a", "ab"));
  EXPECT_THAT(keys({}, 2), ElementsAre("a", "ab"));
  EXPECT_THAT(keys({.lower = "b", .upper = "b"}), IsEmpty());
  EXPECT_THAT(keys({.lower = "c", .upper = "b"}), IsEmpty());
  EXPECT_THAT(keys({.lower = "c", .upper = "b", .reverse = true}), IsEmpty());
}

TEST_F(RangeTest, AreOfOneInstant) {
  for (const char* key : {"a", "b", "c"})
    put(key, "old");
  std::vector<std::string> seen;
  EXPECT_TRUE(engine_->read_range({}, [&](const RecordFields& record) {
    put("b", "new");
    put("bb", "new");
    engine_->add_remove(as_bytes("c"));
    EXPECT_TRUE(engine_->write_batch());
    seen.push_back(std::string(as_text(record.key)) + "=" + std::string(as_text(record.value)));
    return true;
  }));
  EXPECT_THAT(seen, ElementsAre("a=old", "b=old", "c=old"));
  EXPECT_THAT(keys({}), ElementsAre("a", "b", "bb"));
}

TEST_F(RangeTest, OfAClosedDatabaseAreRefused) {
  put("a");
  ASSERT_TRUE(engine_->close());
  const Status read = engine_->read_range({}, [](const RecordFields&) { return true; });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kIo);
}

// Each reader stays until another one is in, so that there is always one. Reopening and closing
// wait for those who are in, and for nobody who comes later.
TEST_F(RangeTest, ReadersThatNeverEndKeepNobodyOut) {
  constexpr std::uint64_t kMost = 20'000;
  put("a");
  std::atomic<std::uint64_t> entered{0};
  std::atomic<bool> over{false};
  const auto read_on = [&] {
    while (!over && entered < kMost) {
      (void)engine_->read_range({}, [&](const RecordFields&) {
        const std::uint64_t mine = ++entered;
        const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
        while (entered == mine && !over && std::chrono::steady_clock::now() < patience)
          std::this_thread::yield();
        return true;
      });
    }
  };
  std::thread one(read_on);
  std::thread other(read_on);
  while (entered < 100)
    std::this_thread::yield();
  EXPECT_TRUE(engine_->close());
  EXPECT_LT(entered, kMost) << "closing has waited for all that came";
  over = true;
  one.join();
  other.join();
}

// Reopened, as after a failure: what was not synced may be missing until it is written again.
TEST_F(RangeTest, AreRefusedUntilNothingIsMissing) {
  const auto read = [&] {
    return engine_->read_range({}, [](const RecordFields&) { return true; });
  };
  put("a");
  ASSERT_TRUE(engine_->close());
  ASSERT_TRUE(engine_->recover());
  ASSERT_FALSE(read());
  EXPECT_EQ(read().error().code, Code::kIo);
  put("b");
  EXPECT_TRUE(read());
  ASSERT_TRUE(engine_->close());
  ASSERT_TRUE(engine_->recover());
  ASSERT_FALSE(read());
  ASSERT_TRUE(engine_->write_batch());  // there was nothing to be written again
  EXPECT_TRUE(read());
  EXPECT_THAT(keys({}), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace rkv::server
