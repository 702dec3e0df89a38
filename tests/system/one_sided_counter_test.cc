// One-sided counters as programs use them: by atomics of clients, beside requests, through ends,
// stops and crashes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "common/check.h"
#include "common/random.h"
#include "tests/system/cell_ledger.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

std::int64_t number(Client& client, std::string_view key) {
  const auto counter = client.get_counter(key);
  EXPECT_TRUE(counter) << to_string(counter.error());
  return counter ? counter->number : -1;
}

TEST(OneSidedCounter, IsChangedByAtomicsAndRequestsAlike) {
  Server server;
  Client client = server.client();
  ASSERT_TRUE(client.incr("n", 5));
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter) << to_string(counter.error());
  EXPECT_TRUE(counter->is_one_sided());
  EXPECT_EQ(client.incr(*counter, 2)->number, 7);
  EXPECT_EQ(client.decr(*counter, 10)->number, -3);
  EXPECT_EQ(client.incr("n")->number, -2);
  EXPECT_EQ(client.get_counter(*counter)->number, -2);
  EXPECT_EQ(number(client, "n"), -2);
  const auto swapped = client.counter_cas(*counter, -2, 40);
  ASSERT_TRUE(swapped && swapped->done);
  const auto not_swapped = client.counter_cas(*counter, -2, 41);
  ASSERT_TRUE(not_swapped && !not_swapped->done);
  EXPECT_EQ(not_swapped->number, 40);
  EXPECT_EQ(client.counter_cas("n", 40, 42)->number, 42);
  const auto got = client.get("n");
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->is_counter);
  EXPECT_EQ(got->value.size(), 8U);
  EXPECT_GE(client.stats().atomics, 5U);
  EXPECT_EQ(server_stat(client, "one_sided_counters"), 1U);
}

TEST(OneSidedCounter, WrongUsesGetATypedAnswer) {
  Server server;
  Client client = server.client();
  ASSERT_TRUE(client.put("plain", "value"));
  EXPECT_EQ(client.open_counter("plain").error().code, Code::kWrongType);
  EXPECT_EQ(client.open_counter("").error().code, Code::kInvalidArgument);
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter);
  EXPECT_EQ(client.put("n", "value").error().code, Code::kWrongType);
  EXPECT_EQ(client.incr(*counter, INT64_MAX)->number, INT64_MAX) << "by a request";
  EXPECT_EQ(client.incr(*counter).error().code, Code::kOutOfRange);
  EXPECT_EQ(client.decr(*counter, INT64_MIN).error().code, Code::kOutOfRange);
  EXPECT_EQ(number(client, "n"), INT64_MAX);
  ASSERT_TRUE(client.remove("n"));
  EXPECT_EQ(client.get_counter(*counter).error().code, Code::kNotFound);
  EXPECT_EQ(client.counter_cas(*counter, 0, 1).error().code, Code::kNotFound);
  EXPECT_EQ(client.incr(*counter)->number, 1) << "an absent counter counts from 0";
  ASSERT_TRUE(client.remove("n"));
  ASSERT_TRUE(client.put("n", "value"));
  EXPECT_EQ(client.incr(*counter).error().code, Code::kWrongType);
}

TEST(OneSidedCounter, WithoutCellsCountersAreCountedByRequests) {
  Server server({"--memory", "32MiB", "--counter-cells", "0"});
  Client client = server.client();
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter) << to_string(counter.error());
  EXPECT_FALSE(counter->is_one_sided());
  EXPECT_EQ(client.incr(*counter, 3)->number, 3);
  EXPECT_EQ(client.get_counter(*counter)->number, 3);
  EXPECT_TRUE(client.counter_cas(*counter, 3, 4)->done);
  EXPECT_EQ(client.stats().atomics, 0U);
}

// Three clients by atomics and one by requests, while the counter is taken out of its cell again
// and again (as by any summand too large for one).
TEST(OneSidedCounter, NoAcknowledgedAdditionIsLostWhenItLeavesItsCell) {
  constexpr std::uint64_t kTimes = 50;
  Server server;
  std::atomic<bool> over{false};
  std::atomic<std::int64_t> acknowledged{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Client client = server.client();
      auto counter = client.open_counter("n");
      ASSERT_TRUE(counter);
      for (; !over.load(); ++acknowledged)
        ASSERT_TRUE(client.incr(*counter));
    });
  }
  threads.emplace_back([&] {
    Client client = server.client();
    for (; !over.load(); ++acknowledged)
      ASSERT_TRUE(client.incr("n"));
  });
  Client client = server.client();
  const SteadyClock clock;
  const auto somebody_adds = [&] {
    const std::int64_t since = acknowledged.load();
    const Deadline patience = Deadline::after_ms(clock, 60'000);
    while (acknowledged.load() == since && !patience.passed())
      std::this_thread::yield();
    return acknowledged.load() != since;
  };
  for (std::uint64_t times = 1; times <= kTimes; ++times) {
    if (!somebody_adds()) {
      ADD_FAILURE() << "the threads do not add";
      break;
    }
    for (;;) {
      const auto counter = client.open_counter("n");
      ASSERT_TRUE(counter) << to_string(counter.error());
      if (counter->is_one_sided()) break;
    }
    constexpr std::int64_t kLarge = std::int64_t{1} << 40;
    ASSERT_TRUE(client.incr("n", kLarge));
    ASSERT_TRUE(client.decr("n", kLarge));
  }
  EXPECT_GE(server_stat(client, "counter_cells_taken"), kTimes);
  over = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(number(client, "n"), acknowledged.load());
}

TEST(OneSidedCounter, ARefusalIsNoReasonToTakeItBack) {
  Server server;
  Client client = server.client();
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter);
  ASSERT_TRUE(client.incr(*counter, 5));
  const auto by_key = client.counter_cas("n", INT64_MAX, 0);
  ASSERT_TRUE(by_key && !by_key->done);
  EXPECT_EQ(by_key->number, 5);
  const auto by_handle = client.counter_cas(*counter, 4, INT64_MAX);
  ASSERT_TRUE(by_handle && !by_handle->done);
  EXPECT_EQ(client.incr("n", INT64_MAX).error().code, Code::kOutOfRange);
  EXPECT_EQ(server_stat(client, "one_sided_counters"), 1U);
  EXPECT_EQ(client.incr(*counter)->number, 6);
  EXPECT_EQ(server_stat(client, "counter_cells_taken"), 1U);
}

TEST(OneSidedCounter, ThousandsOfAdditionsArePipelined) {
  Server server;
  Client client = server.client();
  std::vector<OneSidedCounter> counters;
  for (int i = 0; i < 100; ++i)
    counters.push_back(*client.open_counter(fmt::format("n{}", i)));
  std::vector<CounterAddition> additions;
  for (int i = 0; i < 5000; ++i)
    additions.push_back({.counter = &counters[static_cast<std::size_t>(i % 100)], .summand = i});
  additions[77].summand = std::int64_t{1} << 40;  // by a request
  const std::uint64_t requests = client.stats().two_sided_requests;
  const auto results = client.multi_incr(additions);
  ASSERT_EQ(results.size(), additions.size());
  std::vector<std::int64_t> sums(100);
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i]) << i << ": " << to_string(results[i].error());
    sums[i % 100] += additions[i].summand;
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(number(client, fmt::format("n{}", i)), sums[i]);
  EXPECT_LE(client.stats().two_sided_requests - requests, 100U + 1U + 5000U / 100U * 2U);
  EXPECT_TRUE(client.multi_incr({}).empty());
}

std::vector<OneSidedCounter> opened(Client& client, std::size_t count) {
  std::vector<OneSidedCounter> counters;
  while (counters.size() < count) {
    auto counter = client.open_counter(fmt::format("n{}", counters.size()));
    RKV_CHECK(counter, "the server opens counters");
    counters.push_back(std::move(*counter));
  }
  return counters;
}

// The i-th adds i to a counter; the counters take turns.
std::vector<CounterAddition> in_turn(std::vector<OneSidedCounter>& counters, std::size_t count) {
  std::vector<CounterAddition> additions;
  for (std::size_t i = 0; i < count; ++i)
    additions.push_back(
        {.counter = &counters[i % counters.size()], .summand = static_cast<std::int64_t>(i)});
  return additions;
}

// Additions that travel in packs (8 in each over verbs) give the numbers of additions one by one.
TEST(OneSidedCounter, WithoutCellsManyAdditionsTakeFewRequests) {
  Server server({"--memory", "32MiB", "--counter-cells", "0"});
  Client client = server.client();
  auto counters = opened(client, 64);
  const auto additions = in_turn(counters, 64);
  for (std::int64_t round = 1; round <= 3; ++round) {
    const std::uint64_t requests = client.stats().two_sided_requests;
    const auto results = client.multi_incr(additions);
    EXPECT_LE(client.stats().two_sided_requests - requests, 64U / 8U);
    for (std::size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(results[i]) << i << ": " << to_string(results[i].error());
      EXPECT_EQ(results[i]->number, round * additions[i].summand) << i;
    }
  }
  EXPECT_EQ(client.stats().atomics, 0U);
}

TEST(OneSidedCounter, AdditionsInAndOutOfCellsGoTogether) {
  Server server({"--memory", "32MiB", "--counter-cells", "4"});
  Client client = server.client();
  auto counters = opened(client, 10);
  ASSERT_EQ(std::ranges::count_if(counters, &OneSidedCounter::is_one_sided), 4);
  auto additions = in_turn(counters, 1000);
  additions[500].counter = &counters[9];
  additions[500].summand = std::int64_t{1} << 50;
  const auto results = client.multi_incr(additions);
  std::vector<std::int64_t> sums(counters.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i]) << i << ": " << to_string(results[i].error());
    std::int64_t& sum = sums[static_cast<std::size_t>(additions[i].counter - counters.data())];
    EXPECT_EQ(results[i]->number, sum += additions[i].summand) << i;
  }
  for (std::size_t i = 0; i < counters.size(); ++i)
    EXPECT_EQ(client.get_counter(counters[i])->number, sums[i]);
  EXPECT_EQ(client.stats().atomics, 399U + 4U) << "one was moved";
}

// A kill makes the fate of one pack unknown. Every other addition was made once, or never will be.
TEST(OneSidedCounter, AKillLeavesTheAdditionsOfOnePackUnknown) {
  constexpr std::size_t kCounters = 64;
  constexpr int kKills = 3;
  const ScratchDirectory directory;
  Server server({"--memory", "32MiB", "--data-dir", directory.path("data"), "--durability", "wal",
                 "--counter-cells", "0"});
  std::atomic<std::uint64_t> calls{0};
  std::atomic<bool> over{false};
  std::vector<std::int64_t> made(kCounters);
  std::vector<std::int64_t> unknown(kCounters);
  std::thread adder([&] {
    Client client = server.client({.timeout = std::chrono::milliseconds(60'000)});
    auto counters = opened(client, kCounters);
    auto additions = in_turn(counters, kCounters);
    for (CounterAddition& one : additions)
      one.summand = 1;
    for (; !over.load(); ++calls) {
      std::size_t in_doubt = 0;
      const auto results = client.multi_incr(additions);
      for (std::size_t i = 0; i < kCounters; ++i) {
        const bool doubted =
            !results[i] && results[i].error().write == WriteOutcome::kMayHaveHappened;
        made[i] += results[i] ? 1 : 0;
        unknown[i] += doubted ? 1 : 0;
        in_doubt += doubted ? 1U : 0U;
      }
      EXPECT_LE(in_doubt, 32U);
    }
  });
  for (int kills = 0; kills < kKills; ++kills) {
    const std::uint64_t before = calls.load();
    while (calls.load() < before + 20)
      std::this_thread::yield();
    server.kill();
    server.start();
  }
  const std::uint64_t before = calls.load();
  while (calls.load() < before + 2)
    std::this_thread::yield();
  over = true;
  adder.join();
  Client client = server.client();
  for (std::size_t i = 0; i < kCounters; ++i) {
    const std::int64_t counted = number(client, fmt::format("n{}", i));
    EXPECT_GE(counted, made[i]) << "an answered addition is lost";
    EXPECT_LE(counted, made[i] + unknown[i]) << "an addition was made twice";
  }
}

// A client that is stopped in the middle of adding, while another ends its counter and makes
// others: whatever it does when it goes on, it can change nobody's counter. RKV_STOPPED_SECONDS
// says for how long at least, the first time; a minute is when a silent client may lose its place.
TEST(OneSidedCounter, AClientThatWasStoppedChangesNobodysCounter) {
  constexpr int kMade = 100;
  Server server;
  Client client = server.client();
  Process adder({RKV_KVCLIENT, "--server", server.address(), "incr", "--one-sided", "--count",
                 "1000000000", "n"});
  const auto counted = [&] {
    const auto counter = client.get_counter("n");
    return counter ? counter->number : 0;
  };
  for (int round = 0; round < 5; ++round) {
    const std::int64_t before = counted();
    while (counted() <= before) {
    }
    adder.signal(SIGSTOP);
    ASSERT_TRUE(client.remove("n"));
    std::vector<OneSidedCounter> made;
    for (int i = 0; i < kMade; ++i) {
      auto counter = client.open_counter(fmt::format("made-{}-{}", round, i));
      ASSERT_TRUE(counter);
      ASSERT_TRUE(counter->is_one_sided());
      ASSERT_EQ(client.incr(*counter, i)->number, i);
      made.push_back(std::move(*counter));
    }
    if (const char* const seconds = std::getenv("RKV_STOPPED_SECONDS"); seconds && round == 0)
      std::this_thread::sleep_for(std::chrono::seconds(std::strtoul(seconds, nullptr, 10)));
    adder.signal(SIGCONT);
    while (counted() < 10) {  // it has found the new counter of that name
    }
    for (int i = 0; i < kMade; ++i)
      ASSERT_EQ(client.get_counter(made[static_cast<std::size_t>(i)])->number, i);
  }
  adder.signal(SIGKILL);
}

TEST(OneSidedCounter, AnOrderlyStopAndAFlushSaveEverything) {
  const ScratchDirectory directory;
  Server server({"--memory", "32MiB", "--data-dir", directory.path("data")});
  {
    Client client = server.client();
    auto flushed = client.open_counter("flushed");
    auto stopped = client.open_counter("stopped");
    ASSERT_TRUE(flushed && stopped);
    for (int i = 0; i < 1000; ++i)
      ASSERT_TRUE(client.incr(*flushed));
    ASSERT_TRUE(client.flush());
    server.kill();
    server.start();
    EXPECT_EQ(client.get_counter(*flushed)->number, 1000) << "reopened by itself";
    EXPECT_TRUE(flushed->is_one_sided());
    for (int i = 0; i < 777; ++i)
      ASSERT_TRUE(client.incr(*stopped));
    EXPECT_EQ(server.stop(), 0);
  }
  server.start();
  Client client = server.client();
  EXPECT_EQ(number(client, "flushed"), 1000);
  EXPECT_EQ(number(client, "stopped"), 777);
}

// A crash may take back changes of the last moments, and nothing else. The number is one that the
// counter had at or after the last flush.
TEST(OneSidedCounter, ACrashLosesTheLastMomentsAtMost) {
  const ScratchDirectory directory;
  Server server({"--memory", "32MiB", "--data-dir", directory.path("data")});
  std::int64_t durable = 0;
  for (int round = 0; round < 3; ++round) {
    Client client = server.client();
    auto counter = client.open_counter("n");
    ASSERT_TRUE(counter);
    const auto found = client.get_counter(*counter);
    ASSERT_TRUE(found);
    EXPECT_GE(found->number, durable) << "a flushed change is lost";
    std::int64_t last = found->number;
    for (int i = 0; i < 300; ++i) {
      last = client.incr(*counter)->number;
      if (i == 150) {
        ASSERT_TRUE(client.flush());
        durable = last;
      }
    }
    server.kill();
    server.start();
    Client after = server.client();
    const std::int64_t kept = number(after, "n");
    EXPECT_GE(kept, durable);
    EXPECT_LE(kept, last) << "counted what nobody added";
  }
}

// Adds to the counter "n" without pause until stopped, and notes when each was answered.
void add_and_note(Client& client, CellLedger& ledger, const std::atomic<bool>& over) {
  const SteadyClock clock;
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter) << to_string(counter.error());
  ASSERT_TRUE(counter->is_one_sided());
  while (!over.load(std::memory_order_relaxed)) {
    ledger.begin();
    const auto added = client.incr(*counter, 1);
    if (added) {
      ledger.done(added->number, clock.now());
    } else if (added.error().write == WriteOutcome::kNotApplied) {
      ledger.refused();
    }
  }
}

// The stated bound: what was answered longer ago than a tenth of a second, and the time to the log,
// is there. That time is measured on another server, so that nothing else fills or empties this
// one's log. Killed when there is more than that to lose, anywhere between two sweeps.
TEST(OneSidedCounter, ACrashLosesTheLastTenthOfASecondAtMost) {
  constexpr int kRounds = 3;
  const ScratchDirectory directory;
  Server server({"--memory", "32MiB", "--data-dir", directory.path("data")});
  Server other({"--memory", "32MiB", "--data-dir", directory.path("other")});
  LogWitness witness(other.client());
  CellLedger ledger;
  const SteadyClock clock;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    std::atomic<bool> over{false};
    std::thread watcher([&] { witness.run(over); });
    Client adds = server.client();
    std::thread adder([&] { add_and_note(adds, ledger, over); });
    const Nanos began =
        clock.now() + static_cast<Nanos>(random_from_kernel() % LogWitness::kStated);
    Nanos killed = 0;
    Nanos bound = 0;
    do {
      killed = clock.now();
      bound = witness.bound(killed);
      std::this_thread::yield();
    } while (killed - began <= 2 * bound);
    server.kill();
    over = true;
    server.start();  // the last addition waits for it
    adder.join();
    watcher.join();
    Client after = server.client();
    const std::int64_t kept = number(after, "n");
    const Nanos lost = ledger.lost(kept, killed);
    fmt::print("lost what was added in the last {} ms, {} ms are allowed; kept {}\n",
               lost / kNanosPerMs, bound / kNanosPerMs, kept);
    EXPECT_TRUE(ledger.existed(kept)) << kept << ", not " << ledger.describe();
    EXPECT_LE(lost, bound);
    ledger.go_on_from(kept, killed);
  }
}

TEST(OneSidedCounter, ChangesByRequestsAreAsDurableAsAskedFor) {
  const ScratchDirectory directory;
  Server server({"--memory", "32MiB", "--data-dir", directory.path("data")});
  Client client = server.client();
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter);
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(client.incr(*counter));
  ASSERT_EQ(client.incr(*counter, 1, {.durability = Durability::kSync})->number, 11);
  const auto swap = client.counter_cas(*counter, 11, 20, {.durability = Durability::kWal});
  ASSERT_TRUE(swap && swap->done);
  EXPECT_TRUE(counter->is_one_sided());
  const auto got = client.get("n");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->version, 0U);
  EXPECT_EQ(got->durability, Durability::kMemory)
      << "the version covers the opening, not the number";
  EXPECT_EQ(client.get("n", {.at_least = Durability::kSync}).error().code, Code::kUnsupported);
  server.kill();
  server.start();
  EXPECT_EQ(number(client, "n"), 20);
}

// The sweep reaches the disk by itself.
TEST(OneSidedCounter, ChangesReachTheDiskWithoutAFlush) {
  const ScratchDirectory directory;
  Server server(
      {"--memory", "32MiB", "--data-dir", directory.path("data"), "--sync-interval", "10ms"});
  Client client = server.client();
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter);
  const std::uint64_t before = server_stat(client, "last_sequence");
  ASSERT_EQ(client.incr(*counter, 9)->number, 9);
  while (server_stat(client, "last_sequence") == before ||
         server_stat(client, "wal_mark") < server_stat(client, "last_sequence")) {
  }
  server.kill();
  server.start();
  EXPECT_EQ(number(client, "n"), 9);
}

TEST(OneSidedCounter, TheCommandLineHasThem) {
  Server server;
  const auto run = [&](std::vector<std::string> arguments) {
    return kvclient(server.address(), std::move(arguments));
  };
  EXPECT_EQ(run({"incr", "--one-sided", "n", "5"}).output, "5\n");
  EXPECT_EQ(run({"decr", "--one-sided", "--count", "3", "n"}).output, "2\n");
  EXPECT_EQ(run({"cas", "--one-sided", "n", "2", "7"}).output, "7\n");
  EXPECT_EQ(run({"cas", "--one-sided", "n", "2", "8"}).status, 5);
  EXPECT_EQ(run({"get", "n"}).output, "7\n");
  EXPECT_NE(run({"--output", "json", "incr", "--one-sided", "n"}).output.find("\"one_sided\":true"),
            std::string::npos);
  EXPECT_EQ(run({"incr", "--count", "0", "n"}).status, 2);
  EXPECT_EQ(run({"del", "n"}).status, 0);
}

}  // namespace
}  // namespace rkv::testing_support
