// Writes to a group whose primaries die under them: each is carried out once, and no caller
// notices, although the answers of what was under way are lost with the primary.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000};

class OnceWriter {
 public:
  OnceWriter(const std::string& servers, int number)
      : number_(number),
        client_(*Client::connect(
            {.server = servers, .timeout = kPatience, .transport = test_transport()})) {}

  void run(const std::atomic<bool>& over) {
    for (; !over.load() && !::testing::Test::HasFailure(); ++round_) {
      add();
      put_if_absent();
      add_many();
      swap();
      if (round_ % 4 == 0) put_large();
      done_.fetch_add(1);
    }
  }
  int done() const { return done_.load(); }
  std::int64_t counted() const { return counted_; }
  ClientStats stats() const { return client_.stats(); }

 private:
  template <class T>
  void expect(const Result<T>& result, const char* what) {
    EXPECT_TRUE(result) << what << " " << number_ << "/" << round_ << ": "
                        << to_string(result.error());
  }
  void add() {
    const auto result = client_.incr("sum", round_ % 7);
    expect(result, "incr");
    counted_ += round_ % 7;
  }
  // One that has been made, and whose answer was lost, must not conflict with itself.
  void put_if_absent() {
    const std::string key = fmt::format("lock/{}/{}", number_, round_);
    expect(client_.put_with(key, "mine", {.if_absent = true}), "put_if_absent");
    expect(client_.remove(key), "remove");
  }
  // One pack, of which a primary may die in the middle.
  void add_many() {
    std::vector<OneSidedCounter> counters;
    for (int i = 0; i < 10; ++i) {
      auto opened = client_.open_counter("sum");
      expect(opened, "open_counter");
      if (!opened) return;
      counters.push_back(std::move(*opened));
    }
    std::vector<CounterAddition> additions;
    for (OneSidedCounter& counter : counters)
      additions.push_back({.counter = &counter, .summand = 3});
    for (const auto& result : client_.multi_incr(additions))
      expect(result, "multi_incr");
    counted_ += 30;
  }
  // Only this writer changes the counter, so a swap that was lost and made twice finds it changed.
  void swap() {
    const std::string key = fmt::format("turn/{}", number_);
    if (round_ == 0) expect(client_.incr(key), "incr of the turn");
    const auto swapped = client_.counter_cas(key, round_ + 1, round_ + 2);
    expect(swapped, "counter_cas");
    EXPECT_TRUE(!swapped || swapped->done) << round_;
  }
  void put_large() {
    const std::string value(kMaxInlineBytes + 1, 'v');
    const std::string key = fmt::format("large/{}/{}", number_, round_);
    expect(client_.put_with(key, value, {.if_absent = true}), "put of a large value");
    expect(client_.remove(key), "remove of a large value");
  }

  const int number_;
  Client client_;
  std::int64_t counted_ = 0;
  int round_ = 0;
  std::atomic<int> done_{0};
};

TEST(GroupOnce, EachWriteIsCarriedOutOnceAlthoughPrimariesDie) {
  constexpr int kWriters = 4;
  constexpr int kDeaths = 4;
  ReplicaGroup group(3);
  group.start_all();
  const std::string servers =
      fmt::format("{},{},{}", group.address(0), group.address(1), group.address(2));
  std::vector<std::unique_ptr<OnceWriter>> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.push_back(std::make_unique<OnceWriter>(servers, i));
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  threads.reserve(writers.size());
  for (const auto& writer : writers)
    threads.emplace_back([&writer, &over] { writer->run(over); });
  const auto wait_for_progress = [&] {
    for (const auto& writer : writers) {
      const int before = writer->done();
      EXPECT_TRUE(holds_in_time([&] { return writer->done() >= before + 5 || HasFailure(); }));
    }
  };
  std::size_t primary = 0;
  for (int death = 0; death < kDeaths && !HasFailure(); ++death) {
    wait_for_progress();
    group.kill(primary);
    const std::size_t next = group.wait_for_primary(primary);
    wait_for_progress();
    group.start(primary);
    group.wait_for_in_sync(3);
    primary = next;
  }
  over.store(true);
  for (std::thread& thread : threads)
    thread.join();

  std::int64_t counted = 0;
  ClientStats stats;
  for (const auto& writer : writers) {
    counted += writer->counted();
    stats += writer->stats();
  }
  Client client = group.client();
  const auto sum = client.get_counter("sum");
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->number, counted);
  EXPECT_EQ(stats.outcomes_unknown, 0U);
  EXPECT_GE(stats.outcomes_asked, static_cast<std::uint64_t>(kDeaths)) << "no answer was lost";
  std::printf("%lu outcomes asked, %lu of writes that were applied, %lu unknown\n",
              static_cast<unsigned long>(stats.outcomes_asked),
              static_cast<unsigned long>(stats.outcomes_recovered),
              static_cast<unsigned long>(stats.outcomes_unknown));
}

}  // namespace
}  // namespace rkv::testing_support
