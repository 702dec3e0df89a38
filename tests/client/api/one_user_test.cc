// Objects for one thread at a time that two threads use, and objects that were moved from: the
// process ends with a sentence.
#include "rkv/one_user.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "rkv/async_client.h"
#include "rkv/cluster.h"
#include "rkv/shared_client.h"
#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

class OneUserTest : public ClientTest {
 protected:
  OneUserTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    store("key", "value");
  }
  // Calls `inner` on another thread while this one is in a call of the client.
  void while_used(const std::function<void()>& inner) {
    server_.answer = [&](const Request&) {
      std::thread(inner).join();
      return Response{.version = Version::of(1, 1)};
    };
    (void)client().put("key", "new");
  }
  std::shared_ptr<AnsweringTransport> transport() {
    return std::make_shared<AnsweringTransport>(server_);
  }
};

constexpr const char* kTwoThreads =
    "rkv::Client is used by two threads at once: use rkv::SharedClient";

TEST_F(OneUserTest, TwoThreadsInAClientEndTheProcess) {
  auto buffer = client().allocate_buffer(16);
  ASSERT_TRUE(buffer);
  const std::vector<std::function<void()>> calls = {
      [&] { (void)client().get("key"); },
      [&] { (void)client().put("key", "other"); },
      [&] { (void)client().multi_get(std::array<std::string_view, 1>{"key"}); },
      [&] { (void)client().multi_put(std::array<KeyValue, 1>{KeyValue{"key", "other"}}); },
      [&] { (void)client().multi_incr({}); },
      [&] { (void)client().get_into("key", *buffer); },
      [&] { (void)client().put_from("key", *buffer, 16); },
      [&] { (void)client().scan(); },
      [&] { (void)client().ping(); },
      [&] { (void)client().ping_one_sided(); },
      [&] { (void)client().flush(); },
      [&] { (void)client().server_stats(); },
      [&] { const Client moved = std::move(client()); },
  };
  for (const auto& call : calls) {
    EXPECT_DEATH(while_used(call), kTwoThreads);
  }
  EXPECT_DEATH(client().multi_get_into(
                   std::array<std::string_view, 1>{"key"},
                   [&](std::size_t, const Result<ValueView>&) { (void)client().get("key"); }),
               kTwoThreads);
  // Statistics may be looked at, and one thread after the other may use the client.
  std::uint64_t gets = 0;
  EXPECT_TRUE(client().get("key"));
  while_used([&] { gets = client().stats().gets; });
  EXPECT_EQ(gets, 1U);
  std::thread([&] { EXPECT_TRUE(client().get("key")); }).join();
  EXPECT_TRUE(client().get("key"));
}

TEST_F(OneUserTest, TwoThreadsInAClusterEndTheProcess) {
  options_.timeout = std::chrono::milliseconds(1000);
  const auto map = ShardMap::parse("one:1");
  ASSERT_TRUE(map);
  auto cluster = Cluster::connect(*map, options_, transport(), &server_.clock);
  ASSERT_TRUE(cluster);
  const auto use_twice = [&](const std::function<void()>& inner) {
    server_.answer = [&](const Request&) {
      std::thread(inner).join();
      return Response{.version = Version::of(1, 1)};
    };
    (void)cluster->put("key", "new");
  };
  const char* const sentence = "rkv::Cluster is used by two threads at once: open one for each";
  EXPECT_DEATH(use_twice([&] { (void)cluster->get("key"); }), sentence);
  EXPECT_DEATH(use_twice([&] { (void)cluster->ping(); }), sentence);
  EXPECT_DEATH(use_twice([&] { (void)cluster->scan(); }), "two threads at once");
  EXPECT_DEATH(use_twice([&] { (void)cluster->use(*map); }), sentence);
  const Cluster moved = std::move(*cluster);
  const char* const gone = "this rkv::Cluster was moved from";
  EXPECT_DEATH((void)cluster->get("key"), gone);
  EXPECT_DEATH((void)cluster->flush(), gone);
  EXPECT_DEATH((void)cluster->multi_get(std::array<std::string_view, 1>{"key"}), gone);
  EXPECT_DEATH((void)cluster->last_server(), gone);
  EXPECT_DEATH((void)cluster->client_of("key"), gone);
}

TEST_F(OneUserTest, AnObjectThatWasMovedFromEndsTheProcess) {
  Client taken = std::move(client());
  const char* const gone = "this rkv::Client was moved from";
  EXPECT_DEATH((void)client().get("key"), gone);
  EXPECT_DEATH((void)client().ping(), gone);
  EXPECT_DEATH((void)client().stats(), gone);
  EXPECT_DEATH((void)client().describe(), gone);
  EXPECT_DEATH((void)client().needed_bytes(), gone);
  EXPECT_DEATH((void)client().allocate_buffer(16), gone);
  EXPECT_TRUE(taken.get("key"));
  client() = std::move(taken);  // a client again
  EXPECT_TRUE(client().get("key"));
  EXPECT_DEATH((void)taken.get("key"), gone);

  auto buffer = client().allocate_buffer(16);
  ASSERT_TRUE(buffer);
  const RegisteredBuffer kept = std::move(*buffer);
  EXPECT_EQ(kept.bytes().size(), 16U);
  EXPECT_DEATH((void)buffer->bytes(), "this rkv::RegisteredBuffer was moved from");
  EXPECT_DEATH((void)client().get_into("key", *buffer), "this rkv::RegisteredBuffer was moved");
  EXPECT_DEATH((void)client().put_from("key", *buffer, 1), "this rkv::RegisteredBuffer was moved");
}

TEST_F(OneUserTest, AClientOfManyThreadsThatWasMovedFromEndsTheProcess) {
  options_.timeout = std::chrono::milliseconds(1000);
  auto shared = SharedClient::connect(options_, 1, transport(), &server_.clock);
  ASSERT_TRUE(shared);
  SharedClient kept = std::move(*shared);
  EXPECT_TRUE(kept.get("key"));
  EXPECT_DEATH((void)shared->get("key"), "this rkv::SharedClient was moved from");
  EXPECT_DEATH((void)shared->stats(), "this rkv::SharedClient was moved from");

  auto async = AsyncClient::connect(options_, transport(), &server_.clock);
  ASSERT_TRUE(async);
  AsyncClient kept_async = std::move(*async);
  EXPECT_DEATH((void)async->get("key"), "this rkv::AsyncClient was moved from");
  EXPECT_DEATH((void)async->poll(), "this rkv::AsyncClient was moved from");
  auto pending = kept_async.get("key").start();
  auto kept_pending = std::move(pending);
  EXPECT_TRUE(kept_pending.wait());
  EXPECT_DEATH((void)pending.wait(), "this rkv::Pending was moved from");
}

}  // namespace
}  // namespace rkv
