// The limits of what one client can take from the others (SERVE-2, SERVE-8, SERVE-9), and which
// client loses its place to another one (Places).
#include "common/pack.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

constexpr std::uint32_t kMany = 20;

class Fairness : public WorkerTest {
 protected:
  void make_worker(bool pins, Nanos stats_cost = 0) {
    transport_.pins = pins;
    Worker::Parts parts = parts_of_worker();
    parts.stats = [this, stats_cost] {
      ++stats_made_;
      clock_.advance(stats_cost);
      return std::string(1000, 's');
    };
    worker_ = std::move(*Worker::create(parts, {.clients = kMany}));
    all_buffers_ = queue().free_buffers();
    EXPECT_TRUE(store_->put(as_bytes("large"), patterned(1, 12'000)));
    EXPECT_TRUE(store_->put(as_bytes("small"), patterned(2, 150)));
  }
  FakeConnection* connect_at(std::shared_ptr<Place> place) {
    EXPECT_TRUE(worker_->sessions().reserve_client());
    auto connection = std::make_unique<FakeConnection>();
    FakeConnection* const raw = connection.get();
    worker_->sessions().adopt({.connection = std::move(connection),
                               .session = ++sessions_,
                               .credits = kMaxCredits,
                               .name = "test",
                               .place = std::move(place)});
    worker_->poll_once();
    return raw;
  }
  void get(FakeConnection& from, std::string_view key) {
    ask(from, {.opcode = Opcode::kGet, .sequence = 1, .key = as_bytes(key)});
  }
  // A client that asks as long as its credits allow and takes nothing.
  FakeConnection* taker_of_nothing(std::string_view key) {
    FakeConnection* const client = connect();
    std::size_t asked = 0;
    for (;;) {
      const std::size_t before = client->posted.size();
      get(*client, key);
      turn();
      ++asked;
      if (client->posted.size() == before && asked - before == kMaxCredits) return client;
    }
  }

  int stats_made_ = 0;
};

TEST_F(Fairness, AClientThatTakesNoLargeReplyHasItsShareAndNoMore) {
  make_worker(true);
  FakeConnection* const hostile = taker_of_nothing("large");
  EXPECT_EQ(hostile->posted.size(), kLargeRepliesPerClient);
  EXPECT_TRUE(hostile->alive());
  // Its own requests wait, and nobody else's: as often as one asks and takes.
  FakeConnection* const neighbour = connect();
  for (std::size_t i = 0; i < 100; ++i) {
    get(*neighbour, "large");
    turn();
    ASSERT_EQ(neighbour->posted.size(), i + 1);
    queue().complete_sends(*neighbour);
  }
  EXPECT_TRUE(hostile->alive()) << "nobody has waited for it";
}

TEST_F(Fairness, AClientThatTakesNoSmallReplyHasItsShareAndNoMore) {
  make_worker(true);
  for (std::uint32_t i = 0; i + 1 < kMany; ++i)
    EXPECT_EQ(taker_of_nothing("small")->posted.size(), kSmallRepliesPerClient);
  FakeConnection* const neighbour = connect();
  for (std::size_t i = 0; i < 100; ++i) {
    get(*neighbour, "small");
    turn();
    ASSERT_EQ(neighbour->posted.size(), i + 1);
    queue().complete_sends(*neighbour);
  }
}

// As many as it takes to have all of the 16 buffers that there are over verbs.
TEST_F(Fairness, WhoTakesNoReplyGoesWhenAnotherHasWaitedLongEnough) {
  make_worker(true);
  std::vector<FakeConnection*> hostile;
  for (std::size_t i = 0, held = 0; held < worker_->room().large_replies; ++i) {
    ASSERT_LT(i, kMany - 1);
    hostile.push_back(taker_of_nothing("large"));
    held += hostile.back()->posted.size();
    clock_.advance(kNanosPerMs);
  }
  FakeConnection* const neighbour = connect();
  get(*neighbour, "large");
  turn();
  EXPECT_TRUE(neighbour->posted.empty());
  clock_.advance(kLongestReply - kNanosPerSecond);
  turn();
  worker_->poll_once();
  EXPECT_TRUE(std::ranges::all_of(hostile, &FakeConnection::alive)) << "it may come yet";
  clock_.advance(kNanosPerSecond);
  worker_->poll_once();
  EXPECT_EQ(std::ranges::count_if(hostile, &FakeConnection::alive),
            static_cast<std::ptrdiff_t>(hostile.size() - 1))
      << "one at a time: the one that has kept its replies waiting longest";
  EXPECT_FALSE(hostile.front()->alive());
  EXPECT_EQ(worker_->counters().drops(DropReason::kReplies), 1U);
  queue().end(*hostile.front());
  turn();
  ASSERT_EQ(neighbour->posted.size(), 1U);
  EXPECT_EQ(answer(*neighbour, 0).value.size(), 12'000U);
}

// Where large buffers cost nothing before they are used there are enough for everybody's share.
TEST_F(Fairness, OverSharedMemoryThereAreLargeBuffersForAll) {
  make_worker(false);
  for (std::uint32_t i = 0; i + 1 < kMany; ++i)
    EXPECT_EQ(taker_of_nothing("large")->posted.size(), kLargeRepliesPerClient);
  FakeConnection* const neighbour = connect();
  get(*neighbour, "large");
  turn();
  EXPECT_EQ(neighbour->posted.size(), 1U);
}

// A GET that waits for a buffer is not carried out in every turn.
TEST_F(Fairness, WhatWaitsForALargeBufferCostsTheOthersNothing) {
  make_worker(true);
  FakeConnection* const hostile = taker_of_nothing("large");
  FakeConnection* const neighbour = connect();
  ASSERT_TRUE(store_->remove(as_bytes("large")));
  for (int i = 0; i < 100; ++i) {
    ping(*neighbour);
    turn();
    queue().complete_sends(*neighbour);
  }
  // It would have been found missing, which needs no large buffer.
  EXPECT_EQ(hostile->posted.size(), kLargeRepliesPerClient);
  queue().complete_sends(*hostile);
  turn();
  EXPECT_EQ(hostile->posted.size(), kLargeRepliesPerClient + kMaxCredits);
  EXPECT_EQ(answer(*hostile, kLargeRepliesPerClient).code,
            static_cast<std::uint8_t>(Code::kNotFound));
}

// Answers to durable packs whose marks have moved, and GETs: both wait for large buffers, while
// other clients ask for large values all the time.
TEST_F(Fairness, AnswersThatWereHeldAndRequestsTakeTurnsAtLargeBuffers) {
  make_worker(true);
  std::array<std::byte, 256> value;
  PackWriter writer(value);
  const std::array<std::byte, kCounterBytes> one{std::byte{1}};
  while (writer.count() < 8)
    writer.add({.opcode = Opcode::kAdd, .key = as_bytes("count"), .value = one});
  const Bytes pack = writer.finish();
  FakeConnection* const writers[] = {connect(), connect()};
  for (FakeConnection* client : writers)
    ask(*client, {.opcode = Opcode::kPack, .durability = Durability::kWal, .value = pack});
  turn();
  std::vector<FakeConnection*> readers;
  for (std::uint32_t i = 0; i < worker_->room().large_replies; ++i) {
    readers.push_back(connect());
    get(*readers.back(), "large");
  }
  turn();
  FakeConnection* const waiting[] = {connect(), connect()};
  for (FakeConnection* client : waiting)
    get(*client, "large");
  turn();
  write_all();
  turn();
  const auto answered = [](std::span<FakeConnection* const> clients) {
    return std::ranges::count_if(clients,
                                 [](const auto* client) { return !client->posted.empty(); });
  };
  EXPECT_EQ(answered(writers) + answered(waiting), 0) << "there is no room for their answers";
  for (int freed = 1; freed <= 4; ++freed) {
    FakeConnection& reader = *readers.at(static_cast<std::size_t>(freed));
    queue().complete_sends(reader);
    get(reader, "large");
    turn();
    EXPECT_EQ(answered(writers) + answered(waiting), freed) << "they come before newer requests";
    EXPECT_LE(std::abs(answered(writers) - answered(waiting)), 1) << freed;
  }
  EXPECT_EQ(answer(*writers[1], 0).value.size(), 8 * least_result_bytes(Opcode::kAdd));
}

TEST_F(Fairness, AFloodOfStatisticsTakesASmallPartOfTheTime) {
  constexpr Nanos kCost = kNanosPerMs;
  make_worker(true, kCost);
  FakeConnection* const hostile = connect();
  const auto ask_stats = [&] { ask(*hostile, {.opcode = Opcode::kStats, .sequence = 1}); };
  std::size_t asked = 0;
  const Nanos began = clock_.now();
  while (clock_.now() - began < 10 * kNanosPerSecond) {
    for (; asked - hostile->posted.size() < kMaxCredits; ++asked)
      ask_stats();
    turn();
    queue().complete_sends(*hostile);
    clock_.advance(kNanosPerMs / 10);
  }
  EXPECT_LE(stats_made_ * kCost, kStatsStretch + kCost + 10 * kNanosPerSecond / kStatsParts);
  EXPECT_GE(stats_made_ * kCost, 10 * kNanosPerSecond / kStatsParts / 2) << "it is not put off";
  EXPECT_GE(hostile->posted.size(), 3U * static_cast<unsigned>(stats_made_))
      << "those of one turn are answered the same";
}

// ---- places

TEST(PlacesTest, NobodyGoesWhoWasHeardLately) {
  Places places(3);
  const auto a = places.take(1, "192.0.2.1:1", 0);
  const auto b = places.take(2, "192.0.2.2:1", 0);
  const auto c = places.take(3, "192.0.2.3:1", 0);
  for (const auto& place : {a, b, c})
    place->heard(kNanosPerSecond);
  EXPECT_EQ(places.victim("192.0.2.4:1", Places::kSilent), std::nullopt);
  b->heard(2 * kNanosPerSecond);
  c->heard(3 * kNanosPerSecond);
  const Nanos later = Places::kSilent + kNanosPerSecond;
  EXPECT_EQ(places.victim("192.0.2.4:1", later), 1U) << "silent longest, and long enough";
  EXPECT_EQ(places.victim("192.0.2.4:1", later), std::nullopt);
  EXPECT_EQ(places.victim("192.0.2.4:1", later + 2 * kNanosPerSecond), 2U)
      << "one that is being ended is not named again, however long its end takes";
}

// One that asks again before the first has left would end a second connection for one place.
TEST(PlacesTest, OneLeavesAtATimeForOneHost) {
  Places places(3);
  std::vector<std::shared_ptr<Place>> there;
  for (const char* peer : {"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"})
    there.push_back(places.take(there.size(), peer, 0));
  const Nanos now = Places::kSilent;
  EXPECT_EQ(places.victim("192.0.2.4:1", now), 0U);
  EXPECT_EQ(places.victim("192.0.2.4:2", now + Places::kLeaving - 1), std::nullopt);
  EXPECT_EQ(places.victim("192.0.2.5:1", now), 1U) << "for somebody else";
  there.erase(there.begin());
  EXPECT_EQ(places.victim("192.0.2.4:2", now + 1), 2U) << "the first has left";
}

TEST(PlacesTest, WhoNeverSaidAWordGoesSooner) {
  Places places(2);
  const auto half_open = places.take(1, "192.0.2.1:1", 0);
  const auto client = places.take(2, "192.0.2.2:1", 0);
  client->heard(0);
  EXPECT_EQ(places.victim("192.0.2.3:1", Places::kUnheard - 1), std::nullopt);
  EXPECT_EQ(places.victim("192.0.2.3:1", Places::kUnheard), 1U);
}

// A host that keeps all places busy: each newcomer from elsewhere gets one, until others have half.
TEST(PlacesTest, NoHostKeepsMoreThanHalfFromOthers) {
  constexpr std::uint32_t kCount = 64;
  Places places(kCount);
  std::vector<std::shared_ptr<Place>> hostile;
  for (std::uint64_t i = 0; i < kCount; ++i)
    hostile.push_back(places.take(i, "192.0.2.66:" + std::to_string(i), 0));
  std::vector<std::shared_ptr<Place>> others;
  for (Nanos now = 1;; ++now) {
    for (const auto& place : hostile)
      place->heard(now);  // it pings
    const std::string newcomer = "192.0.2." + std::to_string(now % 50) + ":7";
    const auto victim = places.victim(newcomer, now);
    if (!victim) break;
    const auto found = std::ranges::find(hostile, *victim, &Place::session);
    ASSERT_NE(found, hostile.end());
    hostile.erase(found);
    others.push_back(places.take(1000 + static_cast<std::uint64_t>(now), newcomer, now));
  }
  EXPECT_EQ(hostile.size(), kCount / 2);
  EXPECT_EQ(others.size(), kCount / 2);
  EXPECT_EQ(places.victim("192.0.2.66:99", 100), std::nullopt) << "it makes no room for itself";
}

// Over shared memory each process is an origin: one host has as many as it likes.
TEST(PlacesTest, ProcessesOfThisHostDoNotKeepOtherHostsOut) {
  constexpr std::uint32_t kCount = 8;
  Places places(kCount);
  std::vector<std::shared_ptr<Place>> local;
  for (std::uint64_t i = 0; i < kCount; ++i)
    local.push_back(places.take(i, "shm:" + std::to_string(100 + i), 0));
  std::vector<std::shared_ptr<Place>> remote;
  for (Nanos now = 1;; ++now) {
    for (const auto& place : local)
      place->heard(now);
    EXPECT_EQ(places.victim("shm:99", now), std::nullopt) << "each has one";
    const std::string newcomer = "192.0.2." + std::to_string(now) + ":7";
    const auto victim = places.victim(newcomer, now);
    if (!victim) break;
    ASSERT_EQ(std::erase_if(local, [&](const auto& one) { return one->session() == *victim; }), 1U);
    remote.push_back(places.take(1000 + static_cast<std::uint64_t>(now), newcomer, now));
  }
  EXPECT_EQ(local.size(), kCount / 2);
}

// A worker may hear from a client after the acceptor has read the clock.
TEST(PlacesTest, AHostWhoseClientsAreAllHeardAtThisMomentIsNoException) {
  Places places(2);
  const auto a = places.take(1, "192.0.2.66:1", 0);
  const auto b = places.take(2, "192.0.2.66:2", 0);
  a->heard(200);
  b->heard(300);
  EXPECT_EQ(places.victim("192.0.2.1:1", 100), 1U);
}

// Else two that want it would end each other's connections without end.
TEST(PlacesTest, TheOnlyPlaceIsNotTakenFromWhoUsesIt) {
  Places places(1);
  const auto only = places.take(1, "192.0.2.1:1", 0);
  only->heard(kNanosPerSecond);
  EXPECT_EQ(places.victim("192.0.2.2:1", 2 * kNanosPerSecond), std::nullopt);
  EXPECT_EQ(places.victim("192.0.2.2:1", kNanosPerSecond + Places::kSilent), 1U);
}

// One host has as many addresses of its network as it likes; the hosts of one network are judged by
// their addresses.
TEST(PlacesTest, AddressesOfOneNetworkDoNotKeepOthersOut) {
  constexpr std::uint32_t kCount = 8;
  Places places(kCount);
  std::vector<std::shared_ptr<Place>> hostile;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    hostile.push_back(places.take(i, "[2001:db8:0:66::" + std::to_string(i) + "]:7", 0));
    hostile.back()->heard(1);
  }
  EXPECT_EQ(places.victim("[2001:db8:0:66:1::9]:7", 2), std::nullopt) << "of the same network";
  EXPECT_TRUE(places.victim("[2001:db8:0:67::9]:7", 2));
  EXPECT_TRUE(places.victim("192.0.2.1:7", 2));
  Places mapped(2);
  const auto a = mapped.take(1, "[::ffff:192.0.2.1]:7", 0);
  const auto b = mapped.take(2, "[::ffff:192.0.2.2]:7", 0);
  a->heard(1);
  b->heard(1);
  EXPECT_EQ(mapped.victim("[::ffff:192.0.2.3]:7", 2), std::nullopt) << "hosts of IPv4 are several";
}

// ---- offences

TEST(OffencesTest, SoManyAtOnceAndSoManyASecond) {
  Offences offences(4);
  for (int i = 0; i < Offences::kAtOnce; ++i) {
    ASSERT_FALSE(offences.too_many("192.0.2.1", 0)) << i;
    offences.add("192.0.2.1", 0);
  }
  constexpr Nanos kQuarter = kNanosPerSecond / 4;
  EXPECT_TRUE(offences.too_many("192.0.2.1", 0));
  EXPECT_FALSE(offences.too_many("192.0.2.2", 0)) << "of another host";
  EXPECT_TRUE(offences.too_many("192.0.2.1", kQuarter - 1));
  // From then on four a second, however often it comes.
  int let_in = 0;
  for (Nanos now = kQuarter; now < 10 * kNanosPerSecond; now += kNanosPerMs) {
    if (offences.too_many("192.0.2.1", now)) continue;
    offences.add("192.0.2.1", now);
    ++let_in;
  }
  EXPECT_EQ(let_in, 39);
}

// Many at once, as when a host with many clients dies, do not shut it out for long.
TEST(OffencesTest, AreDoneWithSoon) {
  Offences offences(4);
  for (int i = 0; i < 1000; ++i)
    offences.add("192.0.2.1", 0);
  EXPECT_TRUE(offences.too_many("192.0.2.1", 0));
  EXPECT_FALSE(offences.too_many("192.0.2.1", kNanosPerSecond / 4));
}

// A client makes many connections and offends on all of them afterwards.
TEST(OffencesTest, NewcomersCountWhereThereWereMany) {
  Offences offences(4);
  constexpr Nanos kQuarter = kNanosPerSecond / 4;
  for (int i = 0; i < 100; ++i)
    offences.add_newcomer("192.0.2.1", 0);
  EXPECT_EQ(offences.remembered(), 0U) << "of a host that has not offended they do not";
  for (int i = 0; i < Offences::kMany; ++i)
    offences.add("192.0.2.1", 0);
  for (int i = 0; i < 100; ++i)
    offences.add_newcomer("192.0.2.1", 0);
  EXPECT_FALSE(offences.too_many("192.0.2.1", 0));
  for (int i = 0; i < Offences::kMany; ++i)
    offences.add("192.0.2.1", 0);
  for (Nanos now = kQuarter; now < kNanosPerSecond; now += kQuarter) {
    ASSERT_FALSE(offences.too_many("192.0.2.1", now));
    offences.add_newcomer("192.0.2.1", now);
    ASSERT_TRUE(offences.too_many("192.0.2.1", now)) << "only one is accepted";
  }
}

TEST(OffencesTest, OriginsAreForgotten) {
  Offences offences(4);
  for (std::size_t i = 0; i < 2 * Offences::kMostOrigins; ++i) {
    offences.add("shm:" + std::to_string(i), 0);
    ASSERT_LE(offences.remembered(), Offences::kMostOrigins);
  }
  offences.add("shm:0", kNanosPerSecond);
  EXPECT_EQ(offences.remembered(), 1U);
}

TEST(OffencesTest, ThereNeedBeNoLimit) {
  Offences offences(0);
  for (int i = 0; i < 1000; ++i)
    offences.add("192.0.2.1", 0);
  EXPECT_FALSE(offences.too_many("192.0.2.1", 0));
  EXPECT_EQ(offences.remembered(), 0U);
}

TEST_F(Fairness, WhoBreaksARuleHasOffendedAndWhoIsSilentHasNot) {
  make_worker(true);
  Places places(kMany, 1);
  int offenders = 0;
  while (!places.offends("192.0.2.1:9", clock_.now())) {
    ASSERT_LE(++offenders, Offences::kAtOnce);
    FakeConnection* const silent = connect_at(places.take(0, "192.0.2.2:1", clock_.now()));
    worker_->sessions().give_up(sessions_);
    FakeConnection* const offender = connect_at(places.take(0, "192.0.2.1:1", clock_.now()));
    queue().receive(*offender, as_bytes("no request"));
    turn();
    EXPECT_FALSE(offender->alive());
    EXPECT_FALSE(silent->alive());
    queue().end(*offender);
    queue().end(*silent);
    turn();
  }
  EXPECT_GT(offenders, Offences::kMany) << "only beyond these a newcomer counts as well";
  EXPECT_FALSE(places.offends("192.0.2.2:9", clock_.now()));
}

TEST(PlacesTest, AnOriginIsAHostOrAProcess) {
  EXPECT_EQ(Places::origin_of("192.0.2.1:54321"), "192.0.2.1");
  EXPECT_EQ(Places::origin_of("[2001:db8::1]:54321"), "[2001:db8::1]");
  EXPECT_EQ(Places::origin_of("shm:1234"), "shm:1234");
}

}  // namespace
}  // namespace rkv::server
