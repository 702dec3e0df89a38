// Positions, the log's end, and what a backup and a primary do with single messages. Their life
// together is simulated (tests/sim/group).
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "server/group/rules/backup.h"
#include "server/group/rules/catch_up.h"
#include "server/group/rules/membership.h"
#include "server/group/rules/primary.h"
#include "server/group/rules/succession.h"

namespace rkv::server {
namespace {

constexpr Nanos kMs = kNanosPerMs;
constexpr Nanos kStart = 1000 * kNanosPerSecond;
constexpr std::uint64_t kGroup = 7;

LogPosition at(std::uint32_t term, std::uint64_t version) {
  return {.term = term, .version = version};
}
EntryBytes some() {
  return std::make_shared<std::vector<std::byte>>(8);
}
TermHistory history(const std::vector<LogPosition>& terms) {
  TermHistory made;
  for (const LogPosition& last : terms)
    made.extend(last);
  return made;
}
Replica replica(const std::string& name, std::uint64_t epoch) {
  return {.name = name, .address = "h:1", .epoch = epoch};
}

TEST(TermHistory, KnowsItsPositions) {
  const TermHistory log = history({at(1, 10), at(3, 20)});
  for (const LogPosition& inside : {at(0, 0), at(1, 1), at(1, 10), at(3, 11), at(3, 20)})
    EXPECT_TRUE(log.contains(inside)) << inside.term << '.' << inside.version;
  for (const LogPosition& outside : {at(1, 11), at(2, 12), at(3, 10), at(3, 21), at(4, 21)})
    EXPECT_FALSE(log.contains(outside)) << outside.term << '.' << outside.version;
}

TEST(TermHistory, TwoLogsHaveTheEndOfTheLastCommonTerm) {
  const TermHistory log = history({at(1, 10), at(3, 20)});
  EXPECT_EQ(log.common_with(history({at(1, 10), at(3, 15)})), at(3, 15));
  EXPECT_EQ(log.common_with(history({at(1, 14)})), at(1, 10));
  EXPECT_EQ(log.common_with(history({at(1, 7), at(2, 30)})), at(1, 7));
  EXPECT_EQ(log.common_with(history({at(2, 30)})), at(0, 0));
}

TEST(ReplicaLog, KeepsBlocksUntilTheyAreReleased) {
  ReplicaLog log(history({at(1, 10)}));
  log.append(at(1, 20), some());
  log.append(at(2, 40), some());
  EXPECT_EQ(log.after(at(1, 10))->last, at(1, 20));
  EXPECT_EQ(log.after(at(2, 40)), nullptr);
  EXPECT_FALSE(log.can_send_after(at(1, 15)));
  EXPECT_FALSE(log.can_send_after(at(0, 0)));
  log.release(39);
  EXPECT_EQ(log.start(), at(1, 20));
  EXPECT_FALSE(log.can_send_after(at(1, 10)));
  EXPECT_FALSE(log.can_cut(at(1, 10)));
  log.cut(at(1, 20));
  EXPECT_EQ(log.last(), at(1, 20));
  EXPECT_EQ(log.kept_bytes(), 0U);
}

TEST(ReplicaLog, FindsTheEndOfSoManyBytes) {
  ReplicaLog log(history({at(1, 10)}));
  EXPECT_EQ(log.end_within(10, 100), 10U);
  for (const std::uint64_t version : {20U, 30U, 40U})
    log.append(at(1, version), some());
  EXPECT_EQ(log.end_within(10, 0), 10U);
  EXPECT_EQ(log.end_within(10, 1), 20U);
  EXPECT_EQ(log.end_within(10, 8), 20U);
  EXPECT_EQ(log.end_within(20, 9), 40U);
  EXPECT_EQ(log.end_within(25, 8), 40U) << "the block that it is in does not count";
  EXPECT_EQ(log.end_within(40, 8), 40U);
  log.release(20);
  EXPECT_EQ(log.end_within(20, 8), 30U);
}

TEST(ReplicaLog, CountsTheBytesBehindAPosition) {
  ReplicaLog log(history({at(1, 10)}));
  EXPECT_EQ(log.bytes_after(at(1, 10)), 0U);
  for (const std::uint64_t version : {20U, 30U, 40U})
    log.append(at(1, version), some());
  EXPECT_EQ(log.bytes_after(at(1, 10)), 24U);
  EXPECT_EQ(log.bytes_after(at(1, 30)), 8U);
  EXPECT_EQ(log.bytes_after(at(1, 40)), 0U);
  EXPECT_EQ(log.bytes_after(at(1, 35)), 0U) << "within the last block";
  log.release(20);
  EXPECT_EQ(log.bytes_after({}), 16U) << "as far as it is kept";
  log.cut(at(1, 30));
  log.append(at(2, 50), some());
  EXPECT_EQ(log.bytes_after(at(1, 20)), 16U);
  // For a version of any term: at the end of a block, and within one.
  EXPECT_EQ(log.bytes_after_version(20), 16U);
  EXPECT_EQ(log.bytes_after_version(25), 8U);
  EXPECT_EQ(log.bytes_after_version(50), 0U);
}

struct BackupTest : testing::Test {
  ReplicaLog log;
  Backup backup{log, replica("b", 2), kGroup, {}};
  Nanos now = kStart;
  std::uint64_t number = 0;
  Entries entries(std::uint32_t term, LogPosition previous, std::optional<LogPosition> last = {},
                  std::uint64_t mark = 0) {
    Entries made{
        .term = term, .number = ++number, .previous = previous, .marks = {.replicated = mark}};
    if (last) made.block = {.previous = previous, .last = *last, .bytes = some()};
    return made;
  }
  void connect() {
    backup.hello();
    number = 0;
  }
};

TEST_F(BackupTest, TakesWhatFollowsItsLastEntryOnly) {
  connect();
  EXPECT_TRUE(backup.receive(entries(1, {}, at(1, 10)), now));
  EXPECT_FALSE(backup.receive(entries(1, at(1, 18), at(1, 26)), now));
  EXPECT_FALSE(backup.receive(entries(1, {}, at(1, 10)), now)) << "not the first of a connection";
  Entries backwards = entries(1, at(1, 10), at(1, 10));
  EXPECT_FALSE(backup.receive(backwards, now));
  Entries later_term = entries(1, at(1, 10), at(2, 20));
  EXPECT_FALSE(backup.receive(later_term, now))
      << "an entry of a term that is not the primary's yet";
  Entries empty = entries(1, at(1, 10), at(1, 20));
  empty.block->bytes = nullptr;
  EXPECT_FALSE(backup.receive(empty, now));
  EXPECT_EQ(log.last(), at(1, 10));
}

TEST_F(BackupTest, RefusesALowerTerm) {
  connect();
  EXPECT_TRUE(backup.receive(entries(5, {}), now));
  connect();
  EXPECT_FALSE(backup.receive(entries(4, {}), now));
  backup.obey(6);
  EXPECT_FALSE(backup.receive(entries(5, {}), now));
}

TEST_F(BackupTest, IsCutByTheFirstMessageAndNeverBelowTheMark) {
  connect();
  EXPECT_TRUE(backup.receive(entries(1, {}, at(1, 10)), now));
  EXPECT_TRUE(backup.receive(entries(1, at(1, 10), at(1, 20), 10), now));
  EXPECT_EQ(backup.marks().replicated, 10U);
  connect();
  EXPECT_FALSE(backup.receive(entries(2, {}), now)) << "below the mark";
  connect();
  EXPECT_TRUE(backup.receive(entries(2, at(1, 10), at(2, 30)), now));
  EXPECT_EQ(log.last(), at(2, 30));
  EXPECT_FALSE(log.history().contains(at(1, 20)));
}

TEST_F(BackupTest, KeepsWhatIsAboveTheMarkUntilThePrimarySaysWhereItsLogEnds) {
  connect();
  EXPECT_TRUE(backup.receive(entries(1, {}, at(1, 10)), now));
  EXPECT_TRUE(backup.receive(entries(1, at(1, 10), at(1, 20), 10), now));
  EXPECT_EQ(backup.hello().history.last(), at(1, 20));
  number = 0;
  EXPECT_TRUE(backup.receive(entries(2, at(1, 20)), now));
  EXPECT_EQ(log.last(), at(1, 20));
}

TEST_F(BackupTest, TakesNoMarkAboveItsLog) {
  connect();
  EXPECT_TRUE(backup.receive(entries(1, {}, at(1, 10), 500), now));
  EXPECT_EQ(backup.marks().replicated, 10U);
}

// A long message takes longer than the failure time.
TEST_F(BackupTest, SaysNowAndThenThatItReceives) {
  const ReplicationTimes times;
  connect();
  EXPECT_FALSE(backup.receives(now)) << "of a primary that has said nothing";
  ASSERT_TRUE(backup.receive(entries(1, {}, at(1, 10)), now));
  const auto first = backup.answer(now);
  ASSERT_TRUE(first);
  now += times.heartbeat - 1;
  EXPECT_FALSE(backup.receives(now));
  EXPECT_EQ(backup.heard_at(), now);
  now += 1;
  const auto again = backup.receives(now);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->number, first->number);
  EXPECT_EQ(again->last, first->last);
  EXPECT_EQ(backup.acts_not_before(), now + times.wait_of_backup()) << "it may be relied on";
  now += 1;
  EXPECT_FALSE(backup.receives(now));
}

TEST_F(BackupTest, IsBoundByItsLastAnswer) {
  connect();
  EXPECT_FALSE(backup.answer(now));
  EXPECT_TRUE(backup.receive(entries(1, {}, at(1, 10)), now));
  now += 5 * kMs;
  const auto answer = backup.answer(now);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->number, 1U);
  EXPECT_EQ(answer->last, at(1, 10));
  EXPECT_FALSE(backup.answer(now)) << "nothing is new";
  EXPECT_GT(backup.acts_not_before(), now + kNanosPerSecond + 10 * kMs);
}

// A primary that was alone and knew no time has begun a new one, behind the one before.
TEST_F(BackupTest, ForgetsTheTimeBeforeTheTermInWhichItJoins) {
  const auto hear = [&](std::uint32_t term, std::uint64_t unix_ms) {
    Entries made = entries(term, {});
    made.unix_ms = unix_ms;
    return backup.receive(made, now);
  };
  connect();
  backup.joined();
  EXPECT_EQ(backup.time().at(now), 0U);
  EXPECT_TRUE(hear(1, 5000));
  backup.obey(2);
  EXPECT_EQ(backup.time().at(now), 5000U) << "it may still take over with it";
  backup.joined();
  EXPECT_EQ(backup.time().at(now), 5000U) << "it has heard no other";
  EXPECT_TRUE(hear(2, 3000));
  EXPECT_EQ(backup.time().at(now), 5000U) << "as long as it was in sync all the time";
  backup.joined();
  EXPECT_EQ(backup.time().at(now), 3000U);
  EXPECT_TRUE(hear(2, 2000));
  EXPECT_EQ(backup.time().at(now), 3000U) << "it never falls within a term";
}

// Returns the Hello of a backup whose log ends at `last`; version 0: its log is empty.
Hello hello_of(Replica replica, const LogPosition& last = at(1, 10)) {
  return {.replica = std::move(replica),
          .group = kGroup,
          .term = 1,
          .start = {},
          .history = last.version == 0 ? TermHistory{} : history({last})};
}

// A backup connects, and the primary reaches it at its own address.
Primary::Admission connected(Primary& primary, std::uint64_t peer, const Hello& hello, Nanos now) {
  const Primary::Admission admission = primary.connected(peer, hello, now);
  primary.set_reachable(peer, true);
  return admission;
}

// A primary `a`, and backups b and c that are in sync.
struct PrimaryTest : testing::Test {
  ReplicationTimes times;
  ReplicaLog log{history({at(1, 10)})};
  GroupConfiguration configuration =
      *joined(*joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2)), replica("c", 3));
  Nanos now = kStart;
  Primary primary{log, replica("a", 1), configuration, 0, times, kStart};

  void connect(std::uint64_t epoch, LogPosition last = at(1, 10)) {
    const std::string name(1, static_cast<char>('a' + epoch - 1));
    EXPECT_EQ(connected(primary, epoch, hello_of(replica(name, epoch), last), now),
              Primary::Admission::kAccepted);
  }
  // Takes all that is to be sent, and answers it `after` its sending.
  void exchange(std::uint64_t epoch, Nanos after = 0, std::uint64_t wal = 0,
                std::uint64_t sync = 0) {
    std::optional<Entries> newest;
    while (auto one = primary.next(epoch, now))
      newest = one;
    now += after;
    if (!newest) return;
    const LogPosition last = newest->block ? newest->block->last : newest->previous;
    EXPECT_TRUE(primary.answered(
        epoch, {.number = newest->number, .last = last, .wal = wal, .sync = sync}, now));
  }
  void append(std::uint64_t version) {
    log.append(at(1, version), some());
    primary.update();
  }
};

TEST_F(PrimaryTest, MarksWaitForAllThatAreInSync) {
  connect(2);
  connect(3);
  primary.on_disk(10, 10);
  append(20);
  exchange(2, 0, 20);
  EXPECT_EQ(primary.marks(), Marks{}) << "c has answered nothing in this term";
  exchange(3, 0, 10);
  EXPECT_EQ(primary.marks().replicated, 20U);
  EXPECT_EQ(primary.marks().wal, 10U);
  EXPECT_EQ(primary.marks().sync, 0U);
}

TEST_F(PrimaryTest, TheLeaseBeginsBeforeTheMessageIsSent) {
  connect(2);
  connect(3);
  EXPECT_EQ(primary.lease_until(), std::numeric_limits<Nanos>::min());
  const Nanos sent = now;
  exchange(2, 300 * kMs);
  exchange(3);
  EXPECT_EQ(primary.lease_until(), sent + times.lease_of_primary());
  EXPECT_LT(times.lease_of_primary(), times.lease);
  EXPECT_TRUE(primary.covers(now));
  EXPECT_FALSE(primary.covers(sent + times.lease_of_primary() - times.window));
}

TEST_F(PrimaryTest, AProcessThatLeavesCountsUntilItsRemovalIsKnown) {
  connect(2);
  connect(3);
  now += times.failure + 1;
  append(20);
  exchange(2);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->find("c")->in_sync());
  EXPECT_TRUE(change->find("b")->in_sync());
  EXPECT_FALSE(primary.begin_change(now)) << "one at a time";
  primary.update();
  EXPECT_EQ(primary.marks().replicated, 0U);
  primary.configuration_is(*change, now);
  EXPECT_EQ(primary.marks().replicated, 20U);
}

TEST_F(PrimaryTest, AJoinerCountsFromBeforeItsChange) {
  now += times.failure + 1;
  connect(2);
  exchange(2);
  primary.configuration_is(*primary.begin_change(now), now);  // c leaves
  append(20);
  exchange(2);
  EXPECT_EQ(primary.marks().replicated, 20U);
  connect(4);
  EXPECT_FALSE(primary.begin_change(now)) << "it has answered nothing";
  exchange(4);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->has_in_sync(replica("d", 4)));
  append(30);
  exchange(2);
  EXPECT_EQ(primary.marks().replicated, 20U);
  EXPECT_LT(primary.lease_until(), std::numeric_limits<Nanos>::max());
  exchange(4);
  EXPECT_EQ(primary.marks().replicated, 30U);
}

TEST_F(PrimaryTest, AJoinerHasWhatWasAnsweredAsWritten) {
  now += times.failure + 1;
  connect(2);
  primary.on_disk(10, 0);
  exchange(2, 0, 10);
  primary.configuration_is(*primary.begin_change(now), now);
  EXPECT_EQ(primary.marks().wal, 10U);
  connect(4);
  exchange(4, 0, 0);
  EXPECT_FALSE(primary.begin_change(now));
  now += times.heartbeat;
  exchange(2, 0, 10);
  exchange(4, 0, 10);
  EXPECT_TRUE(primary.begin_change(now));
}

// A primary that is alone, with a backup that comes back. Whatever it answers, the log is longer by
// then (PRIMARY-8).
struct AwaitedJoiner : PrimaryTest {
  Primary alone{log, replica("a", 1), *founded(kGroup, replica("a", 1), 1), 0, times, kStart};
  std::uint64_t sent = 0;

  void append_alone(std::uint64_t version, std::size_t bytes = 8) {
    log.append(at(1, version), std::make_shared<const std::vector<std::byte>>(bytes));
    alone.update();
  }
  void connect_joiner() {
    EXPECT_EQ(connected(alone, 4, hello_of(replica("d", 4)), now), Primary::Admission::kAccepted);
  }
  void answer(std::uint64_t last) {
    while (auto one = alone.next(4, now))
      sent = one->number;
    EXPECT_TRUE(alone.answered(4, {.number = sent, .last = at(1, last), .wal = last}, now));
  }
  // The log ends at 11, and the joiner is in sync.
  void join() {
    append_alone(11);
    connect_joiner();
    answer(11);
    alone.configuration_is(*alone.begin_change(now), now);
  }
  // The log ends at 30, in blocks of 1 MiB. The joiner has the first.
  void connect_far_behind() {
    for (std::uint64_t version = 11; version <= 30; ++version)
      append_alone(version, std::size_t{1} << 20);
    connect_joiner();
    answer(11);
    EXPECT_FALSE(alone.begin_change(now));
  }
};

TEST_F(AwaitedJoiner, JoinsAlthoughTheLogGrowsAllTheTime) {
  append_alone(20);
  connect_joiner();
  answer(10);
  append_alone(30);
  EXPECT_EQ(alone.marks().replicated, 30U);
  EXPECT_FALSE(alone.begin_change(now)) << "it lacks what was answered";
  append_alone(40);
  EXPECT_EQ(alone.marks().replicated, 30U) << "it is awaited";
  EXPECT_EQ(alone.lease_until(), std::numeric_limits<Nanos>::max()) << "and cannot take over";
  answer(30);
  const auto change = alone.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->has_in_sync(replica("d", 4)));
  append_alone(50);
  EXPECT_EQ(alone.marks().replicated, 30U);
  answer(50);
  EXPECT_EQ(alone.marks().replicated, 50U);
}

// Its disk is behind the primary's, which goes on: it is asked, and joins when it has caught up.
TEST_F(AwaitedJoiner, IsAskedForWhatItsDiskLacks) {
  append_alone(20);
  alone.on_disk(20, 20);
  connect_joiner();
  answer(20);
  EXPECT_FALSE(alone.begin_change(now));
  const auto asked = alone.next(4, now);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->wanted, (Wanted{.wal = 20, .sync = 20}));
  append_alone(30);
  alone.on_disk(30, 30);
  EXPECT_EQ(alone.marks(), (Marks{.replicated = 30, .wal = 30, .sync = 20})) << "for its sync";
  std::uint64_t number = asked->number;
  const auto answers = [&](std::uint64_t last, std::uint64_t sync) {
    while (const auto one = alone.next(4, now))
      number = one->number;
    return alone.answered(4, {.number = number, .last = at(1, last), .wal = last, .sync = sync},
                          now);
  };
  EXPECT_TRUE(answers(20, 10));
  now += CatchUp::kAwaitsSyncIfNeeded - 1;
  EXPECT_TRUE(answers(30, 10));
  EXPECT_FALSE(alone.begin_change(now)) << "20 was answered as synced";
  EXPECT_TRUE(answers(20, 20));
  append_alone(40);
  EXPECT_FALSE(alone.begin_change(now)) << "40 was answered";
  append_alone(50);
  alone.on_disk(50, 50);
  EXPECT_EQ(alone.marks(), (Marks{.replicated = 40, .wal = 30, .sync = 20})) << "for all";
  EXPECT_TRUE(answers(50, 20));
  EXPECT_TRUE(alone.begin_change(now));
}

TEST(CatchUp, AJoinerThatIsNeededMayTakeLongerForASync) {
  for (const auto& [is_needed, limit] :
       {std::pair{true, CatchUp::kAwaitsSyncIfNeeded}, std::pair{false, CatchUp::kAwaitsSync}}) {
    CatchUp catch_up;
    const CatchUp::Joiner joiner{.peer = 4, .epoch = 7, .lacks_little = true};
    const auto look_at = [&](Nanos now) {
      catch_up.look(std::span(&joiner, 1), {.is_needed = is_needed, .now = now});
      return catch_up.awaits_sync(7);
    };
    EXPECT_TRUE(look_at(kNanosPerSecond));
    EXPECT_TRUE(look_at(kNanosPerSecond + limit - 1));
    EXPECT_FALSE(catch_up.awaits(7)) << "only the sync mark waits";
    EXPECT_FALSE(look_at(kNanosPerSecond + limit));
    EXPECT_EQ(catch_up.take_in_vain()->waited, limit);
  }
}

TEST_F(AwaitedJoiner, PausesBetweenWaitsAreLongerAndLonger) {
  append_alone(20);
  connect_joiner();
  std::uint64_t has = 10;
  const auto is_awaited_after = [&](Nanos time) {
    now += time;
    answer(++has);  // it never gets to the mark
    EXPECT_FALSE(alone.begin_change(now));
    const std::uint64_t before = alone.marks().replicated;
    append_alone(log.last().version + 10);
    return alone.marks().replicated == before;
  };
  EXPECT_TRUE(is_awaited_after(0));
  EXPECT_TRUE(is_awaited_after(CatchUp::kAwaits - 1));
  EXPECT_FALSE(is_awaited_after(1)) << "not for longer";
  EXPECT_FALSE(is_awaited_after(CatchUp::kFirstPause - 1));
  EXPECT_TRUE(is_awaited_after(1));
  EXPECT_FALSE(is_awaited_after(CatchUp::kAwaits));
  EXPECT_FALSE(is_awaited_after(CatchUp::kFirstPause)) << "twice as long";
  EXPECT_TRUE(is_awaited_after(CatchUp::kFirstPause));
  const std::uint64_t before = alone.marks().replicated;
  alone.disconnected(4);
  EXPECT_FALSE(alone.begin_change(now));
  EXPECT_GT(alone.marks().replicated, before) << "nobody is awaited who is not there";
}

// A busy machine takes longer than kAwaits for an answer.
TEST_F(AwaitedJoiner, IsAwaitedForSomeOfItsRoundTrips) {
  append_alone(20);
  for (const auto& [round_trip, waits] :
       {std::pair{kNanosPerMs, CatchUp::kAwaits}, std::pair{300 * kNanosPerMs, 1200 * kNanosPerMs},
        std::pair{700 * kNanosPerMs, CatchUp::kLongestAwaits}}) {
    now += CatchUp::kLongestPause;
    connect_joiner();
    // Sent now, and on its disk after a round trip. Meanwhile the log has grown.
    std::uint64_t has = log.last().version;
    while (const auto one = alone.next(4, now))
      sent = one->number;
    now += round_trip;
    append_alone(has + 100);
    std::uint64_t held = 0;
    const auto is_awaited_after = [&](Nanos time) {
      now += time;
      EXPECT_TRUE(alone.answered(4, {.number = sent, .last = at(1, has), .wal = has}, now));
      ++has;  // it never gets to the mark
      EXPECT_FALSE(alone.begin_change(now));
      while (const auto one = alone.next(4, now))
        sent = one->number;
      held = std::max(held, alone.marks().replicated);
      append_alone(log.last().version + 1);
      return alone.marks().replicated == held;
    };
    EXPECT_TRUE(is_awaited_after(0));
    for (Nanos waited = 100 * kNanosPerMs; waited < waits; waited += 100 * kNanosPerMs)
      EXPECT_TRUE(is_awaited_after(100 * kNanosPerMs)) << round_trip;
    EXPECT_TRUE(is_awaited_after((100 * kNanosPerMs) - 1)) << round_trip;
    EXPECT_FALSE(is_awaited_after(1)) << round_trip;
    const auto in_vain = alone.take_awaited_in_vain();
    ASSERT_TRUE(in_vain);
    EXPECT_STREQ(in_vain->why, "it took too long");
    EXPECT_EQ(in_vain->waited, waits);
    EXPECT_EQ(in_vain->round_trip, round_trip);
    alone.disconnected(4);
    EXPECT_FALSE(alone.begin_change(now));
  }
}

// Until it is in sync there is one copy of all data.
TEST_F(AwaitedJoiner, PausesAreShorterWhereItIsNeeded) {
  append_alone(20);
  connect_joiner();
  std::uint64_t has = 10;
  Nanos longest = 0;
  Nanos since = now;
  for (int i = 0; i < 1000; ++i) {
    now += 100 * kNanosPerMs;
    answer(++has);
    EXPECT_FALSE(alone.begin_change(now));
    const std::uint64_t before = alone.marks().replicated;
    append_alone(log.last().version + 10);
    if (alone.marks().replicated == before) since = now;
    longest = std::max(longest, now - since);
  }
  EXPECT_GT(longest, CatchUp::kLongestPauseIfNeeded / 2);
  EXPECT_LE(longest, CatchUp::kLongestPauseIfNeeded + (100 * kNanosPerMs));
}

TEST_F(AwaitedJoiner, IsToldOfWhenItWasAwaitedInVain) {
  append_alone(20);
  connect_joiner();
  answer(11);
  EXPECT_FALSE(alone.begin_change(now));
  EXPECT_FALSE(alone.take_awaited_in_vain()) << "it is awaited now";
  append_alone(30, 1000);
  now += CatchUp::kAwaits;
  answer(15);
  EXPECT_FALSE(alone.begin_change(now));
  const auto told = alone.take_awaited_in_vain();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->name, "d");
  EXPECT_STREQ(told->why, "it took too long");
  EXPECT_EQ(told->waited, CatchUp::kAwaits);
  EXPECT_EQ(told->lacks_bytes, 1000U);
  EXPECT_FALSE(alone.take_awaited_in_vain()) << "once";
  now += CatchUp::kFirstPause;
  answer(16);
  EXPECT_FALSE(alone.begin_change(now));
  alone.set_store_answers(false);
  EXPECT_FALSE(alone.begin_change(now));
  EXPECT_STREQ(alone.take_awaited_in_vain()->why,
               "etcd does not answer, or the primary hands over");
  alone.set_store_answers(true);
  now += CatchUp::kLongestPauseIfNeeded;
  answer(17);
  EXPECT_FALSE(alone.begin_change(now));
  alone.disconnected(4);
  EXPECT_FALSE(alone.begin_change(now));
  EXPECT_STREQ(alone.take_awaited_in_vain()->why, "its connection has ended");
}

TEST_F(AwaitedJoiner, IsNotToldOfWhenItHasJoined) {
  join();
  EXPECT_FALSE(alone.take_awaited_in_vain());
}

TEST_F(AwaitedJoiner, IsNotAwaitedIfItLacksMuch) {
  for (std::uint64_t version = 11; version <= 15; ++version)
    append_alone(version, CatchUp::kLacksLittle / 3);
  connect_joiner();
  answer(10);
  EXPECT_FALSE(alone.begin_change(now));
  append_alone(20);
  EXPECT_EQ(alone.marks().replicated, 20U);
  answer(15);
  EXPECT_FALSE(alone.begin_change(now));
  append_alone(30);
  EXPECT_EQ(alone.marks().replicated, 20U) << "now it lacks little";
}

// Whatever their length: they are of the longest values.
TEST_F(AwaitedJoiner, LacksLittleIfItLacksFewBlocks) {
  for (std::uint64_t version = 11; version <= 13; ++version)
    append_alone(version, CatchUp::kLacksLittle);
  connect_joiner();
  answer(10);
  EXPECT_FALSE(alone.begin_change(now));
  append_alone(20);
  EXPECT_EQ(alone.marks().replicated, 13U);
}

// Its disk takes less than clients write: they are slowed down until it lacks little.
TEST_F(AwaitedJoiner, SetsThePaceIfItsDiskLacksMuch) {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  constexpr std::uint64_t kBlocks = 50;
  for (std::uint64_t version = 11; version <= kBlocks; ++version)
    append_alone(version, kBlock);
  EXPECT_EQ(alone.marks().replicated, kBlocks) << "nobody is connected";
  connect_joiner();
  std::uint64_t has = 11;
  std::uint64_t appended = kBlocks;
  // By how many blocks the mark rises when clients write `written` and the disk takes `taken`.
  const auto rises = [&](std::uint64_t written, std::uint64_t taken) {
    const std::uint64_t before = alone.marks().replicated;
    for (; written != 0; --written)
      append_alone(++appended, kBlock);
    answer(has += taken);
    EXPECT_FALSE(alone.begin_change(now));
    return alone.marks().replicated - before;
  };
  EXPECT_EQ(rises(0, 0), 0U);
  EXPECT_EQ(rises(20, 0), CatchUp::kMostAllowed / kBlock) << "at first";
  for (int round = 0; round != 4; ++round)
    EXPECT_EQ(rises(1, 2), 1U) << "half of what its disk takes";
  EXPECT_EQ(rises(0, 25), CatchUp::kMostAllowed / kBlock) << "and not much at once";
  EXPECT_LT(alone.marks().replicated, appended);
  EXPECT_EQ(rises(0, alone.marks().replicated - 1 - has), 4U);
  EXPECT_EQ(alone.marks().replicated, appended) << "it lacks little";
}

// It answers all the time, and has all in memory.
TEST_F(AwaitedJoiner, SetsNoPaceAndDoesNotJoinWhenItsDiskStandsStill) {
  connect_far_behind();
  alone.on_disk(30, 30);
  std::uint64_t last = 30;
  const auto rises = [&](std::size_t bytes) {
    const std::uint64_t before = alone.marks().replicated;
    append_alone(++last, bytes);
    while (auto one = alone.next(4, now))
      sent = one->number;
    EXPECT_TRUE(alone.answered(4, {.number = sent, .last = at(1, last), .wal = 11}, now));
    EXPECT_FALSE(alone.begin_change(now += times.heartbeat));
    return alone.marks().replicated > before;
  };
  EXPECT_TRUE(rises(std::size_t{9} << 20)) << "what is allowed at once";
  for (const Nanos end = now + Primary::kDiskPauses - (2 * times.heartbeat); now < end;)
    EXPECT_FALSE(rises(8));
  for (int turns = 0; turns != 3; ++turns)
    rises(8);
  EXPECT_EQ(alone.marks().replicated, last);
}

// The group has another backup in sync.
TEST_F(AwaitedJoiner, SetsThePaceHalfOfTheTimeIfItIsNotNeeded) {
  configuration = *left(configuration, replica("c", 3));
  Primary one(log, replica("a", 1), configuration, 0, times, now);
  EXPECT_EQ(connected(one, 2, hello_of(replica("b", 2)), now), Primary::Admission::kAccepted);
  for (std::uint64_t version = 11; version <= 60; ++version)
    log.append(at(1, version), std::make_shared<const std::vector<std::byte>>(1 << 20));
  EXPECT_EQ(connected(one, 4, hello_of(replica("d", 4)), now), Primary::Admission::kAccepted);
  std::uint64_t last = 60;
  std::uint64_t joiner = 11;
  int held = 0;
  int turns = 0;
  for (const Nanos end = now + 20 * kNanosPerSecond; now < end; now += 50 * kMs, ++turns) {
    log.append(at(1, ++last), std::make_shared<const std::vector<std::byte>>(1 << 20));
    if (turns % 10 == 0) ++joiner;
    for (const std::uint64_t epoch : {2, 4}) {
      std::optional<Entries> newest;
      while (auto entries = one.next(epoch, now))
        newest = entries;
      if (!newest) continue;
      const std::uint64_t end_of_log =
          (newest->block ? newest->block->last : newest->previous).version;
      const std::uint64_t has = epoch == 2 ? end_of_log : std::min(joiner, end_of_log);
      EXPECT_TRUE(one.answered(
          epoch, {.number = newest->number, .last = at(1, end_of_log), .wal = has, .sync = has},
          now));
    }
    one.on_disk(last, last);
    EXPECT_FALSE(one.begin_change(now));
    if (one.marks().replicated < last) ++held;
  }
  EXPECT_GT(held, turns / 10);
  EXPECT_LT(held, turns * 6 / 10);
}

TEST_F(AwaitedJoiner, DoesNotSetThePaceWhenItHasStoodStill) {
  connect_far_behind();
  append_alone(100, std::size_t{20} << 20);
  append_alone(101);
  EXPECT_EQ(alone.marks().replicated, 100U) << "one block may be longer";
  now += times.failure + 1;
  EXPECT_FALSE(alone.begin_change(now));
  EXPECT_EQ(alone.marks().replicated, 101U);
}

// PRIMARY-9
TEST_F(AwaitedJoiner, IsSentNoMoreThanItsDiskTakes) {
  constexpr std::uint64_t kBlock = Primary::kMostUnwritten / 4;
  for (std::uint64_t version = 11; version <= 18; ++version)
    append_alone(version, kBlock);
  connect_joiner();
  std::uint64_t last = 0;
  const auto send = [&] {
    while (const auto one = alone.next(4, now)) {
      sent = one->number;
      if (one->block) last = one->block->last.version;
    }
    return last;
  };
  EXPECT_EQ(send(), 14U);
  now += times.heartbeat;
  const auto heartbeat = alone.next(4, now);
  ASSERT_TRUE(heartbeat) << "it must not take the primary for gone";
  EXPECT_FALSE(heartbeat->block);
  const auto answers = [&](std::uint64_t wal) {
    return alone.answered(4, {.number = sent, .last = at(1, last), .wal = wal}, now);
  };
  EXPECT_TRUE(answers(0));
  EXPECT_EQ(send(), 14U);
  EXPECT_TRUE(answers(12));
  EXPECT_EQ(send(), 16U);
  EXPECT_EQ(alone.needed_after(), 12U) << "until it is on its disk";
}

TEST_F(AwaitedJoiner, DoesNotJoinWhileTheStoreDoesNotAnswer) {
  append_alone(20);
  connect_joiner();
  answer(20);
  alone.set_store_answers(false);
  EXPECT_FALSE(alone.begin_change(now));
  append_alone(30);
  EXPECT_EQ(alone.marks().replicated, 30U) << "nor is it awaited";
  answer(30);
  alone.set_store_answers(true);
  EXPECT_TRUE(alone.begin_change(now));
}

// Answered entries must not outgrow the log that a copy needs at its end.
TEST_F(AwaitedJoiner, TheLogIsLimited) {
  for (std::uint64_t version = 11; version <= 14; ++version)
    append_alone(version);
  EXPECT_EQ(alone.marks().replicated, 14U);
  alone.limit_log(48);
  for (std::uint64_t version = 15; version <= 18; ++version)
    append_alone(version);
  EXPECT_EQ(alone.marks().replicated, 16U);
  alone.limit_log(8);
  alone.update();
  EXPECT_EQ(alone.marks().replicated, 16U) << "marks never fall";
  alone.limit_log({});
  alone.update();
  EXPECT_EQ(alone.marks().replicated, 18U);
}

// A backup's disk is not to blame for entries that it may not write yet.
TEST_F(AwaitedJoiner, OnceInSyncItStaysThoughTheMarksAreHeld) {
  join();
  alone.limit_log(0);
  for (std::uint64_t version = 12; version <= 20; ++version)
    append_alone(version, Primary::kMostUnwritten / 4);
  for (const Nanos end = now + 2 * Primary::kDiskPauses; now < end; now += times.heartbeat) {
    while (const auto one = alone.next(4, now))
      sent = one->number;
    ASSERT_TRUE(alone.answered(4, {.number = sent, .last = at(1, 20), .wal = 11}, now));
    ASSERT_FALSE(alone.begin_change(now));
  }
  EXPECT_EQ(alone.marks().replicated, 11U);
}

// A sync may take a second, in which it takes nothing.
TEST_F(AwaitedJoiner, OnceInSyncItsDiskMayPause) {
  join();
  std::uint64_t last = 11;
  const auto exchange_with_joiner = [&] {
    while (const auto one = alone.next(4, now)) {
      sent = one->number;
      if (one->block) last = one->block->last.version;
    }
    EXPECT_TRUE(alone.answered(4, {.number = sent, .last = at(1, last), .wal = 11}, now));
  };
  const auto answers_for = [&](Nanos time) {
    for (const Nanos end = now + time; now < end; now += times.heartbeat)
      exchange_with_joiner();
  };
  for (std::uint64_t version = 12; version <= 20; ++version) {
    append_alone(version, Primary::kMostUnwritten / 4);
    exchange_with_joiner();
  }
  EXPECT_LT(last, 20U);
  answers_for(Primary::kDiskPauses - 2 * times.heartbeat);
  EXPECT_FALSE(alone.begin_change(now));
  answers_for(4 * times.heartbeat);
  EXPECT_TRUE(alone.begin_change(now)) << "it holds all writes";
}

TEST_F(AwaitedJoiner, OnceInSyncItMayTakeLongToReceiveABlock) {
  join();
  answer(11);
  const Nanos heard = alone.heard_since();
  append_alone(20, std::size_t{16} << 20);
  const std::uint64_t answered = sent;
  while (alone.next(4, now)) {
  }
  for (const Nanos end = now + 5 * times.failure; now < end; now += times.heartbeat) {
    ASSERT_TRUE(alone.answered(4, {.number = answered, .last = at(1, 11), .wal = 11}, now));
    ASSERT_FALSE(alone.begin_change(now));
  }
  EXPECT_EQ(alone.heard_since(), heard) << "it is not a lease";
  now += times.failure;
  EXPECT_TRUE(alone.begin_change(now)) << "it receives nothing any more";
}

// Else what was begun would not be answered in the time that a hand-over has.
TEST_F(AwaitedJoiner, HoldsNothingDuringAHandOver) {
  connect_far_behind();
  append_alone(31, std::size_t{20} << 20);
  append_alone(32);
  alone.limit_log(0);
  EXPECT_EQ(alone.marks().replicated, 31U);
  alone.set_hurries(true);
  alone.update();
  EXPECT_EQ(alone.marks().replicated, 32U);
}

// One of two joiners joins, with an unknown outcome; the other one, which set the pace, stands
// still.
TEST_F(AwaitedJoiner, SetsNoPaceWhileAChangeIsUndecided) {
  connect_far_behind();
  EXPECT_EQ(connected(alone, 5, hello_of(replica("e", 5), at(1, 30)), now),
            Primary::Admission::kAccepted);
  const auto other = [&](std::uint64_t last) {
    std::uint64_t number = 0;
    while (const auto one = alone.next(5, now))
      number = one->number;
    return alone.answered(5, {.number = number, .last = at(1, last), .wal = last}, now);
  };
  EXPECT_TRUE(other(30));
  EXPECT_TRUE(alone.begin_change(now));
  append_alone(31, std::size_t{20} << 20);
  append_alone(32);
  EXPECT_TRUE(other(32));
  EXPECT_EQ(alone.marks().replicated, 32U);
}

// A joiner that has part of the log only.
TEST_F(PrimaryTest, AJoinerHasWhatIsReplicated) {
  now += times.failure + 1;
  connect(2);
  exchange(2);
  primary.configuration_is(*primary.begin_change(now), now);
  append(20);
  exchange(2);
  EXPECT_EQ(primary.marks().replicated, 20U);
  connect(4);
  std::optional<Entries> newest;
  while (auto one = primary.next(4, now))
    newest = one;
  EXPECT_TRUE(primary.answered(4, {.number = 1, .last = at(1, 10)}, now));
  EXPECT_FALSE(primary.begin_change(now));
  EXPECT_TRUE(primary.answered(4, {.number = newest->number, .last = at(1, 20)}, now));
  EXPECT_TRUE(primary.begin_change(now));
}

TEST_F(PrimaryTest, AnotherProcessOfANameDoesNotCount) {
  connect(3);
  exchange(3);
  EXPECT_EQ(connected(primary, 9, hello_of(replica("b", 9)), now), Primary::Admission::kAccepted);
  exchange(9);
  EXPECT_EQ(primary.marks(), Marks{}) << "the process of b that is in sync has answered nothing";
  EXPECT_EQ(primary.lease_until(), std::numeric_limits<Nanos>::min());
}

// The primary forgets what it knew of a process, so that processes that come and go take no memory.
TEST_F(PrimaryTest, AJoinerThatComesBackAnswersAgain) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  connect(4);
  exchange(4);
  primary.disconnected(4);
  connect(4);
  EXPECT_FALSE(primary.begin_change(now));
  now += times.heartbeat;
  exchange(4);
  EXPECT_TRUE(primary.begin_change(now));
}

TEST_F(PrimaryTest, WhoAnswersNothingIsNotSentEverMore) {
  connect(2);
  std::uint64_t number = 0;
  for (std::uint64_t version = 20; version < 20 + (2 * Primary::kMaxUnanswered); ++version) {
    log.append(at(1, version), some());
    if (const auto sent = primary.next(2, now)) number = sent->number;
  }
  EXPECT_EQ(number, Primary::kMaxUnanswered);
  ASSERT_TRUE(primary.answered(2, {.number = 1, .last = at(1, 10)}, now));
  EXPECT_TRUE(primary.next(2, now)) << "one was answered";
  EXPECT_FALSE(primary.next(2, now));
}

TEST_F(PrimaryTest, SaysWhatItKnowsOfOthers) {
  connect(2);
  exchange(2);
  now += kMs;
  connect(4);  // d, not in sync
  const std::vector<Primary::Other> others = primary.others();
  ASSERT_EQ(others.size(), 3U);
  EXPECT_EQ(others[0].name, "b");
  EXPECT_TRUE(others[0].is_in_sync && others[0].is_connected);
  EXPECT_EQ(others[0].last, at(1, 10));
  EXPECT_EQ(others[0].heard_at, now - kMs);
  EXPECT_EQ(others[1].name, "c");
  EXPECT_TRUE(others[1].is_in_sync && !others[1].is_connected);
  EXPECT_EQ(others[1].last, LogPosition{}) << "it has answered nothing in this term";
  EXPECT_EQ(others[2].name, "d");
  EXPECT_TRUE(!others[2].is_in_sync && others[2].is_connected);
}

TEST_F(PrimaryTest, ABackupThatAnswersWithoutProgressLeaves) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  append(20);
  for (const Nanos end = now + times.failure + (2 * times.heartbeat); now < end;
       now += times.heartbeat) {
    exchange(2);
    std::optional<Entries> newest;
    while (auto one = primary.next(3, now))
      newest = one;
    if (!newest) continue;
    EXPECT_TRUE(primary.answered(3, {.number = newest->number, .last = at(1, 10)}, now));
  }
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->find("c")->in_sync());
  EXPECT_TRUE(change->find("b")->in_sync());
}

struct TimeTest : PrimaryTest {
  static constexpr std::int64_t kBegan = 1'795'000'000'000;
  struct Other {
    Nanos way = kMs;  // of a message, and of its answer
    bool is_silent = false;
    bool counts = true;
    TimeOfBackup time{};
    std::vector<std::pair<Nanos, Entries>> entries{};
    std::vector<std::pair<Nanos, std::uint64_t>> answers{};
  };
  std::map<std::uint64_t, Other> others;  // by epoch
  std::uint64_t shown = 0;

  // By the primary's own clock.
  std::uint64_t own() const { return static_cast<std::uint64_t>(kBegan + ((now - kStart) / kMs)); }
  void propose(Primary& to) { to.propose_time(own(), now); }
  void deliver(std::uint64_t epoch, Other& other) {
    if (const auto entries = primary.next(epoch, now))
      other.entries.emplace_back(now + other.way, *entries);
    auto& sent = other.entries;
    for (; !sent.empty() && sent.front().first <= now; sent.erase(sent.begin())) {
      other.time.raise(sent.front().second.unix_ms, now);
      if (!other.is_silent) other.answers.emplace_back(now + other.way, sent.front().second.number);
    }
    auto& back = other.answers;
    for (; !back.empty() && back.front().first <= now; back.erase(back.begin()))
      EXPECT_TRUE(primary.answered(
          epoch, {.number = back.front().second, .last = at(1, 10), .wal = 10, .sync = 10}, now));
  }
  // The time that all processes that count know is never before the primary's, which never falls.
  void pass(Nanos time) {
    for (const Nanos end = now + time; now < end; now += kMs) {
      propose(primary);
      for (auto& [epoch, other] : others)
        deliver(epoch, other);
      propose(primary);
      ASSERT_GE(primary.time().at(now), shown) << "it falls";
      shown = primary.time().at(now);
      for (const auto& [epoch, other] : others) {
        if (other.counts) {
          ASSERT_LE(shown, other.time.at(now)) << "of " << epoch;
        }
        ASSERT_LE(other.time.by_clock(now), own()) << "a take-over would be ahead";
      }
    }
  }
};

TEST_F(TimeTest, HasSettledWhenWhatItInheritedIsReplicatedAndAllHaveItsTime) {
  Primary later(log, replica("a", 1), configuration, kBegan, times, now);
  const auto answer = [&](std::uint64_t epoch, std::uint64_t number) {
    propose(later);
    ASSERT_TRUE(later.next(epoch, now));
    now += kMs;
    EXPECT_TRUE(later.answered(epoch, {.number = number, .last = at(1, 10)}, now));
    propose(later);
  };
  for (const std::uint64_t epoch : {2, 3}) {
    const Hello hello = hello_of(replica(epoch == 2 ? "b" : "c", epoch));
    EXPECT_EQ(connected(later, epoch, hello, now), Primary::Admission::kAccepted);
  }
  answer(2, 1);
  EXPECT_FALSE(later.has_settled()) << "c has not answered";
  answer(3, 1);
  EXPECT_FALSE(later.has_settled()) << "an earlier primary may have used a later time";
  now += 20 * kMs;
  propose(later);
  EXPECT_TRUE(later.has_settled()) << "they have passed it meanwhile";
  EXPECT_GE(later.time().at(now), static_cast<std::uint64_t>(kBegan));
}

// It is behind by the time of a message and its answer, and by what the rates differ meanwhile.
TEST_F(TimeTest, NoBackupIsBehindWhatThePrimaryShows) {
  connect(2);
  connect(3);
  others = {{2, {}}, {3, {}}};
  for (const Nanos way : {kMs, 20 * kMs, 150 * kMs}) {
    others[2].way = way;
    pass(3 * kNanosPerSecond);
    EXPECT_GE(shown + static_cast<std::uint64_t>(2 * way / kMs) + 25, own());
  }
}

TEST_F(TimeTest, RunsOnWhileABackupIsSilentAndStandsWhenNobodyAsks) {
  connect(2);
  connect(3);
  others = {{2, {}}, {3, {}}};
  pass(kNanosPerSecond);
  others[3].is_silent = true;
  pass(700 * kMs);
  EXPECT_GE(shown + 60, own());
  EXPECT_EQ(primary.time().at(now + kNanosPerSecond), primary.time().at(primary.time().until));
  EXPECT_LE(primary.time().at(now + kNanosPerSecond), shown + 251);
}

TEST_F(TimeTest, AJoinerKnowsTheTimeBeforeItCounts) {
  configuration = *left(configuration, replica("c", 3));
  primary.configuration_is(configuration, now);
  primary.on_disk(10, 10);
  connect(2);
  others = {{2, {}}};
  pass(kNanosPerSecond);
  connect(3);
  others[3] = {.way = 100 * kMs, .counts = false};
  bool joins = false;
  for (const Nanos end = now + 2 * kNanosPerSecond; now < end && !joins;) {
    pass(kMs);
    joins = primary.begin_change(now).has_value();
  }
  ASSERT_TRUE(joins);
  EXPECT_LE(shown, others[3].time.at(now));
  others[3].counts = true;
  pass(kNanosPerSecond);
  EXPECT_GE(shown + 225, own());
}

TEST_F(PrimaryTest, IsSilentIfAChangeHasNoOutcome) {
  connect(2);
  connect(3);
  now += times.failure + 1;
  exchange(2);
  ASSERT_TRUE(primary.begin_change(now));
  now += times.undecided + 1;
  EXPECT_FALSE(primary.next(2, now));
}

// Nobody is replaced for it while all answer: a primary that was alone would leave its clients
// alone, although its joiner is well.
TEST_F(PrimaryTest, GoesOnIfAJoinHasNoOutcomeAndAllAnswer) {
  now += times.failure + 1;
  connect(2);
  exchange(2);
  primary.configuration_is(*primary.begin_change(now), now);  // c leaves
  exchange(2);
  connect(4);
  exchange(4);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  for (const Nanos end = now + 2 * times.undecided; now < end; now += times.heartbeat) {
    exchange(2);
    exchange(4);
    EXPECT_GT(primary.lease_until(), now);
  }
  now += times.failure + 1;
  EXPECT_FALSE(primary.next(2, now)) << "now somebody has to be left out";
  now += times.heartbeat;
  EXPECT_FALSE(primary.next(2, now)) << "and others must be able to take over";
  primary.configuration_is(*change, now);
  EXPECT_TRUE(primary.next(2, now));
}

// It was away for longer than a change may be undecided.
TEST_F(PrimaryTest, SpeaksToWhoComesBackWhileNothingIsDecided) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  primary.disconnected(3);
  now += times.failure + 1;
  exchange(2);
  ASSERT_TRUE(primary.begin_change(now));
  now += times.undecided + 1;
  EXPECT_FALSE(primary.next(2, now));
  connect(3);
  EXPECT_TRUE(primary.next(3, now)) << "it cannot have answered yet";
  now += times.failure + 1;
  EXPECT_FALSE(primary.next(2, now)) << "it does not answer";
}

TEST_F(PrimaryTest, AJoinerHasOnDiskWhatWasAnsweredInTermsBefore) {
  now += times.failure + 1;
  connect(2);
  exchange(2);
  primary.configuration_is(*primary.begin_change(now), now);  // c leaves
  primary.on_disk(10, 10);
  connect(4);
  exchange(4);
  EXPECT_EQ(primary.marks().wal, 0U) << "b has not answered it in this term";
  EXPECT_FALSE(primary.begin_change(now));
  now += times.heartbeat;
  exchange(2);
  std::optional<Entries> heartbeat = primary.next(4, now);
  ASSERT_TRUE(heartbeat);
  EXPECT_TRUE(
      primary.answered(4, {.number = heartbeat->number, .last = at(1, 10), .wal = 10}, now));
  EXPECT_FALSE(primary.begin_change(now)) << "it is not on its disk";
  EXPECT_TRUE(primary.answered(
      4, {.number = heartbeat->number, .last = at(1, 10), .wal = 10, .sync = 10}, now));
  EXPECT_TRUE(primary.begin_change(now));
}

TEST_F(PrimaryTest, RemovesNobodyThatItDidNotAsk) {
  connect(2);
  connect(3);
  exchange(2, 0, 10, 10);
  exchange(3, 0, 10, 10);
  primary.set_unfit(true, now);
  now += times.failure + 1;
  EXPECT_FALSE(primary.begin_change(now)) << "the primary itself has to give way";
  primary.set_unfit(false, now);
  EXPECT_FALSE(primary.begin_change(now + 1));
}

TEST_F(PrimaryTest, RemovesNobodyForItsSilenceWithoutAnOutcome) {
  connect(2);
  connect(3);
  now += times.failure + 1;
  exchange(2);
  const auto change = primary.begin_change(now);  // c leaves
  ASSERT_TRUE(change);
  now += times.undecided + 1;
  EXPECT_FALSE(primary.next(2, now));
  primary.configuration_is(*change, now);
  EXPECT_FALSE(primary.begin_change(now)) << "b was not asked anything meanwhile";
  now += times.failure + 1;
  EXPECT_TRUE(primary.begin_change(now)) << "b does not answer";
}

// Else reads would end with the last byte of equal disks.
TEST_F(PrimaryTest, IsSilentIfItIsUnfitAndABackupHasSaidThatItMayLead) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3, 0, 10);
  primary.on_disk(10, 10);
  append(20);
  primary.set_unfit(true, now);
  EXPECT_FALSE(primary.next(2, now))
      << "c has written all that is replicated, and says nothing else";
  primary.set_unfit(false, now);
  exchange(2);
  exchange(3, 0, 10);
  ASSERT_EQ(primary.marks().replicated, 20U);
  primary.set_unfit(true, now);
  std::uint64_t number = 0;
  const auto answer = [&](std::uint64_t wal, bool may_lead) {
    while (const auto entries = primary.next(3, now += times.heartbeat))
      number = entries->number;
    EXPECT_TRUE(primary.answered(
        3, {.number = number, .last = at(1, 20), .wal = wal, .may_lead = may_lead}, now));
    return primary.next(2, now += times.heartbeat).has_value();
  };
  EXPECT_TRUE(answer(10, true)) << "what this disk did not take, c has not written either";
  EXPECT_TRUE(answer(20, false)) << "c has, but has run out of space now";
  EXPECT_FALSE(answer(20, true));
  EXPECT_TRUE(answer(20, false));
  EXPECT_FALSE(answer(20, true));
  primary.set_unfit(false, now);
  EXPECT_TRUE(primary.next(2, now += times.heartbeat));
}

// Its writes wait so long for the word of a backup, and fail only then.
TEST_F(PrimaryTest, AnUnfitOneMayHaveASuccessorUntilBackupsHaveHadTheTimeToSaySo) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  primary.on_disk(10, 10);
  append(20);
  exchange(2);
  exchange(3);
  ASSERT_EQ(primary.marks().replicated, 20U);
  EXPECT_FALSE(primary.has_successor()) << "nobody has written the last entry yet";
  primary.set_unfit(false, now);
  primary.set_unfit(true, now + times.deposing);
  EXPECT_TRUE(primary.may_have_successor(now + times.deposing));
  EXPECT_FALSE(primary.may_have_successor(now + times.deposing + 1));
  exchange(3, 0, 20);
  now += times.failure + 1;
  primary.set_unfit(true, now);
  EXPECT_TRUE(primary.may_have_successor(now));
  primary.disconnected(3);
  EXPECT_TRUE(primary.may_have_successor(now + times.deposing)) << "it takes over, perhaps";
  EXPECT_FALSE(primary.may_have_successor(now + times.deposing + 1));
}

TEST_F(PrimaryTest, WhoMayNotLeadDoesNotJoinAndIsNoSuccessor) {
  connect(2);
  connect(3);
  ASSERT_TRUE(primary.next(2, now));
  EXPECT_TRUE(primary.answered(2, {.number = 1, .last = at(1, 10), .may_lead = false}, now));
  EXPECT_FALSE(primary.successor("b", now));
  exchange(3);
  EXPECT_TRUE(primary.successor({}, now));
  EXPECT_EQ(primary.successor({}, now)->replica.name, "c");

  Primary alone(log, replica("a", 1), *founded(kGroup, replica("a", 1), 1), 0, times, now);
  EXPECT_EQ(connected(alone, 2, hello_of(replica("b", 2)), now), Primary::Admission::kAccepted);
  ASSERT_TRUE(alone.next(2, now));
  EXPECT_TRUE(alone.answered(2, {.number = 1, .last = at(1, 10), .may_lead = false}, now));
  EXPECT_FALSE(alone.begin_change(now));
  EXPECT_TRUE(alone.answered(2, {.number = 1, .last = at(1, 10)}, now));
  EXPECT_TRUE(alone.begin_change(now));
}

// PRIMARY-13
TEST_F(AwaitedJoiner, DoesNotJoinBeforeItWasReachedAndHoldsNoWriteUntilThen) {
  append_alone(20);
  connect_joiner();
  for (const std::optional<bool> is_reachable : {std::optional<bool>(), std::optional(false)}) {
    EXPECT_EQ(alone.connected(4, hello_of(replica("d", 4)), now), Primary::Admission::kAccepted);
    if (is_reachable) alone.set_reachable(4, *is_reachable);
    answer(10);
    EXPECT_FALSE(alone.begin_change(now)) << "it lacks what was answered, and is not awaited";
    append_alone(alone.last() + 10);
    EXPECT_EQ(alone.marks().replicated, alone.last());
    answer(alone.last());
    EXPECT_FALSE(alone.begin_change(now)) << "it has everything";
    EXPECT_EQ(alone.others().at(0).is_unreachable, is_reachable.has_value());
  }
  alone.set_reachable(4, true);
  EXPECT_FALSE(alone.others().at(0).is_unreachable);
  EXPECT_TRUE(alone.begin_change(now));
}

TEST_F(AwaitedJoiner, HoldsNoWriteWhileItMayNotLead) {
  append_alone(20);
  connect_joiner();
  ASSERT_TRUE(alone.next(4, now));
  EXPECT_TRUE(alone.answered(4, {.number = 1, .last = at(1, 10), .may_lead = false}, now));
  append_alone(30);
  EXPECT_FALSE(alone.begin_change(now));
  append_alone(40);
  EXPECT_EQ(alone.marks().replicated, 40U);
}

TEST_F(AwaitedJoiner, SetsNoPaceWhileItCannotBeReached) {
  connect_joiner();
  alone.set_reachable(4, false);
  for (std::uint64_t version = 11; version <= 60; ++version)
    append_alone(version, std::size_t{1} << 20);
  answer(11);
  EXPECT_FALSE(alone.begin_change(now));
  append_alone(61, std::size_t{20} << 20);
  append_alone(62);
  EXPECT_EQ(alone.marks().replicated, 62U);
}

// PRIMARY-13. Its connection ends and is made again, and it is called again.
TEST_F(PrimaryTest, AProcessInSyncStaysSoAlthoughItCannotBeReached) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  primary.disconnected(2);
  EXPECT_EQ(primary.connected(5, hello_of(replica("b", 2)), now), Primary::Admission::kAccepted);
  EXPECT_TRUE(primary.successor({}, now)) << "it is not known yet whether b can be reached";
  primary.set_reachable(5, false);
  append(20);
  exchange(5);
  exchange(3);
  EXPECT_EQ(primary.marks().replicated, 20U);
  EXPECT_FALSE(primary.begin_change(now));
  EXPECT_GT(primary.lease_until(), now);
  EXPECT_EQ(primary.successor({}, now)->replica.name, "c");
  EXPECT_FALSE(primary.successor("b", now)) << "it would hear nobody";
  primary.set_reachable(5, true);
  EXPECT_TRUE(primary.successor("b", now));
  primary.set_reachable(2, false);  // of the connection before
  EXPECT_TRUE(primary.successor("b", now));
}

TEST(Membership, WhoMayNotLeadTakesNothingOver) {
  const ReplicationTimes times;
  ReplicaLog log;
  Membership membership(log, replica("b", 2), {.new_group = 1}, times);
  membership.read({.configuration = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2)),
                   .revision = 1},
                  kStart);
  membership.backup().set_may_lead(false);
  Nanos now = kStart;
  for (; now < kStart + 5 * kNanosPerSecond; now += 20 * kMs)
    ASSERT_FALSE(membership.wanted(now));
  membership.backup().set_may_lead(true);
  EXPECT_TRUE(membership.wanted(now));
}

// PRIMARY-7
TEST_F(PrimaryTest, HandsOverWhenNobodyBelievesItAnyMore) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  ASSERT_TRUE(primary.covers(now));
  const Nanos last_tick = now;
  EXPECT_FALSE(primary.hand_over(2, now + kNanosPerSecond)) << "it ticks";
  primary.end_ticks();
  EXPECT_FALSE(primary.covers(now));
  EXPECT_FALSE(primary.hand_over(2, last_tick + times.window - 1));
  EXPECT_FALSE(primary.hand_over(9, last_tick + times.window)) << "not connected";
  primary.resume_ticks();
  EXPECT_TRUE(primary.covers(now));
  primary.end_ticks();
  now = last_tick + times.window;
  ASSERT_TRUE(primary.hand_over(2, now));
  primary.resume_ticks();
  EXPECT_FALSE(primary.covers(now));
  append(20);
  EXPECT_FALSE(primary.next(3, now)) << "it is silent";
  EXPECT_FALSE(primary.begin_change(now + 2 * times.failure));
  EXPECT_FALSE(primary.hand_over(3, now)) << "it has told another one";
}

TEST_F(PrimaryTest, DoesNotHandOverWhileAChangeHasNoOutcome) {
  connect(2);
  connect(3);
  now += times.failure + 1;
  exchange(2);
  const auto change = primary.begin_change(now);  // c leaves
  ASSERT_TRUE(change);
  primary.end_ticks();
  EXPECT_FALSE(primary.hand_over(2, now));
  primary.configuration_is(*change, now);
  EXPECT_FALSE(primary.hand_over(3, now)) << "c is not in sync";
  EXPECT_TRUE(primary.hand_over(2, now));
}

TEST_F(PrimaryTest, ItsSuccessorIsInSyncAndWell) {
  EXPECT_FALSE(primary.successor({}, now));
  connect(2);
  connect(3);
  connect(4);  // joins
  append(20);
  exchange(3);
  exchange(4);
  EXPECT_EQ(primary.successor({}, now)->replica.name, "c");
  EXPECT_FALSE(primary.successor("b", now)) << "it has answered nothing";
  EXPECT_FALSE(primary.successor("d", now));
  exchange(2);
  EXPECT_EQ(primary.successor("b", now)->peer, 2U);
  EXPECT_TRUE(primary.successor("b", now)->has_all);
  now += times.failure + 1;
  EXPECT_FALSE(primary.successor({}, now));
}

struct SuccessionTest : PrimaryTest {
  Succession succession;
  SuccessionTest() {
    connect(2);
    connect(3);
    primary.on_disk(10, 10);
    exchange(2, 0, 10, 10);
    exchange(3, 0, 10, 10);
    EXPECT_TRUE(primary.covers(now));
  }
  auto step(bool is_quiet = true) { return succession.step(primary, now, is_quiet); }
};

TEST_F(SuccessionTest, ServesUntilTheLastTickHasNearlyRunOutAndTellsWhenAllIsAnswered) {
  ASSERT_TRUE(succession.begin(primary, "c", now));
  EXPECT_EQ(succession.begin(primary, "b", now).error().code, Code::kBusy);
  const Nanos end = primary.believed_until();
  now = end - Succession::kClosedBefore - 1;
  EXPECT_FALSE(step());
  EXPECT_FALSE(succession.is_closed());
  append(20);
  now = end - Succession::kClosedBefore;
  EXPECT_FALSE(step());
  EXPECT_TRUE(succession.is_closed());
  EXPECT_FALSE(step());
  now = end;
  EXPECT_FALSE(step(false)) << "a write is not answered";
  EXPECT_FALSE(step()) << "c does not have it";
  exchange(2);
  exchange(3);
  const auto told = step();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->peer, 3U);
  EXPECT_FALSE(step());
}

// The next primary would wait for them, and nobody would be served.
TEST_F(SuccessionTest, WaitsForTheDisksOfAllInSyncFirst) {
  append(20);
  primary.on_disk(20, 20);
  exchange(2, 0, 20, 20);
  exchange(3, 0, 20, 10);
  ASSERT_TRUE(succession.begin(primary, "b", now));
  EXPECT_FALSE(step());
  EXPECT_TRUE(primary.covers(now)) << "it is believed meanwhile";
  exchange(3, 0, 20, 20);
  EXPECT_FALSE(step());
  EXPECT_FALSE(primary.covers(now));
  EXPECT_TRUE(succession.is_under_way());
}

TEST_F(SuccessionTest, StaysThePrimaryIfADiskIsTooSlow) {
  append(20);
  primary.on_disk(20, 20);
  exchange(2, 0, 20, 20);
  exchange(3, 0, 20, 10);
  ASSERT_TRUE(succession.begin(primary, "b", now));
  const Nanos end = now + Succession::kSyncedWithin;
  while (now <= end) {
    EXPECT_TRUE(succession.is_under_way());
    now += 500 * kNanosPerMs;
    exchange(2, 0, 20, 20);
    exchange(3, 0, 20, 10);
    EXPECT_FALSE(step());
  }
  EXPECT_FALSE(succession.is_under_way());
  EXPECT_TRUE(primary.covers(now));
}

TEST_F(SuccessionTest, GoesOnAsPrimaryIfNobodyIsThereToFollow) {
  ASSERT_TRUE(succession.begin(primary, "c", now));
  EXPECT_FALSE(primary.covers(now));
  primary.disconnected(3);
  EXPECT_FALSE(step());
  EXPECT_FALSE(succession.is_under_way());
  EXPECT_TRUE(primary.covers(now));
}

TEST_F(SuccessionTest, TakesAnotherOneIfItCannotGoBack) {
  ASSERT_TRUE(succession.begin(primary, "c", now));
  now = primary.believed_until();
  EXPECT_FALSE(step());
  ASSERT_TRUE(succession.is_closed());
  primary.disconnected(3);
  const auto told = step();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->peer, 2U);
}

TEST_F(SuccessionTest, WaitsForWhatWasBegunForALimitedTime) {
  ASSERT_TRUE(succession.begin(primary, {}, now));
  now = primary.believed_until();
  EXPECT_FALSE(step(false));
  const Nanos end = now + Succession::kAnswersWithin;
  for (; now < end; now += times.heartbeat) {
    exchange(2);
    exchange(3);
    EXPECT_FALSE(step(false));
  }
  ++now;
  EXPECT_TRUE(step(false));
}

TEST_F(SuccessionTest, FailsIfAllLeaveWhileRequestsAreRefused) {
  ASSERT_TRUE(succession.begin(primary, {}, now));
  now = primary.believed_until();
  EXPECT_FALSE(step());
  primary.disconnected(2);
  primary.disconnected(3);
  EXPECT_FALSE(step());
  EXPECT_FALSE(succession.has_failed(now));
  EXPECT_TRUE(succession.has_failed(now + Succession::kToldWithin + 1));
}

TEST_F(SuccessionTest, SaysWhyNot) {
  EXPECT_EQ(succession.begin(primary, "a", now).error().code, Code::kConflict);
  EXPECT_EQ(succession.begin(primary, "z", now).error().code, Code::kNotFound);
  primary.disconnected(3);
  EXPECT_EQ(succession.begin(primary, "c", now).error().code, Code::kConflict);
  EXPECT_TRUE(primary.covers(now));
}

TEST_F(PrimaryTest, RemovesAMemberThatIsGoneOnly) {
  EXPECT_EQ(primary.remove("z").error().code, Code::kNotFound);
  EXPECT_EQ(primary.remove("a").error().code, Code::kConflict) << "the primary";
  EXPECT_EQ(primary.remove("c").error().code, Code::kConflict) << "in sync";
  connect(2);
  now += times.failure + 1;
  exchange(2);
  primary.configuration_is(*primary.begin_change(now), now);  // c leaves
  connect(3);
  EXPECT_EQ(primary.remove("c").error().code, Code::kConflict) << "connected";
  primary.disconnected(3);
  ASSERT_TRUE(primary.remove("c"));
  EXPECT_EQ(primary.remove("c").error().code, Code::kBusy);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->find("c"), nullptr);
  EXPECT_TRUE(primary.is_removing());
  primary.configuration_is(*change, now);
  EXPECT_FALSE(primary.is_removing());
  EXPECT_FALSE(primary.begin_change(now));
}

RevokedSecret secret_of(const std::string& user, std::uint8_t number = 1) {
  RevokedSecret secret{.user = user};
  secret.digest.fill(std::byte{number});
  return secret;
}

// PRIMARY-12
TEST_F(PrimaryTest, WantsARevocationUntilTheConfigurationHasIt) {
  connect(2);
  connect(3);
  ASSERT_TRUE(primary.revoke(std::vector{secret_of("web"), secret_of("app")}));
  ASSERT_TRUE(primary.revoke(std::vector{secret_of("web")})) << "again";
  auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->revoked, (std::vector{secret_of("app"), secret_of("web")}));
  EXPECT_EQ(change->in_sync_count(), 3U);
  EXPECT_TRUE(primary.may_give_up());
  primary.give_up();
  change = primary.begin_change(now);
  ASSERT_TRUE(change) << "it is not forgotten";
  ASSERT_TRUE(primary.revoke(std::vector{secret_of("app", 2)})) << "meanwhile";
  primary.configuration_is(*change, now);
  change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->revoked.size(), 3U);
  primary.configuration_is(*change, now);
  EXPECT_FALSE(primary.begin_change(now));
  ASSERT_TRUE(primary.revoke(std::vector{secret_of("app"), secret_of("web")}));
  EXPECT_FALSE(primary.begin_change(now)) << "it has them";
}

// Else the change would be under way for as long, and a backup that fails could not be left out.
TEST_F(PrimaryTest, ARevocationWaitsWhileTheStoreDoesNotAnswer) {
  connect(2);
  primary.set_store_answers(false);
  ASSERT_TRUE(primary.revoke(std::vector{secret_of("app")}));
  EXPECT_FALSE(primary.begin_change(now));
  now += times.failure + 1;
  exchange(2);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->in_sync_count(), 2U) << "c leaves";
  EXPECT_TRUE(change->revoked.empty());
  primary.configuration_is(*change, now);
  primary.set_store_answers(true);
  EXPECT_EQ(primary.begin_change(now)->revoked, std::vector{secret_of("app")});
}

TEST_F(PrimaryTest, ARevocationBeyondTheLimitIsRefused) {
  std::vector<RevokedSecret> secrets;
  for (std::size_t i = 0; i < kMostRevoked; ++i)
    secrets.push_back(secret_of("u" + std::to_string(i)));
  ASSERT_TRUE(primary.revoke(secrets));
  EXPECT_EQ(primary.revoke(std::vector{secret_of("more")}).error().code, Code::kConflict);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->revoked.size(), kMostRevoked);
}

TEST_F(PrimaryTest, AMemberThatComesBackIsNotRemoved) {
  connect(2);
  now += times.failure + 1;
  exchange(2);
  primary.configuration_is(*primary.begin_change(now), now);  // c leaves
  ASSERT_TRUE(primary.remove("c"));
  connect(3);
  exchange(3);
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->find("c")->in_sync());
  primary.configuration_is(*change, now);
  EXPECT_FALSE(primary.is_removing());
}

TEST_F(PrimaryTest, RefusesAnswersThatCannotBe) {
  connect(2);
  ASSERT_TRUE(primary.next(2, now));
  EXPECT_FALSE(primary.answered(2, {.number = 2, .last = at(1, 10)}, now));
  EXPECT_FALSE(primary.answered(2, {.number = 1, .last = at(1, 11)}, now));
  EXPECT_FALSE(primary.answered(9, {.number = 1, .last = at(1, 10)}, now));
  EXPECT_TRUE(primary.answered(2, {.number = 1, .last = at(1, 10)}, now));
  EXPECT_FALSE(primary.answered(2, {.number = 0, .last = at(1, 10)}, now));
}

TEST_F(PrimaryTest, RefusesAPositionThatItsLogDoesNotHave) {
  connect(2);
  ASSERT_TRUE(primary.next(2, now));
  EXPECT_FALSE(primary.answered(2, {.number = 1, .last = at(0, 99)}, now));
}

TEST_F(PrimaryTest, RefusesAnAnswerToNothing) {
  connect(2);
  EXPECT_FALSE(primary.answered(2, {.number = 0, .last = at(1, 10)}, now));
}

TEST_F(PrimaryTest, RefusesAProcessWithItsOwnEpoch) {
  for (const std::uint64_t epoch : {0, 1}) {
    const Hello hello{.replica = replica("d", epoch), .group = kGroup, .start = {}, .history = {}};
    EXPECT_EQ(connected(primary, 9, hello, now), Primary::Admission::kRefused);
  }
}

TEST_F(PrimaryTest, ALogThatDoesNotLeadToItsOwnNeedsACopy) {
  connect(2, {});
  EXPECT_TRUE(primary.needs_copy(2)) << "the entries up to 10 are on disk only";
  connect(3);
  EXPECT_FALSE(primary.needs_copy(3));
}

TEST(Membership, ATakeOverWaitsForItsOwnPromises) {
  const ReplicationTimes times;
  ReplicaLog log;
  Membership membership(log, replica("b", 2), {.new_group = 1}, times);
  const auto first = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2));
  Nanos now = kStart;
  membership.read({.configuration = first, .revision = 1}, now);
  EXPECT_EQ(membership.primary_member()->name, "a");
  for (const Nanos end = now + times.deposing; now < end; now += 50 * kMs)
    EXPECT_FALSE(membership.wanted(now));
  now += kMs;
  const auto change = membership.wanted(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->next.primary, "b");
  EXPECT_TRUE(membership.wanted(now + kMs)) << "it is sent again";
  membership.read({.configuration = change->next, .revision = 2}, now);
  EXPECT_EQ(membership.role(), Membership::Role::kLeading);
  EXPECT_FALSE(membership.acts(now));
  EXPECT_FALSE(membership.acts(kStart + times.lease + 10 * kMs));
  EXPECT_TRUE(membership.acts(kStart + times.lease + 11 * kMs));
  membership.read({.configuration = first, .revision = 1}, now);
  EXPECT_EQ(membership.role(), Membership::Role::kLeading) << "an old read says nothing";
  const auto back = *taken_over(*joined(change->next, replica("a", 9)), replica("a", 9), 1);
  membership.read({.configuration = back, .revision = 4}, now);
  EXPECT_EQ(membership.role(), Membership::Role::kEnded);
}

// A backup b of a. Reads one configuration after the other.
struct MemberTest : testing::Test {
  ReplicationTimes times;
  ReplicaLog log;
  Membership membership{log, replica("b", 2), {.new_group = 1}, times};
  Nanos now = kStart;
  std::int64_t revision = 0;
  GroupConfiguration first =
      *joined(*joined(*founded(1, replica("a", 1), 1), replica("b", 2)), replica("c", 3));
  void read(const GroupConfiguration& configuration) {
    membership.read({.configuration = configuration, .revision = ++revision}, now);
  }
};

TEST_F(MemberTest, ItsAnswerBindsIt) {
  read(first);
  now += times.wait_of_backup();
  membership.backup().hello();
  ASSERT_TRUE(
      membership.backup().receive({.term = 1, .number = 1, .previous = {}, .marks = {}}, now));
  ASSERT_TRUE(membership.backup().answer(now));
  read(*taken_over(first, replica("b", 2), 2));
  EXPECT_FALSE(membership.acts(now + times.lease));
  EXPECT_TRUE(membership.acts(now + times.wait_of_backup()));
}

// MEMBER-6
TEST_F(MemberTest, WhoWasToldTakesOverAndActsAtOnce) {
  read(first);
  membership.backup().hello();
  EXPECT_FALSE(membership.backup().receive(HandOver{.term = 1})) << "no primary has spoken";
  ASSERT_TRUE(membership.backup().receive(
      Entries{.term = 1, .number = 1, .previous = {}, .marks = {}}, now));
  ASSERT_TRUE(membership.backup().answer(now));
  EXPECT_FALSE(membership.wanted(now));
  EXPECT_FALSE(membership.backup().receive(HandOver{.term = 2})) << "of another term";
  ASSERT_TRUE(membership.backup().receive(HandOver{.term = 1}));
  const auto change = membership.wanted(now);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->next.primary, "b");
  EXPECT_FALSE(change->next.find("a")->in_sync());
  EXPECT_TRUE(change->next.find("c")->in_sync());
  read(change->next);
  EXPECT_TRUE(membership.acts(now));
}

TEST_F(MemberTest, WhoWasToldByAnEarlierPrimaryWaits) {
  read(first);
  membership.backup().hello();
  ASSERT_TRUE(membership.backup().receive(
      Entries{.term = 1, .number = 1, .previous = {}, .marks = {}}, now));
  ASSERT_TRUE(membership.backup().answer(now));
  ASSERT_TRUE(membership.backup().receive(HandOver{.term = 1}));
  const auto of_c = *taken_over(first, replica("c", 3), 2);
  read(of_c);
  EXPECT_FALSE(membership.wanted(now)) << "c is the primary now";
  membership.backup().hello();
  ASSERT_TRUE(membership.backup().receive(
      Entries{.term = 2, .number = 1, .previous = {}, .marks = {}}, now));
  ASSERT_TRUE(membership.backup().answer(now));
  read(*taken_over(of_c, replica("b", 2), 3));
  EXPECT_FALSE(membership.acts(now + times.lease));
  EXPECT_TRUE(membership.acts(now + times.wait_of_backup()));
}

// A primary a, with b in sync.
TEST(Membership, APrimaryThatHasHandedOverInVainEnds) {
  const ReplicationTimes times;
  ReplicaLog log;
  Membership membership(log, replica("a", 1), {.new_group = kGroup}, times);
  Nanos now = kStart;
  const auto first = *founded(kGroup, replica("a", 1), 1);
  membership.read({.configuration = first, .revision = 1}, now);
  membership.read({.configuration = *joined(first, replica("b", 2)), .revision = 2}, now);
  Primary& primary = *membership.primary();
  const Hello hello{
      .replica = replica("b", 2), .group = kGroup, .term = 1, .start = {}, .history = {}};
  EXPECT_EQ(connected(primary, 2, hello, now), Primary::Admission::kAccepted);
  ASSERT_TRUE(primary.next(2, now));
  ASSERT_TRUE(primary.answered(2, {.number = 1, .last = {}}, now));
  primary.end_ticks();
  ASSERT_TRUE(primary.hand_over(2, now));
  for (const Nanos end = now + times.undecided; now < end; now += 50 * kMs) {
    EXPECT_FALSE(membership.wanted(now));
    EXPECT_EQ(membership.role(), Membership::Role::kLeading);
  }
  now += 50 * kMs;
  EXPECT_FALSE(membership.wanted(now));
  EXPECT_EQ(membership.role(), Membership::Role::kEnded);
  EXPECT_TRUE(membership.may_start_again());
}

TEST_F(MemberTest, AReplicaThatWasRemovedAndAddedAgainWaitsAgain) {
  read(first);
  now += times.wait_of_backup();
  // It reads neither of the two changes alone.
  const auto again = *joined(*left(first, replica("b", 2)), replica("b", 2));
  read(again);
  read(*taken_over(again, replica("b", 2), 2));
  EXPECT_FALSE(membership.acts(now + times.lease));
  EXPECT_TRUE(membership.acts(now + times.wait_of_backup()));
}

TEST_F(MemberTest, GivesAPrimaryThatHasTakenOverTheWholeTimeBeforeItIsDeposed) {
  read(first);
  Nanos end = now + times.deposing;
  for (; now < end; now += 50 * kMs)
    EXPECT_FALSE(membership.wanted(now));
  read(*taken_over(first, replica("c", 3), 2));
  for (end = now + times.deposing; now < end; now += 50 * kMs)
    EXPECT_FALSE(membership.wanted(now));
  now += 50 * kMs;
  EXPECT_TRUE(membership.wanted(now));
}

TEST(Membership, ADataDirectoryOfAGroupFoundsNoOther) {
  ReplicaLog log;
  Membership membership(log, replica("b", 2), {.group = 7, .new_group = 1}, {});
  membership.read({}, kStart);
  EXPECT_FALSE(membership.wanted(kStart));
  EXPECT_EQ(membership.role(), Membership::Role::kEnded);
}

// MEMBER-7
TEST(Membership, OnlyWhoWasToldToFoundsAGroup) {
  for (const bool may_found : {true, false}) {
    ReplicaLog log;
    Membership membership(log, replica("b", 2), {.new_group = may_found ? kGroup : 0}, {});
    membership.read({}, kStart);
    EXPECT_EQ(membership.wanted(kStart).has_value(), may_found);
    EXPECT_EQ(membership.lacks_group(), !may_found);
    EXPECT_EQ(membership.role(), Membership::Role::kStarting) << "it waits";
    const auto of_a = *founded(9, replica("a", 1), 1);
    membership.read({.configuration = of_a, .revision = 1}, kStart);
    EXPECT_EQ(membership.role(), Membership::Role::kFollowing);
    EXPECT_EQ(membership.group(), 9U);
    EXPECT_FALSE(membership.lacks_group());
  }
}

// MEMBER-8: etcd has lost its data, and a blank replica has founded another group, or a person has
// put back an old configuration.
TEST(Membership, WhatEtcdSaysOfAnotherGroupOrOfThePastEndsNobodyThatRuns) {
  const auto first = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2));
  const auto second = *joined(first, replica("c", 3));
  const auto other = *founded(kGroup + 1, replica("c", 3), 7);
  GroupConfiguration twin = second;
  twin.members[2].address = "elsewhere:1";
  using Misled = Membership::Misled;
  const std::vector<std::pair<GroupConfiguration, Misled>> misleading = {
      {other, Misled::kByAnotherGroup}, {first, Misled::kByThePast}, {twin, Misled::kByThePast}};
  for (const auto& [wrong, how] : misleading) {
    for (const char* const name : {"a", "b"}) {
      ReplicaLog log;
      Membership membership(log, replica(name, name[0] == 'a' ? 1 : 2), {.new_group = 1}, {});
      membership.read({.configuration = second, .revision = 5}, kStart);
      const auto role = membership.role();
      membership.read({.configuration = wrong, .revision = 9}, kStart + 1);
      EXPECT_EQ(membership.role(), role) << name;
      EXPECT_EQ(membership.misled(), how);
      EXPECT_EQ(membership.misled_since(), kStart + 1);
      EXPECT_EQ(*membership.configuration(), second);
      EXPECT_EQ(membership.revision(), 5) << "its changes must not replace what is there";
      membership.read({.configuration = second, .revision = 12}, kStart + 2);
      EXPECT_EQ(membership.misled(), Misled::kNo);
      EXPECT_EQ(membership.misled_since(), 0);
      EXPECT_EQ(membership.revision(), 12);
    }
  }
}

TEST(Membership, AReplicaThatStartsRefusesAnOlderConfigurationThanItsDiskKnows) {
  const auto now = *joined(*founded(kGroup, replica("a", 1), 7), replica("b", 2));  // number 2
  const auto role_with = [&](std::uint64_t number, std::uint32_t term) {
    ReplicaLog log;
    Membership membership(log, replica("a", 11), {.group = kGroup, .number = number, .term = term},
                          {});
    membership.read({.configuration = now, .revision = 40}, kStart);
    EXPECT_FALSE(membership.may_start_again() && membership.role() == Membership::Role::kEnded);
    return membership.role();
  };
  EXPECT_EQ(role_with(0, 0), Membership::Role::kFollowing);
  EXPECT_EQ(role_with(2, 7), Membership::Role::kFollowing);
  EXPECT_EQ(role_with(3, 7), Membership::Role::kEnded);
  EXPECT_EQ(role_with(2, 8), Membership::Role::kEnded);
}

// PRIMARY-10
struct PrimaryAlone : testing::Test {
  void start(bool alone_without_store, const GroupConfiguration& configuration) {
    membership.emplace(
        log, replica("a", 1),
        Membership::Start{
            .new_group = 1, .last_has_ended = true, .alone_without_store = alone_without_store},
        times);
    membership->read({.configuration = configuration, .revision = 1}, kStart, kStart + 5 * kMs);
  }
  const ReplicationTimes times;
  ReplicaLog log;
  std::optional<Membership> membership;
  const GroupConfiguration founder = *founded(kGroup, replica("a", 1), 1);
  const GroupConfiguration of_two = *joined(founder, replica("b", 2));
  const GroupConfiguration left_alone = *left(of_two, replica("b", 2));
};

TEST_F(PrimaryAlone, IsBelievedAsLongAsEtcdWasAskedLately) {
  start(false, left_alone);
  Primary& primary = *membership->primary();
  EXPECT_EQ(primary.lease_until(), kStart + times.lease_alone()) << "from before it was asked";
  const Nanos last = kStart + times.lease_alone() - times.window - 1;
  EXPECT_TRUE(primary.covers(last));
  EXPECT_FALSE(primary.covers(last + 1));
  // The same configuration again.
  membership->read({.configuration = left_alone, .revision = 1}, kStart + 7 * kMs,
                   kStart + 9 * kMs);
  EXPECT_EQ(primary.lease_until(), kStart + 7 * kMs + times.lease_alone());
  // A configuration of another group confirms nothing, nor does an older read.
  membership->read({.configuration = *founded(3, replica("a", 1), 1), .revision = 9},
                   kStart + 20 * kMs, kStart + 20 * kMs);
  membership->read({.configuration = left_alone, .revision = 1}, kStart + 2 * kMs,
                   kStart + 20 * kMs);
  EXPECT_EQ(primary.lease_until(), kStart + 7 * kMs + times.lease_alone());
}

TEST_F(PrimaryAlone, NeedsNoLeaseInAGroupOfOneOrIfItIsToldSo) {
  start(false, founder);
  EXPECT_EQ(membership->primary()->lease_until(), std::numeric_limits<Nanos>::max());
  start(true, left_alone);
  EXPECT_EQ(membership->primary()->lease_until(), std::numeric_limits<Nanos>::max());
}

TEST_F(PrimaryAlone, HasALeaseFromItsBackupOnceOneMayBeInSync) {
  start(false, left_alone);
  Primary& primary = *membership->primary();
  const Hello hello{
      .replica = replica("b", 4), .group = kGroup, .term = 1, .start = {}, .history = {}};
  ASSERT_EQ(connected(primary, 2, hello, kStart), Primary::Admission::kAccepted);
  ASSERT_TRUE(primary.next(2, kStart));
  ASSERT_TRUE(primary.answered(2, {.number = 1, .last = {}}, kStart));
  ASSERT_TRUE(membership->wanted(kStart)) << "it joins";
  EXPECT_EQ(primary.lease_until(), kStart + times.lease_of_primary());
}

// The primary "a" is alone in sync. Another process of its name starts.
struct SuccessorByName : PrimaryAlone {
  Membership& restart(const Membership::Start& start, const GroupConfiguration& now) {
    membership.emplace(log, replica("a", 11), start, times);
    membership->read({.configuration = now, .revision = 1}, kStart);
    const auto change = membership->wanted(kStart);
    EXPECT_TRUE(change && change->next.has_primary(replica("a", 11)));
    if (change) membership->read({.configuration = change->next, .revision = 2}, kStart + kMs);
    return *membership;
  }
  Nanos learnt() const { return kStart + kMs; }
};

// MEMBER-9: it waits for the lease that etcd may have given to the other one just before.
TEST_F(SuccessorByName, WaitsForAProcessThatMayLive) {
  Membership& next = restart({.group = kGroup}, left_alone);
  EXPECT_GT(times.wait_for_alone(), times.lease_alone() / (100 - 1) * (100 + 1));
  EXPECT_FALSE(next.acts(learnt() + times.wait_for_alone() - 1));
  EXPECT_TRUE(next.acts(learnt() + times.wait_for_alone()));
  // A joiner would take over without that wait.
  Primary& primary = *next.primary();
  const Hello hello{
      .replica = replica("b", 4), .group = kGroup, .term = 2, .start = {}, .history = {}};
  for (Nanos now = learnt(); now < learnt() + 2 * times.wait_for_alone(); now += 100 * kMs) {
    ASSERT_EQ(connected(primary, 2, hello, now), Primary::Admission::kAccepted);
    const auto sent = primary.next(2, now);
    ASSERT_TRUE(sent);
    ASSERT_TRUE(primary.answered(2, {.number = sent->number, .last = {}}, now));
    ASSERT_EQ(next.wanted(now).has_value(), next.acts(now)) << now - learnt();
  }
}

TEST_F(SuccessorByName, DoesNotWaitForAProcessThatHasEnded) {
  EXPECT_TRUE(restart({.group = kGroup, .last_has_ended = true}, left_alone)
                  .acts(learnt() + times.wait_of_backup()));
  EXPECT_TRUE(restart({.group = kGroup, .alone_without_store = true}, left_alone)
                  .acts(learnt() + times.wait_of_backup()));
  EXPECT_TRUE(restart({.group = kGroup}, founder).acts(learnt() + times.wait_of_backup()))
      << "of a group of one member";
}

// A joiner whose change was refused does not count any more, and may die.
TEST_F(PrimaryAlone, AJoinIsGivenUpAndALeaveIsNot) {
  start(false, left_alone);
  Primary& primary = *membership->primary();
  const Hello hello{
      .replica = replica("b", 4), .group = kGroup, .term = 1, .start = {}, .history = {}};
  ASSERT_EQ(connected(primary, 2, hello, kStart), Primary::Admission::kAccepted);
  ASSERT_TRUE(primary.next(2, kStart));
  ASSERT_TRUE(primary.answered(2, {.number = 1, .last = {}}, kStart));
  const auto join = membership->wanted(kStart);
  ASSERT_TRUE(join);
  ASSERT_TRUE(membership->may_give_up(*join));
  membership->give_up();
  membership->set_store_answers(false);
  EXPECT_FALSE(membership->wanted(kStart));
  primary.disconnected(2);
  log.append(at(1, 10), some());
  primary.on_disk(10, 10);
  EXPECT_EQ(primary.marks().replicated, 10U) << "the joiner still counts";
  EXPECT_EQ(primary.lease_until(), kStart + times.lease_alone());
  membership->read({.configuration = *joined(left_alone, replica("b", 4)), .revision = 2}, kStart);
  const Nanos later = kStart + times.failure + kMs;
  std::optional<Membership::Change> leave;
  for (Nanos now = kStart; now < later + 50 * kMs && !leave; now += 50 * kMs)
    leave = membership->wanted(now);
  ASSERT_TRUE(leave);
  EXPECT_FALSE(membership->may_give_up(*leave));
}

TEST(Membership, AStandstillIsNoFailureOfThePrimary) {
  const ReplicationTimes times;
  ReplicaLog log;
  Membership membership(log, replica("b", 2), {.new_group = 1}, times);
  membership.read({.configuration = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2)),
                   .revision = 1},
                  kStart);
  EXPECT_FALSE(membership.wanted(kStart));
  EXPECT_FALSE(membership.wanted(kStart + 10 * times.failure));
}

// It has disconnected itself, and the primary is alive.
// One of them takes over meanwhile, if they live: the configuration would not be this one any more.
TEST_F(PrimaryTest, WhoHearsNobodyLeavesNobodyOutAtOnce) {
  connect(2);
  connect(3);
  exchange(2);
  now += 100 * kMs;
  exchange(3);
  now += times.failure - 50 * kMs;
  EXPECT_FALSE(primary.begin_change(now)) << "c is about to fail";
  now += 100 * kMs;
  EXPECT_FALSE(primary.begin_change(now));
  now += times.failure;
  const auto change = primary.begin_change(now);
  ASSERT_TRUE(change);
  primary.configuration_is(*change, now);
  EXPECT_TRUE(primary.begin_change(now)) << "the other one";
}

TEST_F(PrimaryTest, WhoHearsOneLeavesTheOtherOutAtOnce) {
  connect(2);
  connect(3);
  exchange(2);
  exchange(3);
  now += times.failure + 1;
  EXPECT_FALSE(primary.begin_change(now));
  exchange(2);
  EXPECT_TRUE(primary.begin_change(now));
}

// A replica is cut off the primary. Which of them asks the store first is not left to chance.
class CutOff : public PrimaryTest {
 protected:
  void SetUp() override {
    configuration_ = primary.configuration();
    backup_.read({.configuration = configuration_, .revision = 1}, now);
    connect(2);
    connect(3);
    exchange(2);
    exchange(3);
  }
  // Whether the primary, and whether the backup, has asked for a change until then.
  void run_until(Nanos end, bool c_answers) {
    for (; now < end; now += 50 * kMs) {
      if (c_answers) exchange(3);
      if (!left_out_) left_out_ = primary.begin_change(now);
      if (!taken_over_) taken_over_ = backup_.wanted(now);
    }
  }

  GroupConfiguration configuration_;
  ReplicaLog log_of_backup_;
  Membership backup_{log_of_backup_, replica("b", 2), {.group = kGroup}, times};
  std::optional<GroupConfiguration> left_out_;
  std::optional<Membership::Change> taken_over_;
};

TEST_F(CutOff, OfAPairThePrimaryStaysIfItHearsOthers) {
  run_until(now + times.failure + 100 * kMs, true);
  ASSERT_TRUE(left_out_);
  EXPECT_FALSE(left_out_->find("b")->in_sync());
  EXPECT_FALSE(taken_over_);
  // Each of its processes reads that within some milliseconds.
  backup_.read({.configuration = *left_out_, .revision = 2}, now);
  run_until(now + 3 * times.deposing, true);
  EXPECT_FALSE(taken_over_);
}

TEST_F(CutOff, APrimaryThatHearsNobodyIsDeposed) {
  run_until(now + times.deposing + 100 * kMs, false);
  EXPECT_FALSE(left_out_);
  ASSERT_TRUE(taken_over_);
  EXPECT_TRUE(taken_over_->next.has_primary(replica("b", 2)));
}

// Etcd does not let it.
TEST_F(CutOff, APrimaryThatCannotLeaveTheBackupOutIsDeposed) {
  run_until(now + times.deposing + 100 * kMs, true);
  EXPECT_TRUE(left_out_);
  EXPECT_TRUE(taken_over_);
}

// Both stand still for 250 of each 600 ms.
TEST_F(PrimaryTest, ShortPausesKeepNobodyThatIsGone) {
  connect(2);
  connect(3);
  exchange(3);
  std::optional<GroupConfiguration> change;
  for (const Nanos end = now + 3 * kNanosPerSecond; now < end && !change;) {
    for (const Nanos pause = now + 350 * kMs; now < pause && !change; now += 10 * kMs) {
      exchange(2);
      change = primary.begin_change(now);
    }
    now += 250 * kMs;
    primary.stood_still(260 * kMs, now);
  }
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->find("c")->in_sync());
  EXPECT_TRUE(change->find("b")->in_sync());
}

TEST(Membership, ShortPausesKeepNoPrimaryThatIsGone) {
  const ReplicationTimes times;
  ReplicaLog log;
  Membership membership(log, replica("b", 2), {.new_group = 1}, times);
  membership.read({.configuration = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2)),
                   .revision = 1},
                  kStart);
  Nanos now = kStart;
  bool takes_over = false;
  for (; now < kStart + 3 * kNanosPerSecond && !takes_over; now += 250 * kMs) {
    for (const Nanos pause = now + 350 * kMs; now < pause && !takes_over; now += 10 * kMs)
      takes_over = membership.wanted(now).has_value();
  }
  EXPECT_TRUE(takes_over);
  EXPECT_GT(now, kStart + times.deposing + 250 * kMs) << "the pauses do not count";
}

TEST(Membership, AReplicaWithAStuckDiskTakesOverLater) {
  const ReplicationTimes times;
  ReplicaLog log;
  Membership membership(log, replica("b", 2), {.new_group = 1}, times);
  membership.read({.configuration = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2)),
                   .revision = 1},
                  kStart);
  const Nanos until = kStart + (3 * times.failure);
  membership.hesitate(until);
  membership.hesitate(kStart);  // an earlier time does not shorten it
  Nanos now = kStart;
  for (; now < until; now += 50 * kMs)
    ASSERT_FALSE(membership.wanted(now));
  EXPECT_TRUE(membership.wanted(now));
}

TEST(Membership, ALogWithoutAnyHigherTermEndsIt) {
  const std::uint64_t highest = std::numeric_limits<std::uint64_t>::max() - 1;
  ReplicaLog log(history({at(7, highest)}));
  Membership membership(log, replica("b", 2), {.group = kGroup, .new_group = 1}, {});
  membership.read({.configuration = *joined(*founded(kGroup, replica("a", 1), 1), replica("b", 2)),
                   .revision = 1},
                  kStart);
  EXPECT_FALSE(membership.wanted(kStart)) << "no term that is lower than what the log has";
  EXPECT_EQ(membership.role(), Membership::Role::kEnded);
  EXPECT_FALSE(membership.may_start_again());
}

// MEMBER-5
TEST(Membership, AnEmptyDirectoryDoesNotStandForTheLastOneInSync) {
  for (const bool has_data : {true, false}) {
    ReplicaLog log;
    Membership membership(log, replica("a", 12), {.group = has_data ? kGroup : 0, .new_group = 99},
                          {});
    GroupConfiguration before = *founded(kGroup, replica("a", 11), 5);
    membership.read({.configuration = before, .revision = 3}, kStart);
    EXPECT_EQ(membership.wanted(kStart).has_value(), has_data);
    EXPECT_EQ(membership.role() == Membership::Role::kEnded, !has_data);
    EXPECT_EQ(membership.may_start_again(), has_data);
  }
}

// A log that is at the primary's end below the backup's mark needs a copy: it is never cut so far.
TEST(Backup, SaysThatItsLogIsNotCutBelowTheMark) {
  ReplicaLog log;
  Backup backup(log, replica("b", 2), kGroup, {});
  (void)backup.hello();
  Entries entries;
  entries.term = 1;
  entries.number = 1;
  entries.block = EntryBlock{.previous = {}, .last = at(1, 10), .bytes = some()};
  ASSERT_TRUE(backup.receive(entries, kStart));
  entries.number = 2;
  entries.previous = at(1, 10);
  entries.block = EntryBlock{.previous = at(1, 10), .last = at(1, 20), .bytes = some()};
  entries.marks.replicated = 10;
  ASSERT_TRUE(backup.receive(entries, kStart));
  EXPECT_EQ(backup.hello().start, at(1, 10));
}

// With nothing replicated, all of it may be cut: the next primary may have none of it.
TEST(Backup, NeedsNoCopyForWhatIsAboveTheMark) {
  ReplicaLog log;
  Backup backup(log, replica("b", 2), kGroup, {});
  (void)backup.hello();
  Entries entries;
  entries.term = 1;
  entries.number = 1;
  entries.block = EntryBlock{.previous = {}, .last = at(1, 10), .bytes = some()};
  ASSERT_TRUE(backup.receive(entries, kStart));
  EXPECT_EQ(backup.hello().start, LogPosition{});
}

}  // namespace
}  // namespace rkv::server
