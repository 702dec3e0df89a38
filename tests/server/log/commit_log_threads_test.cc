// The commit log under several threads; also run with ThreadSanitizer.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "server/log/commit_log.h"
#include "tests/server/log/wake_rounds.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::equal;
using test::patterned;

std::unique_ptr<CommitLog> make_log() {
  auto log = CommitLog::create(CommitLog::kMinCapacityBytes);
  EXPECT_TRUE(log) << to_string(log.error());
  return std::move(*log);
}

// The key says who wrote and as what number; the value follows from the key.
struct Label {
  std::uint64_t writer;
  std::uint64_t number;
};

void write_many(CommitLog& log, std::uint64_t writer, std::uint64_t count) {
  Random random(test::test_seed() + writer);
  for (std::uint64_t number = 0; number < count;) {
    const std::size_t length =
        random.below(random.below(32) == 0 ? kMaxInlineBytes + 1 : std::size_t{2000});
    const auto room = log.try_reserve(sizeof(Label), length);
    if (!room) {
      std::this_thread::yield();
      continue;
    }
    if (random.below(8) == 0) {
      log.unreserve(*room);
      continue;
    }
    const auto ticket = log.begin(*room);
    const Label label{writer, number++};
    log.finish(ticket, CommitLog::Kind::kPut,
               {.version = Version::of(1, ticket.sequence),
                .expiry_ms = length,
                .key = std::as_bytes(std::span(&label, 1)),
                .value = patterned(writer * 1'000'003 + label.number, length)});
  }
}

class CommitLogThreads : public testing::TestWithParam<int> {};

TEST_P(CommitLogThreads, EveryEntryArrivesOnceInOrderAndWhole) {
  const auto log = make_log();
  const auto writers = static_cast<std::uint64_t>(GetParam());
  constexpr std::uint64_t kEach = 4000;  // some 15 MB a writer: the ring wraps again and again
  std::vector<std::jthread> threads;
  threads.reserve(writers);
  for (std::uint64_t writer = 0; writer < writers; ++writer)
    threads.emplace_back([&log, writer] { write_many(*log, writer, kEach); });

  std::array<std::uint64_t, 8> next_number{};
  std::uint64_t last_sequence = 0;
  Random random(test::test_seed());
  for (std::uint64_t seen = 0; seen < writers * kEach;) {
    CommitLog::Entry entry;
    if (!log->consume(&entry)) {
      log->advance();
      if (random.below(2) == 0) {
        log->wait_for_entries(1000);
      } else {
        log->nap(50);
      }
      continue;
    }
    ASSERT_GT(entry.sequence, last_sequence);
    last_sequence = entry.sequence;
    const auto label = load_le<Label>(entry.record.key.data());
    ASSERT_LT(label.writer, writers);
    ASSERT_EQ(label.number, next_number[label.writer]++);
    ASSERT_EQ(entry.record.expiry_ms, entry.record.value.size());
    ASSERT_TRUE(equal(entry.record.value, patterned(label.writer * 1'000'003 + label.number,
                                                    entry.record.value.size())));
    ++seen;
    if (random.below(16) == 0) log->advance();
  }
  log->advance();
  EXPECT_EQ(log->bytes_queued(), 0U);
  EXPECT_EQ(log->consumed(), log->last_begun());
}
INSTANTIATE_TEST_SUITE_P(Writers, CommitLogThreads, testing::Values(1, 2, 4));

// A lost wake-up would make a round last the whole second.
TEST(CommitLogSleep, AnEntryWakesTheApplierEveryTime) {
  const auto log = make_log();
  constexpr int kRounds = 2000;
  test::run_wake_rounds(*log, kRounds);
}

TEST(CommitLogSleep, InterruptEndsBothKindsOfSleep) {
  const auto log = make_log();
  std::atomic<int> woken{0};
  std::jthread applier([&] {
    for (int i = 0; i < 1000; ++i) {
      if (i % 2 == 0) {
        log->wait_for_entries(60'000);
      } else {
        log->nap(60'000'000);
      }
      woken.fetch_add(1);
    }
  });
  while (woken.load() < 1000) {
    log->interrupt();
    std::this_thread::yield();
  }
}

TEST(CommitLogSleep, AnInterruptBeforeTheSleepIsNotLost) {
  const auto log = make_log();
  log->interrupt();
  log->wait_for_entries(60'000);
  log->interrupt();
  log->nap(60'000'000);
}

TEST(CommitLogSleep, EndsByItself) {
  const auto log = make_log();
  log->wait_for_entries(2);
  log->nap(2000);
}

}  // namespace
}  // namespace rkv::server
