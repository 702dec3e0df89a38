// Writes that their callers have given up, of a server that was stopped meanwhile.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;

// The message of a write lies in the server's memory when its client gives up, and is looked at
// when the server goes on.
TEST(GivenUp, AWriteIsNotBegunWhenTheServerGoesOn) {
  Server server;
  Client other = server.client();
  constexpr int kWrites = 8;
  for (int i = 0; i < kWrites; ++i) {
    const std::string key = fmt::format("key-{}", i);
    Client client = server.client();
    ASSERT_TRUE(other.put(key, "old"));
    server.process().signal(SIGSTOP);
    const auto put = client.put(key, "given up", milliseconds(50));
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code, Code::kTimeout);
    EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
    const auto read = other.get(key);  // by READ: nobody else is there to answer
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(read->value, "old");
    server.process().signal(SIGCONT);
    // A connection ends after all that was sent over it has been looked at.
    while (server_stat(other, "connections") != 1) {
    }
    const auto got = other.get(key);
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->value, "old") << "a write was begun after its client had given it up";
  }
}

}  // namespace
}  // namespace rkv::testing_support
