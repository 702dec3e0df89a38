// The simulated etcd keeps the promises of a ConfigurationStore, and the checker of its histories
// notices each that is broken.
#include "tests/sim/etcd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace rkv::sim {
namespace {

using rdma::sim::Scheduler;
using server::GroupConfiguration;

constexpr std::size_t kHosts = 3;

struct Operation {
  enum class Kind { kRead, kStored, kConflict, kNotStored, kUnknown } kind;
  Nanos called;
  Nanos returned;
  std::int64_t compared;  // replace()
  std::int64_t revision;  // of a read, and of what was stored
  std::uint64_t number;   // of the configuration: each replace() has its own
};
using History = std::vector<Operation>;
using Kind = Operation::Kind;

// A broken promise of STORED-1 to STORED-3, or nothing.
std::string broken_promise(const History& history) {
  std::map<std::uint64_t, const Operation*> writes;
  std::map<std::int64_t, std::uint64_t> numbers{{0, 0}};  // by revision, as far as it is known
  std::map<std::int64_t, std::uint64_t> successors;       // by compared revision
  for (const Operation& each : history)
    if (each.kind != Kind::kRead) writes[each.number] = &each;
  for (const Operation& each : history) {
    if (each.kind != Kind::kRead && each.kind != Kind::kStored) continue;
    if (!numbers.try_emplace(each.revision, each.number).second &&
        numbers[each.revision] != each.number)
      return fmt::format("revision {} has two configurations", each.revision);
    if (each.number == 0) continue;
    const Operation& write = *writes.at(each.number);
    if (write.kind == Kind::kConflict || write.kind == Kind::kNotStored)
      return fmt::format("configuration {} was said not to be stored", each.number);
    if (write.kind == Kind::kStored && write.revision != each.revision)
      return fmt::format("configuration {} has two revisions", each.number);
    if (each.revision <= write.compared) return "a revision fell";
    if (write.called > each.returned) return "a read shows the future";
    if (!successors.try_emplace(write.compared, each.number).second &&
        successors[write.compared] != each.number)
      return fmt::format("revision {} was replaced twice", write.compared);
  }
  for (const Operation& first : history)
    for (const Operation& second : history) {
      const bool shows = second.kind == Kind::kRead || second.kind == Kind::kStored;
      const bool known = first.kind == Kind::kRead || first.kind == Kind::kStored;
      if (!shows || !known || first.returned >= second.called) continue;
      if (second.revision < first.revision) return "a read shows the past";
    }
  return {};
}

struct Outcome {
  History history;
  std::uint64_t trace = 0;
};

// Every host reads and replaces, and waits for changes of others; links are cut and mended.
Outcome run(std::uint64_t seed, const EtcdFaults& faults) {
  Scheduler scheduler(seed);
  Etcd etcd(scheduler);
  etcd.faults() = faults;
  Outcome outcome;
  std::uint64_t numbers = 0;
  std::size_t busy = kHosts;
  for (std::size_t host = 0; host < kHosts; ++host)
    scheduler.spawn(fmt::format("host {}", host), [&, host] {
      const auto store = etcd.connect(host);
      std::int64_t revision = 0;
      for (int i = 0; i < 12; ++i) {
        const Nanos called = scheduler.now();
        const Deadline deadline(scheduler, called + 20 * kNanosPerMs);
        if (scheduler.chance(3)) {
          GroupConfiguration next;
          next.number = ++numbers;
          const auto stored = store->replace(revision, next, deadline);
          Kind kind = Kind::kStored;
          if (!stored)
            kind = stored.error().code == Code::kConflict              ? Kind::kConflict
                   : stored.error().write == WriteOutcome::kNotApplied ? Kind::kNotStored
                                                                       : Kind::kUnknown;
          outcome.history.push_back({.kind = kind,
                                     .called = called,
                                     .returned = scheduler.now(),
                                     .compared = revision,
                                     .revision = stored.value_or(0),
                                     .number = next.number});
          if (stored) revision = *stored;
        } else {
          const bool waits = scheduler.chance(3);
          const auto shown =
              waits ? store->wait_for_other(revision, deadline) : store->read(deadline);
          if (!shown) continue;
          if (waits) {
            EXPECT_NE(shown->revision, revision);
          }
          revision = shown->revision;
          outcome.history.push_back(
              {.kind = Kind::kRead,
               .called = called,
               .returned = scheduler.now(),
               .compared = 0,
               .revision = revision,
               .number = shown->configuration ? shown->configuration->number : 0});
        }
        scheduler.sleep(scheduler.up_to(5 * kNanosPerMs));
      }
      --busy;
    });
  scheduler.spawn("links", [&] {
    while (busy != 0) {
      const std::size_t host = scheduler.random().below(kHosts);
      etcd.set_reachable(host, false);
      scheduler.sleep(scheduler.up_to(30 * kNanosPerMs));
      etcd.set_reachable(host, true);
      scheduler.sleep(scheduler.up_to(60 * kNanosPerMs));
    }
  });
  EXPECT_EQ(scheduler.run(1'000'000, 3'600 * kNanosPerSecond), std::nullopt) << seed;
  outcome.trace = scheduler.trace_hash();
  return outcome;
}

const EtcdFaults kHarsh{
    .way = 2 * kNanosPerMs, .long_way = 200 * kNanosPerMs, .long_in = 5, .lost_in = 12};

bool is_noticed(const EtcdFaults& faults) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed)
    if (!broken_promise(run(seed, faults).history).empty()) return true;
  return false;
}

TEST(SimulatedEtcd, KeepsItsPromisesWithLostAndLateMessages) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed)
    ASSERT_EQ(broken_promise(run(seed, kHarsh).history), "") << "seed " << seed;
}

TEST(SimulatedEtcd, AppliesTransactionsAfterTheirCallersGaveUp) {
  bool late = false, never = false;
  for (std::uint64_t seed = 1; seed <= 300 && !(late && never); ++seed) {
    const History history = run(seed, kHarsh).history;
    for (const Operation& write : history) {
      if (write.kind != Kind::kUnknown) continue;
      bool old_read = false, shown = false;
      for (const Operation& read : history) {
        if (read.kind != Kind::kRead) continue;
        old_read |= read.called > write.returned && read.revision == write.compared;
        shown |= read.number == write.number && old_read;
      }
      late |= shown;
      never |= !shown;
    }
  }
  EXPECT_TRUE(late) << "a read showed the old configuration, and a later one the new";
  EXPECT_TRUE(never);
}

TEST(SimulatedEtcd, IsAFunctionOfItsSeed) {
  EXPECT_EQ(run(7, kHarsh).trace, run(7, kHarsh).trace);
  EXPECT_NE(run(7, kHarsh).trace, run(8, kHarsh).trace);
}

TEST(SimulatedEtcd, AnswersNobodyWhoIsCutOff) {
  Scheduler scheduler(1);
  Etcd etcd(scheduler);
  etcd.set_reachable(1, false);
  scheduler.spawn("host 1", [&] {
    const auto store = etcd.connect(1);
    for (int i = 0; i < 20; ++i)
      EXPECT_FALSE(store->replace(0, {}, Deadline(scheduler, scheduler.now() + kNanosPerSecond)));
    EXPECT_EQ(etcd.stored().revision, 0);
    etcd.set_reachable(1, true);
    EXPECT_TRUE(store->replace(0, {}, Deadline(scheduler, scheduler.now() + kNanosPerSecond)));
  });
  EXPECT_EQ(scheduler.run(100'000, 3'600 * kNanosPerSecond), std::nullopt);
}

TEST(SimulatedEtcd, LosesWhatIsOnItsWayWhenALinkIsCut) {
  Scheduler scheduler(1);
  Etcd etcd(scheduler);
  etcd.faults().way = kNanosPerSecond;
  for (std::size_t host = 1; host <= 20; ++host)
    scheduler.spawn(fmt::format("host {}", host), [&, host] {
      const auto stored =
          etcd.connect(host)->replace(0, {}, Deadline(scheduler, kNanosPerSecond * 60));
      ASSERT_FALSE(stored);
      EXPECT_EQ(stored.error().write, WriteOutcome::kMayHaveHappened);
    });
  scheduler.spawn("links", [&] {
    scheduler.sleep(kNanosPerMs / 10);  // all requests are sent, and none has arrived
    for (std::size_t host = 1; host <= 20; ++host)
      etcd.set_reachable(host, false);
    EXPECT_EQ(etcd.stored().revision, 0);
  });
  EXPECT_EQ(scheduler.run(100'000, 3'600 * kNanosPerSecond), std::nullopt);
  EXPECT_EQ(etcd.stored().revision, 0);
}

TEST(SimulatedEtcd, WakesAWaiterAtAChangeByAnother) {
  Scheduler scheduler(1);
  Etcd etcd(scheduler);
  Nanos changed = 0;
  scheduler.spawn("waiter", [&] {
    const auto shown =
        etcd.connect(1)->wait_for_other(0, Deadline(scheduler, kNanosPerSecond * 60));
    ASSERT_TRUE(shown);
    EXPECT_EQ(shown->revision, etcd.stored().revision);
    EXPECT_LT(scheduler.now() - changed, 10 * kNanosPerMs);
  });
  scheduler.spawn("writer", [&] {
    scheduler.sleep(kNanosPerSecond);
    EXPECT_TRUE(etcd.connect(2)->replace(0, {}, Deadline(scheduler, kNanosPerSecond * 60)));
    changed = scheduler.now();
  });
  EXPECT_EQ(scheduler.run(100'000, 3'600 * kNanosPerSecond), std::nullopt);
}

TEST(SimulatedEtcd, AStoreWithoutComparisonIsNoticed) {
  EtcdFaults faults = kHarsh;
  faults.compares_nothing = true;
  EXPECT_TRUE(is_noticed(faults));
}

TEST(SimulatedEtcd, AStaleReadIsNoticed) {
  EtcdFaults faults = kHarsh;
  faults.stale_in = 10;
  EXPECT_TRUE(is_noticed(faults));
}

TEST(SimulatedEtcd, AStoredConfigurationThatIsDeniedIsNoticed) {
  EtcdFaults faults = kHarsh;
  faults.denies_in = 2;
  EXPECT_TRUE(is_noticed(faults));
}

}  // namespace
}  // namespace rkv::sim
