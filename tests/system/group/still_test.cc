// Clients of a group that is not what it seems: a primary that stands still while they wait for it,
// and a list with servers of two groups.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rkv/async_client.h"
#include "rkv/scan.h"
#include "rkv/shared_client.h"
#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

bool is_emulated() {
  return test_transport() == Transport::kVerbs;
}

// Makes the same call again and again, and notes what failed and the longest time of one.
class Loop {
 public:
  Loop(std::string name, std::function<Status()> call) : name_(std::move(name)) {
    thread_ = std::thread([this, call = std::move(call)] {
      while (!ends_.load()) {
        const auto began = steady_clock::now();
        const Status done = call();
        if (!done) failures_ += fmt::format(" {}", to_string(done.error()));
        const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
        longest_ = std::max(longest_, took);
        ++calls_;
      }
    });
  }
  ~Loop() {
    if (thread_.joinable()) end();
  }
  void end() {
    ends_.store(true);
    thread_.join();
  }
  const std::string& name() const { return name_; }
  const std::string& failures() const { return failures_; }
  milliseconds longest() const { return longest_; }
  std::uint64_t calls() const { return calls_.load(); }

 private:
  const std::string name_;
  std::string failures_;
  milliseconds longest_{0};
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Any answer of a server will do.
template <class T>
Status answered(const Result<T>& result) {
  const bool is_well = result || is_answer(result.error().code);
  return is_well ? Status{} : Status(std::unexpected(result.error()));
}

class GroupStill : public ::testing::Test {
 protected:
  GroupStill() : group_(3) { group_.start_all(); }
  // A client of its own for each.
  void add(const std::string& name, std::function<Status(Client&)> call) {
    auto client = std::make_shared<Client>(group_.client_of_all());
    loops_.push_back(
        std::make_unique<Loop>(name, [client, call = std::move(call)] { return call(*client); }));
  }
  ClientOptions options() const {
    std::string servers;
    for (std::size_t i = 0; i < 3; ++i)
      servers += (i == 0 ? "" : ",") + group_.address(i);
    return {.server = servers, .timeout = seconds(20), .transport = test_transport()};
  }
  void add_blocking() {
    static const std::vector<std::string_view> keys = {"a", "missing", "c"};
    static const std::vector<KeyValue> items = {{.key = "a", .value = "1"},
                                                {.key = "b", .value = "2"}};
    static const std::string large(std::size_t{300} << 10, 'l');
    add("put", [](Client& one) { return answered(one.put("put", "value")); });
    add("put of a large value", [](Client& one) { return answered(one.put("large", large)); });
    add("get", [](Client& one) { return answered(one.get("large")); });
    add("get of a missing key", [](Client& one) { return answered(one.get("missing")); });
    add("incr", [](Client& one) { return answered(one.incr("count")); });
    add("ping", [](Client& one) { return one.ping(); });
    add("scan", [](Client& one) { return answered(one.scan({.limit = 10})); });
    add("multi_get", [](Client& one) { return answered(one.multi_get(keys)[1]); });
    add("multi_put", [](Client& one) { return answered(one.multi_put(items)[1]); });
  }
  void add_others() {
    auto shared = SharedClient::connect(options(), 1);
    ASSERT_TRUE(shared);
    const auto of_all = std::make_shared<SharedClient>(std::move(*shared));
    for (const char* const key : {"one", "other"})
      loops_.push_back(std::make_unique<Loop>(fmt::format("shared put of {}", key), [of_all, key] {
        return answered(of_all->put(key, "value"));
      }));
    auto async = AsyncClient::connect(options());
    ASSERT_TRUE(async);
    const auto client = std::make_shared<AsyncClient>(std::move(*async));
    loops_.push_back(std::make_unique<Loop>("asynchronous get", [client] {
      auto got = client->get("missing").start();
      return answered(got.wait());
    }));
  }

  ReplicaGroup group_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

// With a timeout of 20 s the group's clients would wait for all of the 12 s.
TEST_F(GroupStill, NobodyWaitsForAPrimaryThatStandsStill) {
  add_blocking();
  add_others();
  const auto all_go_on = [&] {
    std::vector<std::uint64_t> before;
    for (const auto& loop : loops_)
      before.push_back(loop->calls());
    return holds_in_time([&] {
      return std::ranges::equal(loops_, before, [](const auto& loop, std::uint64_t count) {
        return loop->calls() > count + 3;
      });
    });
  };
  ASSERT_TRUE(all_go_on());
  const std::size_t primary = group_.wait_for_primary();
  group_.process(primary).signal(SIGSTOP);
  std::this_thread::sleep_for(seconds(is_emulated() ? 40 : 12));
  group_.process(primary).signal(SIGCONT);
  ASSERT_TRUE(all_go_on());
  const milliseconds most(is_emulated() ? 20'000 : 3000);
  for (const auto& loop : loops_) {
    loop->end();
    std::printf("%-22s %6lu calls, the longest took %5ld ms\n", loop->name().c_str(),
                static_cast<unsigned long>(loop->calls()), loop->longest().count());
    EXPECT_EQ(loop->failures(), "") << loop->name();
    EXPECT_LT(loop->longest(), most) << loop->name() << group_.logs();
  }
}

// Each with an etcd of its own.
TEST(GroupList, AServerOfAnotherGroupIsRefusedAndNothingIsWritten) {
  ReplicaGroup ours(1);
  ReplicaGroup other(1);
  ours.start_all();
  other.start_all();
  const std::string list = ours.address(0) + "," + other.address(0);
  auto client =
      Client::connect({.server = list, .timeout = seconds(20), .transport = test_transport()});
  ASSERT_TRUE(client) << to_string(client.error());
  ASSERT_TRUE(client->put("key", "value"));

  const Ended doctor = kvclient(list, {"doctor"});
  EXPECT_NE(doctor.status, 0);
  EXPECT_NE(doctor.output.find("of another group than"), std::string::npos) << doctor.output;

  ours.kill(0);
  const seconds enough(is_emulated() ? 20 : 3);  // to connect to the other one
  const auto put = client->put_with("key", "elsewhere", {.timeout = enough});
  ASSERT_FALSE(put);
  EXPECT_NE(client->last_refusal().find("it is of another replicated group than"),
            std::string::npos)
      << client->last_refusal();
  const auto got = client->get("key", {.timeout = enough});
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().code, Code::kNotFound) << "it was asked";
  Client of_other = other.client();
  EXPECT_EQ(of_other.get("key").error().code, Code::kNotFound);

  ours.start(0);
  EXPECT_EQ(client->get("key", {.timeout = seconds(60)})->value, "value");
}

}  // namespace
}  // namespace rkv::testing_support
