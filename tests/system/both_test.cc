// One server on both transports: clients over verbs and over shared memory share one store.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

class BothTransports : public ::testing::Test {
 protected:
  BothTransports()
      : server_({"--transport", "auto", "--memory", "32MiB"}),
        verbs_(server_.client({.transport = Transport::kVerbs})),
        shm_(server_.client({.transport = Transport::kShm})) {}
  Server server_;
  Client verbs_;
  Client shm_;
};

TEST_F(BothTransports, WhatOneWritesTheOtherReadsOneSidedly) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    Client& writer = i % 2 == 0 ? verbs_ : shm_;
    Client& reader = i % 2 == 0 ? shm_ : verbs_;
    const std::string key = fmt::format("key{}", i % 20);  // so that most are overwritten
    const std::string value = whole_value(i, 1 + i % 700);
    const auto put = writer.put(key, value);
    ASSERT_TRUE(put) << to_string(put.error());
    const auto got = reader.get(key);
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->value, value);
    EXPECT_EQ(got->version, *put);
  }
  EXPECT_TRUE(verbs_.remove("key1"));
  EXPECT_EQ(shm_.get("key1").error().code, Code::kNotFound);
  for (const Client* client : {&verbs_, &shm_})
    EXPECT_EQ(client->stats().one_sided_gets, client->stats().gets);
  EXPECT_EQ(server_stat(shm_, "connections"), 2U);
}

TEST_F(BothTransports, TheEndOfOneClientDoesNotDisturbTheOther) {
  for (int round = 0; round < 3; ++round) {
    Process writer({RKV_STORM_WRITER, server_.address(), "0", "2", "100"},
                   {fmt::format("RKV_TEST_TRANSPORT={}", round % 2 == 0 ? "shm" : "verbs")});
    ASSERT_TRUE(writer.wait_for_output("storming")) << writer.output();
    writer.signal(SIGKILL);
    writer.wait();
    ASSERT_TRUE(verbs_.put("mine", "1"));
    ASSERT_TRUE(shm_.get("mine"));
  }
  EXPECT_EQ(verbs_.stats().reconnects + shm_.stats().reconnects, 0U);
}

// An adapter and a processor are not atomic to each other: the cell belongs to the network of who
// opened the counter first, and the others' requests go through the same device.
TEST_F(BothTransports, ACountersCellBelongsToOneNetwork) {
  auto over_verbs = verbs_.open_counter("n");
  auto over_shm = shm_.open_counter("n");
  ASSERT_TRUE(over_verbs && over_shm);
  EXPECT_TRUE(over_verbs->is_one_sided());
  EXPECT_FALSE(over_shm->is_one_sided());
  std::thread other([&] {
    for (int i = 0; i < 300; ++i)
      ASSERT_TRUE(shm_.incr(*over_shm));
  });
  for (int i = 0; i < 300; ++i)
    ASSERT_TRUE(verbs_.incr(*over_verbs));
  other.join();
  EXPECT_EQ(verbs_.get_counter(*over_verbs)->number, 600);
  EXPECT_EQ(shm_.get_counter("n")->number, 600);
  auto own = shm_.open_counter("m");
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->is_one_sided());
  // A handle of another network's is opened again, and finds no cell.
  EXPECT_EQ(verbs_.incr(*own, 2)->number, 2);
  EXPECT_FALSE(own->is_one_sided());
}

TEST_F(BothTransports, ARestartIsSeenOverBoth) {
  ASSERT_TRUE(shm_.put("key", "before"));
  server_.kill();
  server_.start();
  EXPECT_EQ(verbs_.get("key").error().code, Code::kNotFound);
  EXPECT_EQ(shm_.get("key").error().code, Code::kNotFound);
  ASSERT_TRUE(verbs_.put("key", "after"));
  EXPECT_EQ(shm_.get("key")->value, "after");
}

}  // namespace
}  // namespace rkv::testing_support
