// A replicated commit log under writers, a replicator and an applier; also run with
// ThreadSanitizer. CLOG-2, CLOG-3, CLOG-6 and CLOG-7.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "server/log/commit_log.h"
#include "server/log/replication_reader.h"
#include "tests/server/log/wake_rounds.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::equal;
using test::patterned;

constexpr std::uint64_t kWriters = 2;
constexpr std::uint64_t kEach = 3000;  // the ring wraps again and again
constexpr std::uint64_t kAll = kWriters * kEach;

// The key says who wrote and as what number; the value follows from the key.
struct Label {
  std::uint64_t writer;
  std::uint64_t number;
};

Bytes whole(std::vector<std::byte>& room, const Label& label, std::size_t length) {
  room = patterned(label.writer * 1'000'003 + label.number, length);
  return room;
}

void write_many(CommitLog& log, std::uint64_t writer) {
  Random random(test::test_seed() + writer);
  std::vector<std::byte> value;
  for (std::uint64_t number = 0; number < kEach;) {
    const std::size_t length =
        random.below(random.below(32) == 0 ? 3 * kMaxInlineBytes : std::size_t{2000});
    const auto room = log.try_reserve(sizeof(Label), length);
    if (!room) {
      std::this_thread::yield();
      continue;
    }
    if (random.below(8) == 0) {
      log.unreserve(*room);
      continue;
    }
    const Label label{writer, number++};
    (void)whole(value, label, length);
    CommitLog::Attachment copy;
    if (is_large(length)) {
      copy = std::make_unique_for_overwrite<std::byte[]>(length);
      std::ranges::copy(value, copy.get());
    }
    const auto ticket = log.begin(*room);
    log.finish(ticket, CommitLog::Kind::kPut,
               {.version = Version::of(1, ticket.sequence),
                .expiry_ms = length,
                .key = std::as_bytes(std::span(&label, 1)),
                .value = value},
               std::move(copy));
  }
}

// Checks that entries come in order, each once and whole. Counts what is wrong.
class Checker {
 public:
  void see(const CommitLog::Entry& entry) {
    const auto label = load_le<Label>(entry.record.key.data());
    const bool in_order = entry.sequence > last_ && label.writer < kWriters &&
                          label.number == next_number_[label.writer];
    const bool is_whole =
        in_order && entry.record.expiry_ms == entry.record.value.size() &&
        equal(entry.record.value, whole(value_, label, entry.record.value.size()));
    if (!is_whole) {
      ++wrong_;
      return;
    }
    ++next_number_[label.writer];
    last_ = entry.sequence;
    ++seen_;
  }
  std::uint64_t seen() const { return seen_; }
  std::uint64_t wrong() const { return wrong_; }
  std::uint64_t last() const { return last_; }

 private:
  std::array<std::uint64_t, kWriters> next_number_{};
  std::vector<std::byte> value_;
  std::uint64_t last_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t wrong_ = 0;
};

// Counts entries that the applier has and not all in-sync replicas have. `replicated` is written
// before the mark is set.
class Guard {
 public:
  void replicated(std::uint64_t through) { through_.store(through, std::memory_order_release); }
  void applied(std::uint64_t sequence) {
    if (sequence > through_.load(std::memory_order_acquire)) ahead_.fetch_add(1);
  }
  std::uint64_t ahead() const { return ahead_.load(); }

 private:
  std::atomic<std::uint64_t> through_{0};
  std::atomic<std::uint64_t> ahead_{0};
};

std::unique_ptr<CommitLog> make_replicated_log() {
  return *CommitLog::create(CommitLog::kMinCapacityBytes, CommitLog::Group::kReplicated);
}

// The replicator lets the mark trail behind what it has read, and checks again, right before the
// mark passes an entry, that the entry still holds what it held.
void replicate(CommitLog& log, ReplicationReader& reader, Guard& guard, Checker& checker,
               Checker& again) {
  Random random(test::test_seed() + 77);
  std::vector<CommitLog::Entry> unacknowledged;
  const auto acknowledge = [&] {
    const std::size_t count = 1 + random.below(unacknowledged.size());
    for (const CommitLog::Entry& entry : std::span(unacknowledged).first(count))
      again.see(entry);
    const std::uint64_t through = unacknowledged[count - 1].sequence;
    unacknowledged.erase(unacknowledged.begin(),
                         unacknowledged.begin() + static_cast<std::ptrdiff_t>(count));
    guard.replicated(through);
    log.set_replicated_mark(through);
  };
  while (checker.seen() < kAll || !unacknowledged.empty()) {
    CommitLog::Entry entry;
    if (reader.next(&entry)) {
      checker.see(entry);
      unacknowledged.push_back(entry);
    } else if (unacknowledged.empty()) {
      reader.wait_for_entries(60'000);
    } else {
      acknowledge();
    }
    if (!unacknowledged.empty() && random.below(4) == 0) acknowledge();
    if (checker.wrong() != 0) return;
  }
}

// The applier's disk fails now and then: it takes everything since the last sync again.
void apply(CommitLog& log, Guard& guard, std::atomic<std::uint64_t>& applied) {
  Random random(test::test_seed() + 99);
  Checker saved;
  Checker now;
  while (saved.seen() < kAll) {
    CommitLog::Entry entry;
    if (log.consume(&entry)) {
      guard.applied(entry.sequence);
      now.see(entry);
      ASSERT_EQ(now.wrong(), 0U);
    } else {
      log.wait_for_entries(60'000);
    }
    if (random.below(16) == 0) {
      log.rewind();
      now = saved;
    } else if (random.below(8) == 0 || now.seen() == kAll) {
      log.advance();
      saved = now;
      applied.store(saved.seen());
    }
  }
}

TEST(ReplicatedLogThreads, EachConsumerGetsEveryEntryInOrderAndWhole) {
  const auto log = make_replicated_log();
  ReplicationReader reader(*log);
  Guard guard;
  Checker replicator;
  Checker again;
  std::atomic<std::uint64_t> applied{0};
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t writer = 0; writer < kWriters; ++writer)
      threads.emplace_back([&, writer] { write_many(*log, writer); });
    threads.emplace_back([&] { replicate(*log, reader, guard, replicator, again); });
    apply(*log, guard, applied);
  }
  EXPECT_EQ(replicator.wrong(), 0U);
  EXPECT_EQ(again.wrong(), 0U) << "an entry was freed before the mark had passed it";
  EXPECT_EQ(again.seen(), kAll);
  EXPECT_EQ(applied.load(), kAll);
  EXPECT_EQ(guard.ahead(), 0U);
  EXPECT_EQ(log->bytes_queued(), 0U);
  EXPECT_EQ(log->consumed(), log->last_begun());
  EXPECT_EQ(reader.position(), log->last_begun());
}

// Canary: the marks move before the other replicas have the entries. The guard must see it.
TEST(ReplicatedLogThreads, AnApplierAheadOfTheReplicasIsSeen) {
  const auto log = make_replicated_log();
  ReplicationReader reader(*log);
  Guard guard;
  std::atomic<bool> applier_has_it{false};
  std::jthread replicator([&] {
    CommitLog::Entry entry;
    while (!reader.next(&entry))
      reader.wait_for_entries(60'000);
    log->set_replicated_mark(entry.sequence);
    while (!applier_has_it.load())
      std::this_thread::yield();
    guard.replicated(entry.sequence);
  });
  const auto ticket = log->begin(*log->try_reserve(1, 1));
  log->finish(ticket, CommitLog::Kind::kRemove, {.key = as_bytes("k")});
  CommitLog::Entry entry;
  while (!log->consume(&entry))
    log->wait_for_entries(60'000);
  guard.applied(entry.sequence);
  applier_has_it.store(true);
  EXPECT_EQ(guard.ahead(), 1U);
}

// A lost wake-up would make a round last a minute.
TEST(ReplicatedLogThreads, AnEntryWakesTheReplicatorAndTheMarkWakesTheApplier) {
  const auto log = make_replicated_log();
  ReplicationReader reader(*log);
  constexpr int kRounds = 2000;
  std::jthread replicator([&] {
    CommitLog::Entry entry;
    for (int read = 0; read < kRounds;) {
      if (!reader.next(&entry)) {
        reader.wait_for_entries(60'000);
        continue;
      }
      ++read;
      log->set_replicated_mark(entry.sequence);
    }
  });
  test::run_wake_rounds(*log, kRounds);
}

TEST(ReplicatedLogThreads, InterruptsReachTheirOwnSleeper) {
  const auto log = make_replicated_log();
  ReplicationReader reader(*log);
  reader.interrupt();
  reader.wait_for_entries(60'000);
  log->interrupt();
  log->wait_for_entries(60'000);
  log->interrupt();
  log->nap(60'000'000);
}

}  // namespace
}  // namespace rkv::server
