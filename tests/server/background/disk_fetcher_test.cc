// Records on disk: loaded, evicted, written, removed - by many threads at once, on a disk that
// fails now and then.
#include <fmt/format.h>

#include <random>

#include "tests/server/background/disk_fetcher_fixture.h"

namespace rkv::server {
namespace {

std::string name_of(std::uint64_t number) {
  return fmt::format("key{:05}", number);
}

MapDisk::Record old_record(std::uint64_t number, std::string value) {
  return {.version = Version::of(3, number + 1), .expiry_ms = 0, .value = std::move(value)};
}

TEST(DiskFetcher, AKeyIsThereBeforeItIsLoaded) {
  MapDisk disk;
  disk.preload("there", old_record(1, "old"));
  StoreOnDisk s(disk);
  EXPECT_EQ(s.get("there"), "old");
  EXPECT_EQ(s.get("not there"), std::nullopt);
  EXPECT_TRUE(s.store.stats().loading);
  EXPECT_EQ(s.store.stats().records, 1U);
}

TEST(DiskFetcher, WhatIsAskedAfterTheStopIsRefused) {
  MapDisk disk;
  StoreOnDisk server(disk);
  server.stop();
  const auto load = server.loads.ask(as_bytes("key"));
  ASSERT_TRUE(load->done()) << "nothing would end it";
  ASSERT_TRUE(load->failure());
  EXPECT_EQ(load->failure()->code, Code::kBusy);
}

TEST(DiskFetcher, OperationsSeeWhatIsOnDisk) {
  MapDisk disk;
  for (const char* key : {"removed", "swapped", "put if absent", "put"})
    disk.preload(key, old_record(1, "old"));
  disk.preload("counter", {.version = Version::of(3, 1),
                           .expiry_ms = 0,
                           .counter = true,
                           .value = std::string("\x05\0\0\0\0\0\0\0", 8)});
  StoreOnDisk s(disk);
  EXPECT_TRUE(s.remove("removed"));
  EXPECT_EQ(s.get("removed"), std::nullopt);
  EXPECT_EQ(s.remove("removed").error().code, Code::kNotFound);
  const auto counted = s.run("counter", [&](DiskLookup look) {
    return s.store.counters().add(as_bytes("counter"), 2, look);
  });
  ASSERT_TRUE(counted);
  EXPECT_EQ(counted->number, 7);
  const auto refused = s.run("put if absent", [&](DiskLookup look) {
    return s.store.put(as_bytes("put if absent"), as_bytes("new"),
                       {.condition = Condition::kIfAbsent, .look = look});
  });
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_TRUE(s.put("put", "new"));
  EXPECT_EQ(s.get("put"), "new");
  EXPECT_EQ(s.put("counter", "x").error().code, Code::kWrongType);
}

// The result of a load is void if the key has changed since.
TEST(DiskFetcher, AnAbsenceOfThePastIsNone) {
  MapDisk disk;
  StoreOnDisk s(disk);
  std::vector<std::byte> buffer(kMaxInlineBytes);
  const DiskLookup look = s.bring("k")->look();
  ASSERT_TRUE(look);
  EXPECT_EQ(s.store.get(as_bytes("k"), buffer, look).error().code, Code::kNotFound);
  ASSERT_TRUE(s.put("k", "v"));
  ASSERT_TRUE(s.remove("k"));
  EXPECT_TRUE(s.store.get(as_bytes("k"), buffer, look).error().on_disk);
  EXPECT_TRUE(s.store.put(as_bytes("k"), as_bytes("v"), {.look = look}).error().on_disk);
}

TEST(DiskFetcher, AWarmUpBringsEverythingAndBringsNothingBack) {
  MapDisk disk;
  for (std::uint64_t i = 0; i < 3000; ++i)
    disk.preload(name_of(i), old_record(i, "old"));
  StoreOnDisk s(disk);
  ASSERT_TRUE(s.remove(name_of(2999)));
  ASSERT_TRUE(s.put(name_of(2998), "new"));
  s.warm_up.start();
  s.await_loaded();
  EXPECT_EQ(s.store.stats().records, 2999U);
  EXPECT_EQ(s.get(name_of(0)), "old");
  EXPECT_EQ(s.get(name_of(2998)), "new");
  EXPECT_EQ(s.get(name_of(2999)), std::nullopt);
}

TEST(DiskFetcher, WhatHasExpiredOnDiskIsNotLoadedAndGoes) {
  MapDisk disk;
  const std::uint64_t past = StoreOnDisk::kUnixMsAtZero - 1;
  for (const char* key : {"asked for", "warmed up"}) {
    disk.preload(key, {.version = Version::of(3, 1), .expiry_ms = past, .value = "old"});
  }
  StoreOnDisk s(disk);
  EXPECT_EQ(s.get("asked for"), std::nullopt);
  s.warm_up.start();
  s.await_loaded();
  EXPECT_EQ(s.store.stats().records, 0U);
  s.await_synced();
  EXPECT_TRUE(disk.records().empty());
}

// A clock that is ahead says so too: what it says of keys that the last start still had is not made
// true on disk.
TEST(DiskFetcher, WhatHasExpiredSinceTheLastStartIsHiddenAndStaysOnDisk) {
  MapDisk disk;
  const std::uint64_t last_start = StoreOnDisk::kUnixMsAtZero - 1000;
  const auto expired = [](std::uint64_t at) {
    return MapDisk::Record{.version = Version::of(3, 1), .expiry_ms = at, .value = "old"};
  };
  for (const char* key : {"asked for", "warmed up", "written"})
    disk.preload(key, expired(last_start + 1));
  disk.preload("expired before", expired(last_start));
  StoreOnDisk s(disk);
  s.store.loader().keep_expired(last_start, StoreOnDisk::kUnixMsAtZero);
  EXPECT_EQ(s.get("asked for"), std::nullopt);
  EXPECT_TRUE(s.put("written", "new"));
  s.warm_up.start();
  s.await_loaded();
  EXPECT_EQ(s.store.stats().records, 1U);
  EXPECT_EQ(s.get("warmed up"), std::nullopt);
  EXPECT_EQ(s.get("written"), "new");
  s.await_synced();
  const auto left = disk.records();
  EXPECT_EQ(left.size(), 3U);
  EXPECT_FALSE(left.contains("expired before"));
  EXPECT_EQ(left.at("written")->value, "new");
}

TEST(DiskFetcher, MoreThanMemoryHolds) {
  MapDisk disk;
  StoreOnDisk s(disk);
  s.warm_up.start();
  s.await_loaded();
  const auto value_of = [](std::uint64_t i) {
    return std::string(500 + i * 37 % 9000, static_cast<char>('a' + i % 26));
  };
  constexpr std::uint64_t kKeys = 8000;  // 40 MB in 16 MiB
  for (std::uint64_t i = 0; i < kKeys; ++i)
    ASSERT_TRUE(s.put(name_of(i), value_of(i)));
  const StoreStats stats = s.store.stats();
  EXPECT_EQ(stats.records + stats.records_on_disk, kKeys);
  EXPECT_GT(stats.records_on_disk, kKeys / 2);
  for (std::uint64_t i = 0; i < kKeys; ++i)
    ASSERT_EQ(s.get(name_of(i)), value_of(i)) << i;
}

// A record that does not move is used as well as one that is given a new block and slot.
TEST(DiskFetcher, WhatIsWrittenAgainAndAgainStaysInMemory) {
  MapDisk disk;
  StoreOnDisk s(disk);
  s.warm_up.start();
  s.await_loaded();
  const std::string value(4000, 'v');
  ASSERT_TRUE(s.put("hot", value));
  const auto brought_back = [&] {
    const std::uint64_t before = s.store.stats().promoted;
    EXPECT_TRUE(s.put("hot", value));
    s.await_synced();  // or it would stay for that
    return s.store.stats().promoted - before;
  };
  std::uint64_t left = 0;
  constexpr std::uint64_t kKeys = 6000;  // twice what there is room for
  for (std::uint64_t i = 0; i < 3 * kKeys; ++i) {
    ASSERT_TRUE(s.put(name_of(i % kKeys), value));
    if (i % 200 == 0) left += brought_back();
  }
  ASSERT_GT(s.store.stats().evicted, kKeys);
  ASSERT_GT(s.store.stats().puts_in_place, 0U);
  EXPECT_EQ(left, 0U);
}

// Also of keys that found no place in their groups: what they hold of memory is not lost to others.
TEST(DiskFetcher, WithAFullIndexEveryKeyCanStillBeReadAndRemoved) {
  MapDisk disk;
  StoreOnDisk s(disk, kMinMemoryBytes, 0, 5, 0);  // a small index
  s.warm_up.start();
  s.await_loaded();
  const std::string value(2000, 'v');
  std::uint64_t keys = 0;
  while (s.put(name_of(keys), value))
    ++keys;
  ASSERT_GT(s.store.stats().stashed_records, 0U);
  ASSERT_GT(s.store.stats().records_on_disk, s.store.stats().records);
  for (std::uint64_t i = 0; i < keys; i += 17)
    ASSERT_EQ(s.get(name_of(i)), value) << i << " of " << keys;
  for (std::uint64_t i = 0; i < keys; i += 100)
    ASSERT_TRUE(s.remove(name_of(i))) << i;
  EXPECT_TRUE(s.put(name_of(0), value)) << "there is room again";
}

// A key that comes and goes before its turn leaves nothing behind.
TEST(DiskFetcher, KeysThatComeAndGoWhileLoadingTakeOneSlotEach) {
  MapDisk disk;
  constexpr std::uint64_t kKeys = 6000;
  const std::string value(4000, 'v');
  for (std::uint64_t i = 0; i < kKeys; ++i)
    disk.preload(name_of(i), old_record(i, value));
  StoreOnDisk s(disk);
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < kKeys; ++i)
      ASSERT_EQ(s.get(name_of(i)), value);
  }
  ASSERT_GT(s.store.stats().evicted, kKeys);
  EXPECT_EQ(s.store.stats().records_on_disk, 0U) << "their turn comes";
  s.warm_up.start();
  for (std::uint64_t i = 0; i < kKeys; ++i)  // beside it
    ASSERT_EQ(s.get(name_of(kKeys - 1 - i)), value);
  s.await_loaded();
  const StoreStats stats = s.store.stats();
  // One that is evicted in the very moment of its turn may have two.
  EXPECT_GE(stats.records + stats.records_on_disk, kKeys);
  EXPECT_LE(stats.records + stats.records_on_disk, kKeys + 10);
  for (std::uint64_t i = 0; i < kKeys; ++i)
    ASSERT_EQ(s.get(name_of(i)), value) << i;
}

TEST(DiskFetcher, WithoutRoomInMemoryARecordIsReadAndRemovedOnDisk) {
  MapDisk disk;
  disk.preload("small", old_record(1, "of old"));
  disk.preload("removed", old_record(2, "of old"));
  disk.preload("longer than an extent", old_record(3, std::string(3 << 20, 'x')));
  StoreOnDisk s(disk);
  const std::string value(4000, 'v');
  const auto lives = [&](const std::string& key) {
    return s.run(key, [&](DiskLookup look) {  // what expires is never evicted
      return s.store.put(as_bytes(key), as_bytes(value), {.ttl_ms = 3'600'000, .look = look});
    });
  };
  std::uint64_t keys = 0;
  while (lives(name_of(keys)))
    ++keys;
  EXPECT_EQ(s.get("small"), "of old");
  EXPECT_EQ(s.put("small", value).error().code, Code::kOutOfMemory);
  EXPECT_TRUE(s.remove("removed"));
  EXPECT_EQ(s.get("removed"), std::nullopt);
  std::vector<std::byte> buffer(kMaxInlineBytes);
  const auto get = [&](DiskLookup look) {
    return s.store.get(as_bytes("longer than an extent"), buffer, look);
  };
  EXPECT_EQ(s.run("longer than an extent", get).error().code, Code::kOutOfMemory)
      << "kTooLarge would ask for a larger buffer";
  EXPECT_TRUE(s.remove("longer than an extent"));
  s.await_synced();
  EXPECT_FALSE(disk.records().contains("longer than an extent"));
  EXPECT_FALSE(disk.records().contains("removed"));
  EXPECT_TRUE(disk.records().contains("small"));
}

// A start with more than memory holds: the rest is known to the index.
TEST(DiskFetcher, AWarmUpFillsMemoryAndNotesTheRest) {
  MapDisk disk;
  constexpr std::uint64_t kKeys = 8000;
  for (std::uint64_t i = 0; i < kKeys; ++i)
    disk.preload(name_of(i), old_record(i, std::string(5000, 'v')));
  StoreOnDisk s(disk);
  s.warm_up.start();
  s.await_loaded();
  const StoreStats stats = s.store.stats();
  EXPECT_EQ(stats.records + stats.records_on_disk, kKeys);
  EXPECT_GT(stats.records, 1000U);
  EXPECT_EQ(stats.evicted, 0U) << "nothing goes for what nobody asked for";
  EXPECT_EQ(s.get("unknown"), std::nullopt);
  EXPECT_EQ(s.store.stats().promoted, 0U);
  for (std::uint64_t i = 0; i < kKeys; i += 7)
    ASSERT_EQ(s.get(name_of(i))->size(), 5000U);
}

// ---- moments that chance hardly ever brings about

// Blocks every caller until it is opened, and tells whether somebody is there.
class Gate {
 public:
  void pass() {
    reached_ = true;
    reached_.notify_all();
    open_.wait(false);
  }
  void await_somebody() { reached_.wait(false); }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> reached_{false};
  std::atomic<bool> open_{false};
};

// A batch is read while the one before it is taken: what changes meanwhile must not come back.
TEST(DiskFetcher, WhatChangesAfterABatchWasReadAheadIsNotBroughtBack) {
  MapDisk disk;
  for (std::uint64_t i = 0; i < 3000; ++i)
    disk.preload(name_of(i), old_record(i, "old"));
  StoreOnDisk s(disk);
  Gate gate;
  std::atomic<int> walks{0};
  disk.after_walk = [&](std::string_view) {
    if (++walks == 2) gate.pass();
  };
  s.warm_up.start();
  gate.await_somebody();
  EXPECT_TRUE(s.remove(name_of(1500)));
  EXPECT_TRUE(s.put(name_of(1501), "new"));
  EXPECT_TRUE(s.remove(name_of(1502)));
  EXPECT_TRUE(s.put(name_of(1502), "new"));
  gate.open();
  s.await_loaded();
  EXPECT_EQ(s.get(name_of(1500)), std::nullopt);
  EXPECT_EQ(s.get(name_of(1501)), "new");
  EXPECT_EQ(s.get(name_of(1502)), "new");
  EXPECT_EQ(s.store.stats().records, 2999U);
  EXPECT_GE(walks, 4) << "the batch was read again";
}

// A database that loses writes while a batch is read ahead: the batch is read again.
TEST(DiskFetcher, ABatchThatWasReadAcrossALossIsReadAgain) {
  MapDisk disk;
  for (std::uint64_t i = 0; i < 3000; ++i)
    disk.preload(name_of(i), old_record(i, "old"));
  StoreOnDisk s(disk, kMinMemoryBytes, 0, 60'000);  // no sync by itself
  std::atomic<int> walks{0};
  std::atomic<bool> lost{false};
  std::function<void()> lose = [&] {
    disk.write_failures = 1;
    EXPECT_TRUE(s.put("unrelated", "v"));
    while (!lost)
      std::this_thread::yield();
  };
  disk.after_loss = [&] { lost = true; };
  Gate gate;
  disk.before_walk = [&](std::string_view) {
    if (++walks == 2) gate.pass();
  };
  EXPECT_TRUE(s.put(name_of(1500), "new"));
  s.await_written();
  s.warm_up.start();
  gate.await_somebody();
  lose();
  gate.open();
  s.await_loaded();
  EXPECT_EQ(s.get(name_of(1500)), "new");
  EXPECT_EQ(s.store.stats().records, 3001U);
  EXPECT_GE(walks, 4) << "the batch was read again";
}

void fill_memory(StoreOnDisk& s) {
  const std::string value(60'000, 'f');
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_TRUE(s.put(fmt::format("filler{}", i), value));
}

// A record is written but not synced; the disk fails and is reopened without it. A batch that is
// read now does not have the record. Once it is written again, and synced, it could leave memory.
TEST(DiskFetcher, NoBatchIsReadAheadOfALoss) {
  MapDisk disk;
  for (std::uint64_t i = 0; i < 3000; ++i)
    disk.preload(name_of(i), old_record(i, "old"));
  StoreOnDisk s(disk, kMinMemoryBytes, 0, 3'600'000);
  // The first key of the third batch: no other record of the batch makes the loading read it again.
  const std::string key = name_of(2 * ReadAhead::kMostRecords - 1) + "x";
  ASSERT_TRUE(s.put(key, "new"));
  s.await_written();
  Gate third_mark;
  Gate third_read;
  Gate lost;
  std::thread::id warm_up{};
  int marks = 0;
  disk.before_count = [&] {
    static std::mutex mutex;
    {
      const std::scoped_lock lock(mutex);
      if (warm_up == std::thread::id()) warm_up = std::this_thread::get_id();
      if (warm_up != std::this_thread::get_id() || ++marks != 3) return;
    }
    third_mark.pass();
  };
  std::atomic<int> walks{0};
  disk.after_walk = [&](std::string_view) {
    if (++walks == 3) third_read.pass();
  };
  disk.after_loss = [&] { lost.pass(); };
  s.warm_up.start();
  third_mark.await_somebody();  // the second batch was read, and the third is about to be
  disk.write_failures = 1;
  EXPECT_TRUE(s.put("other", "v"));
  lost.await_somebody();
  third_mark.open();
  third_read.await_somebody();
  lost.open();
  s.await_synced();
  fill_memory(s);
  third_read.open();
  s.await_loaded();
  EXPECT_EQ(s.get(key), "new");
}

// The record is read; then it comes to memory by another way, is changed, and evicted.
TEST(DiskFetcher, AReadFromBeforeAnEvictionIsNotTakenIn) {
  MapDisk disk;
  disk.preload("k", old_record(1, "old"));
  StoreOnDisk s(disk);
  Gate gate;
  std::atomic<bool> once{true};
  disk.after_read = [&](std::string_view key) {
    if (key == "k" && once.exchange(false)) gate.pass();
  };
  const auto load = s.loads.ask(as_bytes("k"));
  gate.await_somebody();
  ASSERT_TRUE(s.store.loader().load({.version = Version::of(3, 2),
                                     .key = as_bytes("k"),
                                     .value = as_bytes(std::string_view("old"))}));
  ASSERT_TRUE(s.put("k", "new"));
  s.await_synced();
  fill_memory(s);
  ASSERT_TRUE(s.store.disk().is_on_disk(as_bytes("k"))) << "evicted";
  gate.open();
  while (!load->done())
    std::this_thread::yield();
  EXPECT_EQ(s.get("k"), "new");
}

// A DELETE is written but not synced; the disk fails and is reopened without it; before it is
// written again, a load that began before reads the old record.
TEST(DiskFetcher, AReadOfADatabaseThatHasLostSomethingIsNotTakenIn) {
  MapDisk disk;
  disk.preload("k", old_record(1, "old"));
  StoreOnDisk s(disk, kMinMemoryBytes, 0, 3'600'000);
  ASSERT_TRUE(s.remove("k"));
  s.await_written();
  Gate loading;
  Gate lost;
  disk.before_read = [&](std::string_view key) {
    if (key == "k") loading.pass();
  };
  disk.after_loss = [&] { lost.pass(); };
  const auto load = s.loads.ask(as_bytes("k"));
  loading.await_somebody();
  disk.write_failures = 1;
  ASSERT_TRUE(s.put("other", "v"));
  lost.await_somebody();
  loading.open();
  // The read takes place now, and must be made again when the disk is well.
  while (disk.reads_of("k") < 2)
    std::this_thread::yield();
  lost.open();
  while (!load->done())
    std::this_thread::yield();
  EXPECT_EQ(s.get("k"), std::nullopt);
}

// ---- the attack

struct Attack {
  std::uint64_t operations = 0;
  std::uint64_t wrong = 0;
  std::uint64_t promoted = 0;
  std::uint64_t evicted = 0;
};

// Each thread has keys of its own and so knows what each of them must be. Until `enough`, and at
// least `operations` a thread.
Attack attack(MapDisk& disk, int operations, int failures_in, std::uint64_t load_rate = 0) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kHot = 50;
  constexpr std::uint64_t kKeysEach = 1500;  // 4500 keys of 12 KB, half of them there, in 16 MiB
  const auto value_of = [](std::uint64_t key, std::uint64_t change) {
    return fmt::format("{}:{}:", key, change) +
           std::string((key * 31 + change * 977) % 24'000, 'v');
  };
  disk.yields = true;
  for (std::uint64_t key = 0; key < kThreads * kKeysEach; ++key)
    if (key % 3 != 0) disk.preload(name_of(key), old_record(key, value_of(key, 0)));
  StoreOnDisk s(disk, kMinMemoryBytes, load_rate);
  s.warm_up.start();
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread + 1);
      std::vector<std::optional<std::string>> expected(kKeysEach);
      for (std::uint64_t i = 0; i < kKeysEach; ++i) {
        const std::uint64_t key = i * kThreads + thread;
        if (key % 3 != 0) expected[i] = value_of(key, 0);
      }
      for (int n = 1; n <= operations && wrong == 0; ++n) {
        // Half of it on a few keys, so that loads meet changes of the same key.
        const std::uint64_t i = random() % (random() % 2 == 0 ? kHot : kKeysEach);
        const std::uint64_t key = i * kThreads + thread;
        const std::string name = name_of(key);
        if (failures_in != 0 && random() % static_cast<std::uint64_t>(failures_in) == 0) {
          disk.write_failures = 1;
        }
        switch (random() % 4) {
          case 0:
            expected[i] = value_of(key, static_cast<std::uint64_t>(n));
            while (!s.put(name, *expected[i]))
              std::this_thread::yield();  // the disk has failed
            break;
          case 1: {
            auto removed = s.remove(name);
            while (!removed && removed.error().code == Code::kIo)
              removed = s.remove(name);
            wrong += removed.has_value() != expected[i].has_value() ? 1 : 0;
            expected[i].reset();
            break;
          }
          default:
            wrong += s.get(name) != expected[i] ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const StoreStats stats = s.store.stats();
  return {.operations = static_cast<std::uint64_t>(operations) * kThreads,
          .wrong = wrong,
          .promoted = stats.promoted,
          .evicted = stats.evicted};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOperations = 3'000;
#else
constexpr int kOperations = 30'000;
#endif

TEST(DiskFetcher, NothingStaleWhateverMeetsWhat) {
  MapDisk disk;
  const Attack result = attack(disk, kOperations, 0);
  EXPECT_EQ(result.wrong, 0U);
  EXPECT_GT(result.promoted, 100U);
  EXPECT_GT(result.evicted, 100U);
  std::printf("%lu operations: %lu loaded, %lu evicted\n", result.operations, result.promoted,
              result.evicted);
}

TEST(DiskFetcher, NothingStaleOnADiskThatLosesAndRecovers) {
  MapDisk disk;
  EXPECT_EQ(attack(disk, kOperations / 15, 400, std::uint64_t{1} << 20).wrong, 0U);
}

// The attack must detect this fault.
TEST(DiskFetcher, TheAttackSeesADiskThatIsBehindItsMarks) {
  MapDisk disk;
  disk.batches_late = 200;
  EXPECT_NE(attack(disk, 30'000, 0).wrong, 0U);
}

}  // namespace
}  // namespace rkv::server
