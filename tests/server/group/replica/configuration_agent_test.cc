// The threads between the replicator and etcd, with a store of the test's own.
#include "server/group/replica/configuration_agent.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/server/group/replica/fake_store.h"

namespace rkv::server {
namespace {

using test::FakeStore;

GroupConfiguration configuration(std::uint64_t number) {
  return {.group = 1,
          .number = number,
          .term = 1,
          .primary = "n1",
          .members = {{.name = "n1", .address = "h:1", .epoch = 7, .added_in = 1}}};
}

// Collects what the agent has read.
class Reads {
 public:
  void add(const ConfigurationStore::Stored& stored) {
    const MutexLock lock(mutex_);
    highest_ = std::max(highest_, stored.revision);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(std::int64_t revision) {
    const MutexLock lock(mutex_);
    while (highest_ < revision || count_ == 0)
      changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::int64_t highest_ RKV_GUARDED_BY(mutex_) = 0;
  int count_ RKV_GUARDED_BY(mutex_) = 0;
};

struct Fixture {
  const SteadyClock clock;
  FakeStore store;
  Reads reads;
  std::atomic<bool> gives_up = false;
  std::atomic<int> refused = 0;
  ConfigurationAgent agent{
      store, clock, [this](const ConfigurationStore::Stored& stored, Nanos) { reads.add(stored); },
      [this](const Membership::Change& change) {
        if (gives_up && agent.give_up(change)) ++refused;
      }};
};

TEST(ConfigurationAgent, ReadsAndStores) {
  Fixture test;
  test.agent.start();
  test.reads.wait_for(0);
  test.agent.want(Membership::Change{.revision = 0, .next = configuration(1)});
  test.reads.wait_for(1);
  // Somebody else's change.
  const SteadyClock clock;
  ASSERT_TRUE(test.store.replace(1, configuration(2), Deadline::after_ms(clock, 10)));
  test.agent.want(std::nullopt);
  test.reads.wait_for(2);
}

TEST(ConfigurationAgent, AChangeWhoseAnswerIsLostIsReadBack) {
  Fixture test;
  test.store.lose_next_answer();
  test.agent.start();
  test.agent.want(Membership::Change{.revision = 0, .next = configuration(1)});
  test.reads.wait_for(1);
}

TEST(ConfigurationAgent, AWantedChangeIsSentUntilTheStoreAnswers) {
  Fixture test;
  test.store.set_silent(true);
  test.agent.start();
  test.agent.want(Membership::Change{.revision = 0, .next = configuration(1)});
  while (test.store.replaced() < 3 || test.agent.unanswered_for(test.clock.now()) == 0)
    std::this_thread::yield();
  test.store.set_silent(false);
  test.reads.wait_for(1);
  while (test.agent.unanswered_for(test.clock.now()) != 0)
    std::this_thread::yield();
}

TEST(ConfigurationAgent, AStoreThatDoesNotAnswerIsNoticedWhileNothingIsToBeStored) {
  Fixture test;
  test.agent.start();
  test.reads.wait_for(0);
  EXPECT_EQ(test.agent.unanswered_for(test.clock.now()), 0);
  test.store.set_silent(true);
  while (test.agent.unanswered_for(test.clock.now()) == 0)
    std::this_thread::yield();
  test.store.set_silent(false);
  while (test.agent.unanswered_for(test.clock.now()) != 0)
    std::this_thread::yield();
}

TEST(ConfigurationAgent, AStoreThatHasLostItsDataIsNotWell) {
  Fixture test;
  test.store.restore({.configuration = configuration(7), .revision = 40});
  test.agent.start();
  test.reads.wait_for(40);
  EXPECT_EQ(test.agent.unanswered_for(test.clock.now()), 0);
  const auto wait_until_well = [&](bool is_well) {
    while ((test.agent.unanswered_for(test.clock.now()) == 0) != is_well)
      std::this_thread::yield();
  };
  test.store.lose_its_data();
  wait_until_well(false);
  test.store.restore({.configuration = configuration(7), .revision = 41});
  wait_until_well(true);
  test.store.restore({.configuration = configuration(7), .revision = 3});
  wait_until_well(false);
}

TEST(ConfigurationAgent, SaysWhetherTheStoreAnswers) {
  Fixture test;
  std::atomic<int> answered = 0;
  std::atomic<int> silent = 0;
  const auto ask = [&] {
    test.agent.ask([&](const Status& answers) { ++(answers ? answered : silent); });
  };
  const auto wait_for = [](const std::atomic<int>& count, int wanted) {
    while (count < wanted)
      std::this_thread::yield();
  };
  ask();  // before the start
  test.agent.start();
  wait_for(answered, 1);
  test.store.set_silent(true);
  ask();
  wait_for(silent, 1);
  test.agent.want(Membership::Change{.revision = 0, .next = configuration(1)});
  ask();
  wait_for(silent, 2);
  test.store.set_silent(false);
  ask();
  wait_for(answered, 2);
  ask();
  test.agent.stop();
  EXPECT_EQ(answered + silent, 5) << "what was asked before the end is told";
  ask();
  EXPECT_EQ(answered + silent, 6);
}

// etcd whose space is used up.
TEST(ConfigurationAgent, AStoreThatAnswersAndStoresNothingIsNotWell) {
  Fixture test;
  const auto unstored = [&] { return test.agent.unstored_for(test.clock.now()) != 0; };
  test.agent.start();
  test.reads.wait_for(0);
  test.store.set_refusing(true);
  EXPECT_FALSE(unstored());
  test.agent.want(Membership::Change{.revision = 0, .next = configuration(1)});
  while (!unstored())
    std::this_thread::yield();
  // Reads that succeed do not excuse it, nor that nothing is wanted any more.
  test.agent.want(std::nullopt);
  std::atomic<int> told = 0;
  test.agent.ask([&](const Status& status) {
    EXPECT_EQ(status.error().code, Code::kBusy);
    ++told;
  });
  while (told == 0)
    std::this_thread::yield();
  EXPECT_TRUE(unstored());
  EXPECT_EQ(test.agent.unanswered_for(test.clock.now()), 0);
  test.store.set_refusing(false);
  while (unstored())
    std::this_thread::yield();
  EXPECT_EQ(test.store.read(Deadline::after_ms(test.clock, 10))->revision, 0)
      << "what is tried changes nothing";
}

TEST(ConfigurationAgent, AChangeThatWasRefusedCanBeGivenUp) {
  Fixture test;
  test.gives_up = true;
  test.store.set_refusing(true);
  test.agent.start();
  test.agent.want(Membership::Change{.revision = 0, .next = configuration(1)});
  while (test.refused == 0)
    std::this_thread::yield();
  test.store.set_refusing(false);
  while (test.agent.unstored_for(test.clock.now()) != 0)
    std::this_thread::yield();
  EXPECT_EQ(test.store.read(Deadline::after_ms(test.clock, 10))->revision, 0)
      << "it was sent again";
}

// It may be stored at any later time.
TEST(ConfigurationAgent, AChangeOfUnknownOutcomeIsNotGivenUp) {
  Fixture test;
  test.gives_up = true;
  test.store.hide_next_outcome();
  test.store.set_refusing(true);
  test.agent.start();
  const Membership::Change change{.revision = 0, .next = configuration(1)};
  test.agent.want(change);
  while (test.store.replaced() < 4)
    std::this_thread::yield();
  EXPECT_EQ(test.refused, 0);
  test.agent.want(std::nullopt);
  test.agent.want(change);
  while (test.store.replaced() < 8)
    std::this_thread::yield();
  EXPECT_EQ(test.refused, 0) << "it was not wanted for a moment";
}

TEST(ConfigurationAgent, StopsWhileNothingHappens) {
  Fixture test;
  test.agent.start();
  test.reads.wait_for(0);
  test.agent.stop();
}

}  // namespace
}  // namespace rkv::server
