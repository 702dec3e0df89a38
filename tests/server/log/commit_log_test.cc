#include "server/log/commit_log.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <vector>

#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::equal;
using test::patterned;

constexpr std::size_t kSmallest = CommitLog::kMinCapacityBytes;

std::unique_ptr<CommitLog> make_log(std::size_t capacity = kSmallest) {
  auto log = CommitLog::create(capacity);
  EXPECT_TRUE(log) << to_string(log.error());
  return std::move(*log);
}

// Reserve, begin, finish. The sequence.
std::uint64_t append(CommitLog& log, Bytes key, Bytes value) {
  const auto room = log.try_reserve(key.size(), value.size());
  if (!room) return 0;
  const auto ticket = log.begin(*room);
  log.finish(ticket, CommitLog::Kind::kPut,
             {.version = Version::of(1, ticket.sequence), .key = key, .value = value});
  return ticket.sequence;
}

TEST(CommitLog, StartsEmpty) {
  const auto log = make_log();
  CommitLog::Entry entry;
  EXPECT_FALSE(log->consume(&entry));
  EXPECT_EQ(log->last_begun(), 0U);
  EXPECT_EQ(log->consumed(), 0U);
  EXPECT_EQ(log->wal_mark(), 0U);
  EXPECT_EQ(log->sync_mark(), 0U);
  EXPECT_EQ(log->bytes_queued(), 0U);
  EXPECT_FALSE(log->is_volatile());
  log->advance();
}

TEST(CommitLog, CapacityIsAPowerOfTwoAndNotTooSmall) {
  EXPECT_EQ(make_log(1)->capacity_bytes(), kSmallest);
  EXPECT_EQ(make_log(kSmallest + 1)->capacity_bytes(), 2 * kSmallest);
  const auto huge = CommitLog::create(CommitLog::kMaxCapacityBytes + 1);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, Code::kInvalidArgument);
}

TEST(CommitLog, GivesBackWhatWasPutIn) {
  const auto log = make_log();
  const auto key = patterned(1, kMaxKeyBytes);
  const auto value = patterned(2, kMaxInlineBytes);
  const auto room = log->try_reserve(key.size(), value.size());
  ASSERT_TRUE(room);
  const auto ticket = log->begin(*room);
  EXPECT_EQ(ticket.sequence, 1U);
  log->finish(ticket, CommitLog::Kind::kPut,
              {.version = Version::of(7, 1), .expiry_ms = 12345, .key = key, .value = value});

  CommitLog::Entry entry;
  ASSERT_TRUE(log->consume(&entry));
  EXPECT_EQ(entry.sequence, 1U);
  EXPECT_EQ(entry.kind, CommitLog::Kind::kPut);
  EXPECT_EQ(entry.record.version, Version::of(7, 1));
  EXPECT_EQ(entry.record.expiry_ms, 12345U);
  EXPECT_TRUE(equal(entry.record.key, key));
  EXPECT_TRUE(equal(entry.record.value, value));
  EXPECT_FALSE(log->consume(&entry));
}

TEST(CommitLog, AnEntryMayBeSmallerThanItsReservation) {
  const auto log = make_log();
  const auto room = log->try_reserve(10, 5000);
  ASSERT_TRUE(room);
  const auto first = log->begin(*room);
  log->finish(first, CommitLog::Kind::kRemove, {});
  const std::uint64_t second = append(*log, as_bytes("key"), as_bytes("value"));
  EXPECT_EQ(second, first.sequence + first.words);

  CommitLog::Entry entry;
  ASSERT_TRUE(log->consume(&entry));
  EXPECT_EQ(entry.kind, CommitLog::Kind::kRemove);
  EXPECT_TRUE(entry.record.key.empty());
  ASSERT_TRUE(log->consume(&entry));
  EXPECT_EQ(entry.sequence, second);
  EXPECT_EQ(as_text(entry.record.key), "key");
}

TEST(CommitLog, ALaterEntryWaitsForAnEarlierOne) {
  const auto log = make_log();
  const auto first = log->begin(*log->try_reserve(1, 1));
  const auto second = log->begin(*log->try_reserve(1, 1));
  CommitLog::Entry entry;
  log->finish(second, CommitLog::Kind::kRemove, {.key = as_bytes("b")});
  EXPECT_FALSE(log->consume(&entry));
  log->finish(first, CommitLog::Kind::kPut, {.key = as_bytes("a")});
  ASSERT_TRUE(log->consume(&entry));
  EXPECT_EQ(as_text(entry.record.key), "a");
  ASSERT_TRUE(log->consume(&entry));
  EXPECT_EQ(as_text(entry.record.key), "b");
  EXPECT_EQ(entry.kind, CommitLog::Kind::kRemove);
}

TEST(CommitLog, BoundsAreComparableWithEachOther) {
  const auto log = make_log();
  CommitLog::Entry entry;
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t sequence = append(*log, as_bytes("key"), patterned(3, 300));
    EXPECT_LE(sequence, log->last_begun());
    EXPECT_GT(sequence, log->consumed());
    ASSERT_TRUE(log->consume(&entry));
    EXPECT_EQ(log->consumed(), log->last_begun());
  }
  log->set_wal_mark(log->consumed());
  EXPECT_GE(log->wal_mark(), log->last_begun());
  log->set_wal_mark(1);
  EXPECT_EQ(log->wal_mark(), log->consumed()) << "a mark never falls";
}

TEST(CommitLog, RefusesWhenFullAndTakesAgainAfterAdvance) {
  const auto log = make_log();
  std::vector<CommitLog::Reservation> rooms;
  for (auto room = log->try_reserve(8, 4000); room; room = log->try_reserve(8, 4000)) {
    rooms.push_back(*room);
  }
  EXPECT_LE(log->bytes_queued(), log->capacity_bytes());
  EXPECT_GT(log->bytes_queued() + 4096, log->capacity_bytes());
  EXPECT_EQ(log->try_reserve(8, 4000).error().code, Code::kBusy);

  log->unreserve(rooms.back());
  rooms.pop_back();
  EXPECT_TRUE(log->try_reserve(8, 4000));
  EXPECT_EQ(log->try_reserve(8, 4000).error().code, Code::kBusy);

  for (const auto room : rooms)
    log->finish(log->begin(room), CommitLog::Kind::kRemove, {.key = as_bytes("k")});
  CommitLog::Entry entry;
  ASSERT_TRUE(log->consume(&entry));
  EXPECT_FALSE(log->try_reserve(8, 4000)) << "consumed is not yet freed";
  log->advance();
  EXPECT_TRUE(log->try_reserve(8, 4000));
}

TEST(CommitLog, RefusesWhileTheDiskHasFailed) {
  const auto log = make_log();
  log->set_disk_state(DiskState::kFailing);
  EXPECT_EQ(log->try_reserve(1, 1).error().code, Code::kIo);
  EXPECT_TRUE(log->has_failed_for_good());
  log->set_disk_state(DiskState::kOk);
  EXPECT_TRUE(log->try_reserve(1, 1));
}

TEST(CommitLog, TellsClientsToWaitWhileAnotherReplicaTakesOver) {
  const auto log = make_log();
  log->set_successor(true);
  EXPECT_TRUE(log->try_reserve(1, 1)) << "the disk is well";
  log->set_disk_state(DiskState::kFull);
  EXPECT_EQ(log->try_reserve(1, 1).error().code, Code::kBusy);
  EXPECT_EQ(log->refusal(Refused::kScan).code, Code::kBusy);
  EXPECT_FALSE(log->has_failed_for_good());
  log->set_successor(false);
  EXPECT_EQ(log->try_reserve(1, 1).error().code, Code::kIo);
  EXPECT_TRUE(log->has_failed_for_good());
}

// A client can know the sequence that will be expected at a place of the ring one lap later, and
// send values made of nothing else. No such bytes may pass for a finished entry.
TEST(CommitLog, BytesOfAValueNeverPassForAReadyStamp) {
  const auto log = make_log();
  const std::uint64_t lap = log->capacity_bytes() / 8;
  std::vector<std::uint64_t> forged(1500);
  for (int i = 0; i < 500; ++i) {
    for (std::size_t word = 0; word < forged.size(); ++word) {
      // Header and key are four words: word w of the value is at position last_begun + 4 + w.
      forged[word] = log->last_begun() + 4 + word + 1 + lap;
    }
    ASSERT_NE(append(*log, as_bytes("8 bytes."), std::as_bytes(std::span(forged))), 0U);
    CommitLog::Entry entry;
    ASSERT_TRUE(log->consume(&entry));
    log->advance();
    const auto open = log->begin(*log->try_reserve(1, static_cast<std::size_t>(i) % 700));
    ASSERT_FALSE(log->consume(&entry)) << "not finished yet";
    log->finish(open, CommitLog::Kind::kRemove, {});
    ASSERT_TRUE(log->consume(&entry));
    ASSERT_EQ(entry.sequence, open.sequence);
    log->advance();
  }
}

TEST(CommitLog, VolatileLogNumbersOnly) {
  const auto log = CommitLog::create_volatile();
  EXPECT_TRUE(log->is_volatile());
  EXPECT_EQ(append(*log, as_bytes("a"), as_bytes("1")), 1U);
  const std::uint64_t second = append(*log, as_bytes("a"), as_bytes("2"));
  EXPECT_GT(second, 1U);
  EXPECT_GE(log->last_begun(), second);
  const auto room = log->try_reserve(1, 1);
  ASSERT_TRUE(room);
  log->unreserve(*room);
  CommitLog::Entry entry;
  EXPECT_FALSE(log->consume(&entry));
  EXPECT_EQ(log->bytes_queued(), 0U);
  EXPECT_EQ(log->capacity_bytes(), 0U);
  log->advance();
  log->wait_for_entries(1);
}

struct Expected {
  CommitLog::Ticket ticket;
  std::uint64_t seed;
  std::size_t key_length, value_length;
  bool finished;
};

// Any interleaving of the operations, against a list.
RC_GTEST_PROP(CommitLogProperty, BehavesLikeAQueue, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const auto log = make_log();
  std::deque<Expected> queued;  // begun and not consumed
  std::uint64_t room_taken = 0;
  for (int step = 0; step < 400; ++step) {
    const std::uint64_t choice = random.below(10);
    if (choice < 5) {
      const std::size_t key = 1 + random.below(kMaxKeyBytes);
      const std::size_t value = random.below(random.below(8) == 0 ? kMaxInlineBytes + 1 : 5000);
      const std::uint64_t before = log->bytes_queued();
      const auto room = log->try_reserve(key, value);
      if (!room) {
        RC_ASSERT(before + key + value + 24 + 63 > log->capacity_bytes());
        continue;
      }
      if (choice == 0) {
        log->unreserve(*room);
        RC_ASSERT(log->bytes_queued() == before);
        continue;
      }
      room_taken += room->words;
      queued.push_back({log->begin(*room), random(), key, value, false});
    } else if (choice < 8 && !queued.empty()) {
      Expected& entry = queued[random.below(queued.size())];
      if (std::exchange(entry.finished, true)) continue;
      log->finish(entry.ticket, CommitLog::Kind::kPut,
                  {.version = Version::of(1, entry.ticket.sequence),
                   .expiry_ms = entry.seed >> 1,
                   .key = patterned(entry.seed, entry.key_length),
                   .value = patterned(~entry.seed, entry.value_length)});
    } else {
      CommitLog::Entry got;
      std::uint64_t words = 0;
      while (log->consume(&got)) {
        // Inner parentheses: RC_ASSERT's operators evaluate both sides.
        RC_ASSERT((!queued.empty() && queued.front().finished));
        const Expected want = queued.front();
        queued.pop_front();
        RC_ASSERT(got.sequence == want.ticket.sequence);
        RC_ASSERT(got.record.expiry_ms == want.seed >> 1);
        RC_ASSERT(equal(got.record.key, patterned(want.seed, want.key_length)));
        RC_ASSERT(equal(got.record.value, patterned(~want.seed, want.value_length)));
        words += want.ticket.words;
      }
      RC_ASSERT((queued.empty() || !queued.front().finished));
      log->advance();
      room_taken -= words;
      RC_ASSERT(log->bytes_queued() == room_taken * 8);
    }
  }
}

// ---- attachments

CommitLog::Attachment copy_of(Bytes value) {
  CommitLog::Attachment copy(new std::byte[value.size()]);
  std::copy(value.begin(), value.end(), copy.get());
  return copy;
}

void append_large(CommitLog& log, Bytes key, Bytes value) {
  const auto room = log.try_reserve(key.size(), value.size());
  ASSERT_TRUE(room) << to_string(room.error());
  const auto ticket = log.begin(*room);
  log.finish(ticket, CommitLog::Kind::kPut,
             {.version = Version::of(1, ticket.sequence), .key = key, .value = value},
             copy_of(value));
}

TEST(CommitLog, ALargeValueIsAttachedAndComesBackWhole) {
  const auto log = make_log(std::size_t{32} << 20);
  const auto value = patterned(3, kMaxValueBytes);
  append(*log, as_bytes("before"), as_bytes("small"));
  append_large(*log, as_bytes("large"), value);
  append(*log, as_bytes("after"), as_bytes("small"));
  EXPECT_GT(log->bytes_queued(), kMaxValueBytes);
  EXPECT_LT(log->last_begun(), 100U) << "only the entry is in the ring";
  for (int round = 0; round < 2; ++round) {  // and once more after trouble with the disk
    CommitLog::Entry entry;
    ASSERT_TRUE(log->consume(&entry));
    ASSERT_TRUE(log->consume(&entry));
    EXPECT_EQ(as_text(entry.record.key), "large");
    EXPECT_TRUE(std::ranges::equal(entry.record.value, value));
    ASSERT_TRUE(log->consume(&entry));
    EXPECT_EQ(as_text(entry.record.key), "after");
    if (round == 0) log->rewind();
  }
  log->advance();
  EXPECT_EQ(log->bytes_queued(), 0U);
}

TEST(CommitLog, AttachmentsCountAndTheirRoomComesBack) {
  const auto log = make_log(std::size_t{32} << 20);
  const auto value = patterned(3, std::size_t{1} << 20);
  for (int lap = 0; lap < 5; ++lap) {
    int taken = 0;
    for (;; ++taken) {
      const auto room = log->try_reserve(1, value.size());
      if (!room) break;
      log->unreserve(*room);
      append_large(*log, as_bytes("k"), value);
    }
    EXPECT_GE(taken, 25);
    EXPECT_LT(taken, 32);
    CommitLog::Entry entry;
    while (log->consume(&entry))
      ASSERT_TRUE(std::ranges::equal(entry.record.value, value));
    log->advance();
    EXPECT_EQ(log->bytes_queued(), 0U);
  }
}

TEST(CommitLog, WhatCanNeverFitIsTooLarge) {
  const auto log = make_log();
  EXPECT_EQ(log->try_reserve(1, kMaxValueBytes).error().code, Code::kTooLarge);
  EXPECT_EQ(log->bytes_queued(), 0U);
}

// Under the address sanitizer: nothing leaks.
TEST(CommitLog, ALogThatEndsFreesWhatIsAttached) {
  const auto log = make_log(std::size_t{32} << 20);
  const auto value = patterned(3, std::size_t{1} << 20);
  for (int i = 0; i < 3; ++i)
    append_large(*log, as_bytes("k"), value);
  CommitLog::Entry entry;
  ASSERT_TRUE(log->consume(&entry));
}

}  // namespace
}  // namespace rkv::server
