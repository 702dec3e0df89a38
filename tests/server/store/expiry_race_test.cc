// Real threads write keys that expire within milliseconds, again and again, while the index grows
// and another thread removes what has expired. Afterwards each record that expires is found in time
// (the store's own check), and all of them end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

constexpr std::uint64_t kExpiringKeys = 6'000;
constexpr std::uint64_t kMostMs = 20;  // of a time to live
constexpr int kPutsOfEach = kSanitized ? 10'000 : 100'000;
constexpr int kExpiryWriters = 3;

class ExpiryRace : public ::testing::Test {
 protected:
  void write(std::uint64_t writer) {
    Random random(writer + 1);
    for (int i = 0; i < kPutsOfEach; ++i) {
      const std::string key = fmt::format("key{}", random.below(kExpiringKeys));
      const std::uint64_t ttl_ms = random.below(8) == 0 ? 0 : 1 + random.below(kMostMs);
      while (!store_.put(as_bytes(key), as_bytes("value"), {.ttl_ms = ttl_ms}))
        grow();
    }
  }
  // As one thread of a server does.
  void grow() {
    const std::lock_guard lock(growing_);
    if (store_.growth().wants_memory()) (void)store_.growth().grow();
  }

  std::mutex growing_;
  SteadyClock clock_;
  std::unique_ptr<StoreMemory> memory_ = testing::make_plain_memory(growing_pairs());
  std::unique_ptr<CommitLog> log_ = CommitLog::create_volatile();
  Store store_{*memory_, *log_, clock_, kTestBoot};
};

TEST_F(ExpiryRace, NoRecordIsForgotten) {
  std::atomic<bool> stop{false};
  std::thread expirer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      store_.expirer().expire();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 0; writer < kExpiryWriters; ++writer)
    writers.emplace_back([this, writer] { write(writer); });
  for (std::thread& writer : writers)
    writer.join();
  stop.store(true, std::memory_order_relaxed);
  expirer.join();
  EXPECT_EQ(store_.check_at_rest(), "");
  EXPECT_GT(store_.stats().expired, 0U);
  EXPECT_GT(store_.stats().index_splits, 8U);
  const Nanos end = clock_.now() + static_cast<Nanos>(kMostMs + 1) * kNanosPerMs;
  while (clock_.now() < end)
    std::this_thread::yield();
  store_.expirer().expire();
  EXPECT_EQ(store_.stats().expiring, 0U);
  EXPECT_EQ(store_.check_at_rest(), "");
}

}  // namespace
}  // namespace rkv::server
