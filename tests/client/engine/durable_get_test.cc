// The durability that a GET reports, and GETs that insist on one: WMARK-1 to WMARK-3 of
// watermarks.h, GETOP-4 of get_op.h.
#include <gtest/gtest.h>

#include "common/random.h"
#include "common/scan.h"
#include "tests/client/client_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv {
namespace {

using std::chrono::milliseconds;

constexpr GetOptions kSynced{.at_least = Durability::kSync};
constexpr GetOptions kLogged{.at_least = Durability::kWal};

class DurableGetTest : public ClientTest {
 protected:
  // Versions of the scripted memory count from 1.1.
  void marks(std::uint64_t wal, std::uint64_t sync) {
    server_.memory->set_marks(Version::of(1, wal), Version::of(1, sync));
  }
  Durability known(std::string_view key) {
    const auto got = client().get(key);
    EXPECT_TRUE(got) << to_string(got.error());
    return got ? got->durability : Durability::kDefault;
  }
  int reads_of(auto call) {
    const int before = server_.reads;
    call();
    return server_.reads - before;
  }
};

TEST_F(DurableGetTest, WhatTheRootPageSaidIsKnownWithoutAnotherRead) {
  for (const char* key : {"synced", "logged", "new"})
    store(key, "value");
  marks(2, 1);
  EXPECT_EQ(known("synced"), Durability::kSync);
  EXPECT_EQ(known("logged"), Durability::kWal);
  EXPECT_EQ(known("new"), Durability::kMemory);
  marks(3, 3);
  EXPECT_EQ(reads_of([&] { EXPECT_EQ(known("new"), Durability::kMemory); }), 1)
      << "what is not known is not asked for";
  EXPECT_EQ(reads_of([&] { EXPECT_TRUE(client().get("synced", kSynced)); }), 1);
}

TEST_F(DurableGetTest, VersionsOfEarlierBootsAreDurable) {
  store("key", "value");
  server_.memory->set_marks(Version::of(2, 0), Version::of(2, 0));
  EXPECT_EQ(known("key"), Durability::kSync);
}

TEST_F(DurableGetTest, AnswersBringTheMarksAlong) {
  store("key", "value");
  marks(0, 0);
  EXPECT_EQ(known("key"), Durability::kMemory);
  Response response;
  server_.answer = [&](const Request&) { return response; };
  response.version = Version::of(1, 3);
  response.wal_mark = Version::of(1, 2);
  ASSERT_TRUE(client().put("other", "value"));
  EXPECT_EQ(known("key"), Durability::kWal);
  response.wal_mark = response.sync_mark = Version::of(1, 3);
  const KeyValue items[] = {{"other", "value"}};
  ASSERT_TRUE(client().multi_put(items).front());
  EXPECT_EQ(known("key"), Durability::kSync);
  // An answer that was long on its way takes nothing back (WMARK-1).
  response.wal_mark = response.sync_mark = Version{};
  ASSERT_TRUE(client().put("other", "value"));
  EXPECT_EQ(known("key"), Durability::kSync);
}

TEST_F(DurableGetTest, EveryKindOfGetTells) {
  store("key", "value");
  marks(1, 1);
  std::array<std::byte, 16> room;
  EXPECT_EQ(client().get_into("key", room)->durability, Durability::kSync);
  const std::string_view keys[] = {"key"};
  EXPECT_EQ(client().multi_get(keys).front()->durability, Durability::kSync);
  spill("spilled");
  Response response{.version = Version::of(1, 9),
                    .wal_mark = Version::of(1, 9),
                    .value = as_bytes("from the server")};
  server_.answer = [&](const Request&) { return response; };
  EXPECT_EQ(known("spilled"), Durability::kWal);
}

TEST_F(DurableGetTest, OneReadOfTheMarksIsEnoughWhenTheyHaveRisen) {
  store("key", "value");
  marks(0, 0);
  ASSERT_TRUE(client().get("key"));
  marks(1, 1);
  EXPECT_EQ(reads_of([&] {
              const auto got = client().get("key", kSynced);
              ASSERT_TRUE(got) << to_string(got.error());
              EXPECT_EQ(got->value, "value");
              EXPECT_EQ(got->durability, Durability::kSync);
            }),
            2);
  EXPECT_EQ(reads_of([&] { ASSERT_TRUE(client().get("key", kSynced)); }), 1);
  EXPECT_EQ(server_.requests, 0);
}

TEST_F(DurableGetTest, WaitsForTheMarkOfItsLevel) {
  marks(0, 0);
  for (const GetOptions& options : {kLogged, kSynced}) {
    const std::string key = to_string(options.at_least);
    store(key, "value");
    const std::uint64_t sequence = server_.memory->sequence;
    const Nanos risen_at = server_.clock.now() + 300 * kNanosPerMs;
    server_.before_read = [&] {
      if (server_.clock.now() < risen_at) return;
      marks(sequence, options.at_least == Durability::kSync ? sequence : 0);
    };
    const auto got = client().get(key, options);
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_GE(server_.clock.now(), risen_at);
    EXPECT_GE(got->durability, options.at_least);
    server_.before_read = nullptr;
  }
}

TEST_F(DurableGetTest, EndsByTheDeadlineAndReturnsNothingUndurable) {
  store("key", "value");
  marks(1, 0);
  ASSERT_TRUE(client().get("key", kLogged));
  const Nanos start = server_.clock.now();
  const auto got =
      client().get("key", GetOptions{.at_least = Durability::kSync, .timeout = milliseconds(250)});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kTimeout);
  EXPECT_EQ(got.error().write, WriteOutcome::kNotApplied);
  EXPECT_LE(server_.clock.now() - start, 250 * kNanosPerMs);
  EXPECT_EQ(server_.connects, 1) << "the connection is as good as before";
  EXPECT_LT(reads_of([&] { (void)client().get("key", kSynced); }), 200) << "it does not spin";
}

TEST_F(DurableGetTest, AServerWithoutADiskSaysSoAtOnce) {
  store("key", "value");
  const auto got = client().get("key", kSynced);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kUnsupported);
  EXPECT_EQ(server_.clock.now(), ManualClock{}.now());
}

TEST_F(DurableGetTest, AMissIsAnsweredWithoutALookAtTheMarks) {
  EXPECT_EQ(client().get("absent", kSynced).error().code, Code::kNotFound);
}

TEST_F(DurableGetTest, TornMarkLinesAreReadAgain) {
  store("key", "value");
  marks(0, 0);
  ASSERT_TRUE(client().get("key"));
  marks(1, 1);
  server_.memory->tear_marks();
  int torn = 0;
  server_.before_read = [&] {
    if (++torn == 4) marks(1, 1);
  };
  ASSERT_TRUE(client().get("key", kSynced));
  EXPECT_GE(torn, 4);
}

// The key is written all the time: the GET does not chase it.
TEST_F(DurableGetTest, AVersionFoundIsReturnedWhenItIsDurableWhateverCameAfterIt) {
  store("key", "first");
  marks(0, 0);
  int reads = 0;
  ASSERT_TRUE(client().get("key"));
  server_.before_read = [&] {
    if (++reads == 2) {
      server_.memory->clear_slots(ScriptedMemory::home("key"));
      store("key", "second");
    }
    if (reads == 5) marks(1, 1);
  };
  const auto got = client().get("key", kSynced);
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "first");
}

// The server dies before the version was durable, and its successor does not have it.
TEST_F(DurableGetTest, AVersionThatACrashTookIsNeverReturned) {
  store("key", "lost");
  marks(0, 0);
  ASSERT_TRUE(client().get("key"));
  auto next = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
  next->set_marks(Version::of(2, 0), Version::of(2, 0));
  next->add("key", next->store("key", "kept"));
  std::unique_ptr<ScriptedMemory> dead;
  int reads = 0;
  server_.before_read = [&] {
    if (++reads != 4) return;
    dead = std::exchange(server_.memory, std::move(next));
    server_.die_at_read = 1;
  };
  const auto got = client().get("key", kSynced);
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "kept");
  EXPECT_EQ(got->durability, Durability::kSync);
  EXPECT_EQ(server_.connects, 2);
}

// The answer that holds the value outlives its connection, and the queue that it came from.
TEST_F(DurableGetTest, AnAnswerIsLeftBehindWhenItsConnectionCannotBeDrained) {
  marks(0, 0);
  spill("spilled");
  server_.answer = [&](const Request&) {
    server_.reads_hang = true;
    return Response{.version = Version::of(1, 9), .value = as_bytes("from the server")};
  };
  server_.never_drains = true;
  Client& asking = client();
  const Nanos began = server_.clock.now();
  const auto got =
      asking.get("spilled", GetOptions{.at_least = Durability::kWal, .timeout = milliseconds(50)});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kTimeout);
  // Destroying the connection waits for the adapter once more, so this wait must be short.
  EXPECT_LE(server_.clock.now() - began, (50 + 200) * kNanosPerMs);
  server_.never_drains = server_.reads_hang = false;
  EXPECT_TRUE(client().ping());
}

// Knowledge of one epoch does not hold in another: there the same numbers may be other writes.
TEST_F(DurableGetTest, AnotherEpochBeginsWithoutKnowledge) {
  store("key", "value");
  marks(1, 1);
  EXPECT_EQ(known("key"), Durability::kSync);
  auto next = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
  next->set_marks(Version::of(1, 0), Version::of(1, 0));
  next->add("key", next->store("key", "other"));
  const auto dead = std::exchange(server_.memory, std::move(next));
  server_.die_at_read = 1;
  const auto got = client().get("key");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "other");
  EXPECT_EQ(got->durability, Durability::kMemory);
}

// ---- many at a time

constexpr std::string_view kTwo[] = {"old", "new"};

TEST_F(DurableGetTest, ManyWaitEachForItsOwnMarkAndShareTheReads) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back("key" + std::to_string(i));
    store(names.back(), "value" + std::to_string(i));
  }
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const std::uint64_t last = server_.memory->sequence;
  marks(50, 50);
  for (const auto& got : client().multi_get(keys))
    ASSERT_TRUE(got);
  const int without = reads_of([&] { client().multi_get(keys); });
  marks(last, last);
  const int with = reads_of([&] {
    const auto values = client().multi_get(keys, kSynced);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(values[i]) << to_string(values[i].error());
      EXPECT_EQ(values[i]->value, "value" + std::to_string(i));
      EXPECT_EQ(values[i]->durability, Durability::kSync);
    }
  });
  EXPECT_EQ(with, without + 1);
  EXPECT_EQ(reads_of([&] { client().multi_get(keys, kSynced); }), without) << "known by now";
}

TEST_F(DurableGetTest, ManyWaitUntilTheMarksHaveRisen) {
  store("old", "1");
  store("new", "2");
  marks(1, 1);
  const Nanos risen_at = server_.clock.now() + 300 * kNanosPerMs;
  server_.before_read = [&] {
    if (server_.clock.now() >= risen_at) marks(2, 2);
  };
  Nanos old_at = 0;
  client().multi_get_into(
      kTwo,
      [&](std::size_t index, const Result<ValueView>& got) {
        ASSERT_TRUE(got) << to_string(got.error());
        EXPECT_EQ(got->durability, Durability::kSync);
        EXPECT_EQ(got->value, index == 0 ? "1" : "2");
        if (index == 0) old_at = server_.clock.now();
      },
      kSynced);
  EXPECT_GE(server_.clock.now(), risen_at);
  EXPECT_LT(old_at, risen_at) << "what is durable does not wait for what is not";
}

TEST_F(DurableGetTest, ManyEndByTheDeadlineAndReturnNothingUndurable) {
  store("old", "1");
  store("new", "2");
  marks(2, 1);
  ASSERT_TRUE(client().get("old"));
  const Nanos start = server_.clock.now();
  const int reads = reads_of([&] {
    const auto got = client().multi_get(
        kTwo, GetOptions{.at_least = Durability::kSync, .timeout = milliseconds(250)});
    EXPECT_TRUE(got[0]);
    ASSERT_FALSE(got[1]);
    EXPECT_EQ(got[1].error().code, Code::kTimeout);
  });
  EXPECT_LE(server_.clock.now() - start, 250 * kNanosPerMs);
  EXPECT_LT(reads, 200) << "it does not spin";
  EXPECT_EQ(server_.connects, 1) << "the connection is as good as before";
  EXPECT_TRUE(client().get("new"));
}

TEST_F(DurableGetTest, ManyAreToldAtOnceOfAServerWithoutADisk) {
  store("new", "2");
  const std::string_view keys[] = {"new", "absent"};
  const auto got = client().multi_get(keys, kSynced);
  EXPECT_EQ(got[0].error().code, Code::kUnsupported);
  EXPECT_EQ(got[1].error().code, Code::kNotFound);
  EXPECT_EQ(server_.clock.now(), ManualClock{}.now());
}

// Values that came with answers lie in receive buffers meanwhile, of which there are few.
TEST_F(DurableGetTest, ManyOfTheServersAnswersWaitToo) {
  marks(0, 0);
  options_.requests_in_flight = 4;
  server_.credits = 4;
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) {
    names.push_back("key" + std::to_string(i));
    spill(names.back());
  }
  const std::vector<std::string_view> keys(names.begin(), names.end());
  std::uint64_t sequence = 0;
  std::string text;
  int most_held = 0;
  server_.answer = [&](const Request& request) {
    text = "value of " + std::string(as_text(request.key));
    most_held = std::max(most_held, server_.receives_held);
    return Response{.version = Version::of(1, ++sequence), .value = as_bytes(text)};
  };
  server_.before_read = [&] { marks(sequence, sequence); };
  const auto values = client().multi_get(keys, kSynced);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(values[i]) << to_string(values[i].error());
    EXPECT_EQ(values[i]->value, "value of " + names[i]);
    EXPECT_EQ(values[i]->durability, Durability::kSync);
  }
  EXPECT_LE(most_held, 4);
  EXPECT_EQ(server_.requests, 40);
  server_.before_read = nullptr;
  server_.answer = [&](const Request&) {
    return Response{.flags = Response::kCounter | Response::kInCell,
                    .version = {},
                    .value = as_bytes("8 bytes!")};
  };
  EXPECT_EQ(client().multi_get(keys, kSynced).front().error().code, Code::kUnsupported);
}

TEST_F(DurableGetTest, ManyNeverReturnWhatACrashTook) {
  store("old", "lost too");
  store("new", "lost");
  marks(0, 0);
  ASSERT_TRUE(client().get("new"));
  spill("told");
  const std::string_view keys[] = {"old", "new", "told"};
  auto next = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
  next->set_marks(Version::of(2, 0), Version::of(2, 0));
  for (const std::string_view key : keys)
    next->add(key, next->store(key, "kept"));
  std::unique_ptr<ScriptedMemory> dead;
  server_.answer = [&](const Request&) {
    return Response{.version = Version::of(1, 9), .value = as_bytes("lost as well")};
  };
  int reads = 0;
  server_.before_read = [&] {
    if (++reads != 12) return;
    dead = std::exchange(server_.memory, std::move(next));
    server_.die_at_read = 1;
  };
  const auto values = client().multi_get(keys, kSynced);
  for (const auto& got : values) {
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->value, "kept");
    EXPECT_EQ(got->durability, Durability::kSync);
  }
  EXPECT_EQ(server_.connects, 2);
}

// ---- scans: what is too long for a page

// The server's answer to a SCAN: these keys, with values that it leaves out.
std::vector<std::byte> page_without_values(std::span<const std::string_view> keys) {
  const std::string value(kMaxScanValueBytes + 1, 'v');
  ScanPageWriter writer({});
  for (const std::string_view key : keys)
    writer.add({.version = Version::of(1, 1), .key = as_bytes(key), .value = as_bytes(value)});
  return std::move(writer).finish(false);
}

TEST_F(DurableGetTest, AScanShowsLongValuesWhenTheyAreInTheLog) {
  store("old", "1");
  store("new", "2");
  marks(1, 0);
  const std::string_view keys[] = {"new", "old"};
  const std::vector<std::byte> page = page_without_values(keys);
  server_.answer = [&](const Request&) { return Response{.version = {}, .value = page}; };
  const Nanos risen_at = server_.clock.now() + 300 * kNanosPerMs;
  server_.before_read = [&] {
    if (server_.clock.now() >= risen_at) marks(2, 0);
  };
  const auto scanned = client().scan();
  ASSERT_TRUE(scanned) << to_string(scanned.error());
  ASSERT_EQ(scanned->entries().size(), 2U);
  EXPECT_EQ(scanned->entries()[0].value, "2");
  EXPECT_EQ(scanned->entries()[1].value, "1");
  EXPECT_GE(server_.clock.now(), risen_at);
}

// Nobody can wait for the log with such a number; the key was gone in between.
TEST_F(DurableGetTest, AScanLeavesOutWhatHasBecomeAOneSidedCounter) {
  store("stays", "1");
  marks(1, 1);
  spill("changed");
  const std::string_view keys[] = {"changed", "stays"};
  const std::vector<std::byte> page = page_without_values(keys);
  server_.answer = [&](const Request& request) {
    if (request.opcode == Opcode::kScan) return Response{.version = {}, .value = page};
    return Response{.flags = Response::kCounter | Response::kInCell,
                    .version = {},
                    .value = as_bytes("8 bytes!")};
  };
  const auto scanned = client().scan();
  ASSERT_TRUE(scanned) << to_string(scanned.error());
  ASSERT_EQ(scanned->entries().size(), 1U);
  EXPECT_EQ(scanned->entries()[0].key, "stays");
}

// At random: a server whose marks rise, a client that hears of them in every way. Whatever a GET
// says must be true of the marks as they are then.
class Checker {
 public:
  bool holds(Durability told, std::uint64_t version, Version wal, Version sync) const {
    if (told == Durability::kSync) return version <= sync.bits;
    return told != Durability::kWal || version <= wal.bits;
  }
};

struct RandomRun {
  int wrong = 0;
  int synced = 0;
};

// `lie`: the server says of its marks so much more than is true.
RandomRun run_at_random(FakeServer& server, Client& client, std::uint64_t seed, std::uint64_t lie) {
  Random random(seed);
  RandomRun run;
  Version wal;
  Version sync;
  const auto show = [&] { server.memory->set_marks({wal.bits + lie}, {sync.bits + lie}); };
  server.answer = [&](const Request&) {
    return Response{.version = wal, .wal_mark = {wal.bits + lie}, .sync_mark = {sync.bits + lie}};
  };
  server.before_read = [&] {
    if (random.below(4) != 0) return;
    wal =
        Version::of(1, wal.sequence() + random.below(server.memory->sequence + 1 - wal.sequence()));
    if (random.below(2) == 0) sync = wal;
    show();
  };
  for (int step = 0; step < 400; ++step) {
    const std::string key = std::to_string(random.below(8));
    if (random.below(3) == 0) {
      server.memory->clear_slots(ScriptedMemory::home(key));
      server.memory->add(key, server.memory->store(key, "value"));
    }
    if (random.below(5) == 0) (void)client.ping();
    const auto level = static_cast<Durability>(1 + random.below(3));
    const auto got = client.get(key, GetOptions{.at_least = level, .timeout = milliseconds(100)});
    if (!got) continue;
    const bool kept = got->durability >= level;
    run.wrong += kept && Checker().holds(got->durability, got->version, wal, sync) ? 0 : 1;
    run.synced += got->durability == Durability::kSync ? 1 : 0;
  }
  return run;
}

TEST_F(DurableGetTest, AtRandomNothingIsToldThatIsNotTrue) {
  marks(0, 0);
  const RandomRun run = run_at_random(server_, client(), 7, 0);
  EXPECT_EQ(run.wrong, 0);
  EXPECT_GT(run.synced, 20);
}

TEST_F(DurableGetTest, TheCheckerSeesAServerThatSaysMoreThanIsTrue) {
  marks(0, 0);
  EXPECT_GT(run_at_random(server_, client(), 7, 1).wrong, 0);
}

}  // namespace
}  // namespace rkv
