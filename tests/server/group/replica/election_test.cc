// A replica that is elected while another thread looks on, as the server's main thread does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "server/group/replica/replicator.h"
#include "tests/server/group/replica/fake_store.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

// The address of no other test; the replica listens on the port above it.
constexpr const char* kElectedAddress = "127.0.0.1:23998";

// A replica that founds the group of the store, or comes back to it.
struct Elected {
  Elected(test::FakeStore& store, const std::string& directory) {
    auto opened = StorageEngine::open(directory);
    EXPECT_TRUE(opened) << to_string(opened.error());
    engine = std::move(*opened);
    auto made = Replicator::create(
        {.group = "g",
         .name = "n1",
         .address = kElectedAddress,
         .data_dir = directory,
         .may_found = true},
        {.engine = *engine, .store = store, .clock = clock, .read_clocks = [this] {
           return GroupClock::Reading{
               .clock = clock.now(), .since_boot = clock.now(), .unix_ms = 1};
         }});
    EXPECT_TRUE(made) << to_string(made.error());
    replicator = std::move(*made);
    std::string problem;
    EXPECT_TRUE(replicator->start(&problem)) << problem;
    while (seen.phase == Replicator::Phase::kFollowing)
      seen = replicator->state();
    EXPECT_EQ(seen.phase, Replicator::Phase::kElected) << seen.why;
  }
  GroupConfiguration stored(test::FakeStore& store) {
    const auto read = store.read(Deadline::after_ms(clock, 1000));
    EXPECT_TRUE(read && read->configuration);
    return read && read->configuration ? *read->configuration : GroupConfiguration{};
  }
  Status revoke(const RevokedSecret& secret) {
    std::promise<Status> told;
    replicator->revoke({secret}, [&told](const Status& status) { told.set_value(status); });
    return told.get_future().get();
  }

  const SteadyClock clock;
  std::unique_ptr<StorageEngine> engine;
  std::unique_ptr<Replicator> replicator;
  Replicator::State seen;
};

// Its versions begin with the term: one of an earlier term would be another record's.
TEST(Election, IsSeenWithItsTerm) {
  for (std::uint32_t round = 0; round < 20; ++round) {
    const test::TempDir directory;
    test::FakeStore store;
    Elected one(store, directory.path());
    ASSERT_EQ(one.seen.term, one.stored(store).term) << "in round " << round;
    EXPECT_TRUE(one.replicator->stop());
  }
}

// The server admits clients as soon as it sees the phase.
TEST(Election, IsSeenWithWhatWasRevokedBefore) {
  const test::TempDir directory;
  test::FakeStore store;
  std::vector<RevokedSecret> secrets;
  for (std::uint32_t round = 0; round < 3; ++round) {
    Elected one(store, directory.path());
    ASSERT_EQ(*one.replicator->revoked(), secrets);
    secrets.push_back({.user = fmt::format("user-{}", round)});
    EXPECT_TRUE(one.revoke(secrets.back()));
    EXPECT_TRUE(one.replicator->stop());
  }
}

TEST(Election, ARevocationIsAnsweredWhenTheStoreHasIt) {
  const test::TempDir directory;
  test::FakeStore store;
  Elected one(store, directory.path());
  const auto revoke = [&](const std::string& user) { return one.revoke({.user = user}); };
  EXPECT_TRUE(one.replicator->revoked()->empty());
  EXPECT_TRUE(revoke("app"));
  EXPECT_EQ(one.stored(store).revoked, (std::vector<RevokedSecret>{{.user = "app"}}));
  EXPECT_EQ(*one.replicator->revoked(), one.stored(store).revoked);
  store.lose_next_answer();
  EXPECT_TRUE(revoke("web"));
  EXPECT_TRUE(one.stored(store).has_revoked({.user = "web"}));
  store.set_refusing(true);
  EXPECT_EQ(revoke("bob").error().code, Code::kIo);
  EXPECT_FALSE(one.stored(store).has_revoked({.user = "bob"}));
  store.set_refusing(false);
  while (!one.stored(store).has_revoked({.user = "bob"}))
    std::this_thread::yield();
  EXPECT_TRUE(revoke("bob"));
  EXPECT_TRUE(one.replicator->stop());
}

}  // namespace
}  // namespace rkv::server
