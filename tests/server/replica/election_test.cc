// A replica that is elected while another thread looks on, as the server's main thread does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/replica/replicator.h"
#include "tests/server/persistence/support.h"
#include "tests/server/replica/fake_store.h"

namespace rkv::server {
namespace {

// The address of no other test; the replica listens on the port above it.
constexpr const char* kElectedAddress = "127.0.0.1:23998";

// Its versions begin with the term: one of an earlier term would be another record's.
TEST(Election, IsSeenWithItsTerm) {
  for (std::uint32_t round = 0; round < 20; ++round) {
    const test::TempDir directory;
    auto engine = StorageEngine::open(directory.path());
    ASSERT_TRUE(engine) << to_string(engine.error());
    test::FakeStore store;
    const SteadyClock clock;
    auto replicator = Replicator::create(
        {.group = "g", .name = "n1", .address = kElectedAddress, .data_dir = directory.path()},
        {.engine = **engine, .store = store, .clock = clock, .unix_ms = [] { return 1; }});
    ASSERT_TRUE(replicator) << to_string(replicator.error());
    std::string problem;
    ASSERT_TRUE((*replicator)->start(&problem)) << problem;
    Replicator::State seen;
    while (seen.phase == Replicator::Phase::kFollowing)
      seen = (*replicator)->state();
    ASSERT_EQ(seen.phase, Replicator::Phase::kElected) << seen.why;
    const auto stored = store.read(Deadline::after_ms(clock, 1000));
    ASSERT_TRUE(stored && stored->configuration);
    ASSERT_EQ(seen.term, stored->configuration->term) << "in round " << round;
    EXPECT_TRUE((*replicator)->stop());
  }
}

}  // namespace
}  // namespace rkv::server
