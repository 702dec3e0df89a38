// Keys with a time to live in a replicated group: whatever happens to the primary, and to its wall
// clock, a key lives for its time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/system/group/replica_group.h"
#include "tests/system/shifted_clock.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Delay of the expirer, and of a busy machine.
constexpr milliseconds kLate(300);
// A group's clock approaches the wall clock by one in 200.
constexpr milliseconds kEarly(30);

struct Brief {
  std::string key;
  milliseconds lives;
  steady_clock::time_point put_began;
  steady_clock::time_point put_ended;
  bool is_gone = false;
};

Brief put(Client& client, milliseconds lives) {
  Brief made{.key = fmt::format("lives-{}-{}", lives.count(),
                                steady_clock::now().time_since_epoch().count()),
             .lives = lives,
             .put_began = steady_clock::now(),
             .put_ended = {}};
  const auto stored = client.put_with(made.key, "x", {.ttl = lives});
  EXPECT_TRUE(stored) << to_string(stored.error());
  made.put_ended = steady_clock::now();
  return made;
}

// Looks at all keys until all are gone.
void expect_their_time(Client& client, std::vector<Brief> keys,
                       const std::function<void(steady_clock::time_point)>& meanwhile = {}) {
  steady_clock::time_point served_again{};
  for (std::size_t left = keys.size(); left != 0;) {
    if (meanwhile) meanwhile(steady_clock::now());
    for (Brief& key : keys) {
      if (key.is_gone) continue;
      const auto began = steady_clock::now();
      const auto got = client.get(key.key);
      const auto ended = steady_clock::now();
      if (ended - began > milliseconds(100)) served_again = ended;
      if (got) {
        EXPECT_LE(began, std::max(key.put_ended + key.lives, served_again) + kLate)
            << key.lives.count() << " ms";
        continue;
      }
      ASSERT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
      EXPECT_GE(ended, key.put_began + key.lives - kEarly)
          << key.lives.count() << " ms: lived for at most "
          << std::chrono::duration_cast<milliseconds>(ended - key.put_began).count();
      key.is_gone = true;
      --left;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
}

std::vector<Brief> put_many(Client& client) {
  std::vector<Brief> keys;
  for (int lives = 500; lives <= 4500; lives += 100)
    keys.push_back(put(client, milliseconds(lives)));
  return keys;
}

// Changes the primary a second after the keys were put.
template <class Change>
void expect_their_time_across(ReplicaGroup& group, Change change) {
  Client client = group.client_of_all();
  const std::vector<Brief> keys = put_many(client);
  bool is_changed = false;
  std::thread changes;
  expect_their_time(client, keys, [&](steady_clock::time_point now) {
    if (is_changed || now - keys.front().put_began < milliseconds(1000)) return;
    is_changed = true;
    changes = std::thread(change);
  });
  if (changes.joinable()) changes.join();
  // A key that is put now does not live longer for it.
  expect_their_time(client, {put(client, milliseconds(300)), put(client, milliseconds(700))});
}

TEST(GroupTime, KeysLiveForTheirTimeWhenThePrimaryIsKilled) {
  ReplicaGroup group(3);
  group.start_all();
  const std::size_t primary = group.wait_for_primary();
  expect_their_time_across(group, [&] { group.kill(primary); });
}

TEST(GroupTime, KeysLiveForTheirTimeWhenThePrimaryIsMoved) {
  ReplicaGroup group(3);
  group.start_all();
  const std::size_t primary = group.wait_for_primary();
  expect_their_time_across(group, [&] {
    const Ended moved = kvclient(
        group.address(primary),
        {"--timeout", "30s", "admin", "move-primary", fmt::format("n{}", (primary + 1) % 3)});
    EXPECT_EQ(moved.status, 0) << moved.output;
  });
}

// Ahead by a day, and behind.
TEST(GroupTime, AWallClockThatIsWrongForAMomentMovesNothing) {
  ShiftedClock clock;
  ReplicaGroup group(2);
  group.start(0, {}, clock.environment());
  ASSERT_TRUE(group.process(0).wait_for_output("kvserver ready", 240)) << group.logs();
  group.start(1);
  group.wait_for_in_sync(2);
  Client client = group.client_of_all();
  ASSERT_TRUE(client.put_with("hours", "x", {.ttl = std::chrono::hours(6)}));
  for (const std::int64_t wrong : {kDay, -kDay}) {
    clock.set_ahead(wrong);
    const std::vector<Brief> meanwhile = {put(client, milliseconds(800))};
    std::this_thread::sleep_for(milliseconds(500));
    clock.set_ahead(0);
    expect_their_time(client, meanwhile);
  }
  EXPECT_TRUE(client.get("hours"));
  group.kill(0);
  EXPECT_TRUE(client.get("hours"));
  expect_their_time(client, {put(client, milliseconds(1000))});
}

}  // namespace
}  // namespace rkv::testing_support
