// A replica of a group whose disk is full. A program of its own: it must mount a file system before
// it has a second thread.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

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

}  // namespace
}  // namespace rkv::testing_support
