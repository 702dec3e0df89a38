// A replica of a group whose disk is full. A program of its own: it must mount a file system before
// it has a second thread.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/system/group/replica_group.h"
#include "tests/system/small_disk.h"

namespace rkv::testing_support {
namespace {

// It leaves the replicas in sync by itself, and does not become the primary for that.
TEST(GroupDisk, ABackupWhoseDiskIsFullLeavesAndComesBack) {
  ReplicaGroup group(2);
  // The database that comes back writes what its log has to a table, before the log goes.
  const SmallDisk disk(group.data(1), 256);
  group.start_all();
  Client client = group.client();
  const auto primary_and_term = [&] {
    const std::string text = group.configuration();
    return text.substr(text.find("\"primary\""));
  };
  const std::string before = primary_and_term();
  const std::string large(1 << 20, 'v');
  disk.fill();
  const auto put = [&](int number) {
    return client.put_with(fmt::format("key-{}", number % 4), large,
                           {.timeout = std::chrono::seconds(40), .durability = Durability::kSync});
  };
  const auto has_left = [&] {
    return group.process(1).output().find("backup not in sync: its disk is full") !=
           std::string::npos;
  };
  int writes = 0;
  for (; writes < 100 && !has_left(); ++writes)
    ASSERT_TRUE(put(writes)) << group.logs();
  EXPECT_TRUE(has_left()) << group.logs();
  group.wait_for_in_sync(1);
  ASSERT_TRUE(put(writes)) << "one replica is enough";
  EXPECT_EQ(primary_and_term(), before) << "somebody has taken over: " << group.logs();
  disk.free_space();
  group.wait_for_in_sync(2);
  ASSERT_TRUE(put(writes + 1));
  group.kill(0);
  Client last = group.client_of(group.wait_for_primary(0));
  EXPECT_EQ(last.get(fmt::format("key-{}", writes % 4))->value, large);
}

// Its clients wait until the other replica has taken over, and see no error of the disk.
TEST(GroupDisk, APrimaryWhoseDiskIsFullIsReplacedAndNoWriteFails) {
  ReplicaGroup group(2);
  const SmallDisk disk(group.data(0), 256);
  group.start_all();
  ASSERT_EQ(group.wait_for_primary(), 0U);
  Client client = group.client_of_all();
  const std::string large(1 << 20, 'v');
  disk.fill();
  constexpr Durability kLevels[] = {Durability::kMemory, Durability::kWal, Durability::kSync};
  const auto is_replaced = [&] { return group.configuration().contains("\"primary\":\"n1\""); };
  int writes = 0;
  for (; writes < 2000 && !is_replaced(); ++writes)
    ASSERT_TRUE(client.put_with(fmt::format("key-{}", writes % 4), large,
                                {.durability = kLevels[writes % 3]}))
        << client.last_refusal() << group.logs();
  EXPECT_TRUE(is_replaced()) << group.logs();
  ASSERT_TRUE(client.put_with("last", "value", {.durability = Durability::kSync}));
}

// Replicas have the same data, so equal disks fill at the same time.
TEST(GroupDisk, ReadsGoOnWhenAllDisksAreFull) {
  ReplicaGroup group(2);
  const SmallDisk first(group.data(0), 256);
  const SmallDisk second(group.data(1), 256);
  group.start_all();
  Client client = group.client_of_all();
  const std::string large(1 << 20, 'v');
  ASSERT_TRUE(client.put_with("key", large, {.durability = Durability::kSync}));
  first.fill();
  second.fill();
  const auto put = [&](int number) {
    return client.put_with(fmt::format("other-{}", number % 4), large,
                           {.timeout = std::chrono::seconds(3), .durability = Durability::kSync});
  };
  int writes = 0;
  while (writes < 100 && put(writes))
    ++writes;
  EXPECT_LT(writes, 100);
  // The primary may have changed, and a take-over takes its time; once it serves, it goes on.
  const auto reads_go_on = [&](int times) {
    for (; times > 0 && client.get("key"); --times)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return times == 0;
  };
  ASSERT_TRUE(holds_in_time([&] { return reads_go_on(10); })) << group.logs();
  EXPECT_TRUE(reads_go_on(50)) << client.last_refusal() << group.logs();
  first.free_space();
  second.free_space();
  EXPECT_TRUE(holds_in_time([&] { return put(0).has_value(); })) << group.logs();
  EXPECT_TRUE(client.get("key"));
}

}  // namespace
}  // namespace rkv::testing_support
