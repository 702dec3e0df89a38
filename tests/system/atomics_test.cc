// The effects of a device without atomics on users, tested on any device.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/system/device_atomics.h"
#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

TEST(DeviceAtomics, DecideWhetherACounterIsOneSided) {
  const bool atomics = device_has_atomics();
  Server server;
  Client client = server.client();
  auto counter = client.open_counter("n");
  ASSERT_TRUE(counter) << to_string(counter.error());
  EXPECT_EQ(counter->is_one_sided(), atomics);
  EXPECT_EQ(client.incr(*counter, 5)->number, 5);
  EXPECT_EQ(client.incr("n", 2)->number, 7);
  const auto swapped = client.counter_cas(*counter, 7, 40);
  ASSERT_TRUE(swapped) << to_string(swapped.error());
  EXPECT_TRUE(swapped->done);
  EXPECT_EQ(client.get_counter(*counter)->number, 40);
  EXPECT_EQ(client.stats().atomics != 0, atomics);
  EXPECT_EQ(server_stat(client, "one_sided_counters"), atomics ? 1U : 0U);
}

// With or without pins, a value that is rewritten without pause is read whole and in order.
TEST(DeviceAtomics, AreNotNeededToReadWhatIsRewritten) {
  constexpr std::uint64_t kRewrites = 200;
  constexpr std::size_t kWords = 8192;
  const bool atomics = device_has_atomics();
  Server server;
  Client client = server.client();
  Client writing = server.client();
  ASSERT_TRUE(client.put("hot", whole_value(0, kWords)));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t n = 1; !stop.load(std::memory_order_relaxed); ++n)
      ASSERT_TRUE(writing.put("hot", whole_value(n, kWords)));
  });
  std::uint64_t newest = 0;
  while (newest < kRewrites && !HasFailure()) {
    const auto got = client.get("hot");
    std::uint64_t counter = 0;
    EXPECT_TRUE(got && is_whole(got->value, &counter)) << (got ? "torn" : to_string(got.error()));
    EXPECT_GE(counter, newest);
    newest = counter;
  }
  stop = true;
  writer.join();
  EXPECT_NE(client.stats().one_sided_gets, 0U);
  EXPECT_TRUE(atomics || client.stats().pins == 0);
}

}  // namespace
}  // namespace rkv::testing_support
