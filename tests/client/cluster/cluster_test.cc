// Opening a Cluster, over the fake transport: which failures are a wrong list, and which a server
// that is down. What several servers do is the system tests' business.
#include "rkv/cluster.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/auth/digest.h"
#include "common/random.h"
#include "tests/client/answering_transport.h"
#include "tests/support/manual_clock.h"

namespace rkv {
namespace {

using testing::AnsweringTransport;
using testing::FakeServer;
using testing::ScriptedMemory;

// Connects to the server of the address.
class SeveralTransport final : public rdma::Transport {
 public:
  // A clock is moved by the queue of the server that is waited for: one for all.
  explicit SeveralTransport(std::map<std::string, FakeServer*> servers)
      : servers_(std::move(servers)),
        first_(*servers_.begin()->second),
        clock_(servers_.begin()->second->clock) {}
  std::string describe() const override { return "fake"; }
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t length, rdma::Access access) override {
    if (before_allocate) RKV_RETURN_IF_ERROR(before_allocate());
    return first_.allocate(length, access);
  }
  Result<std::unique_ptr<rdma::Queue>> create_queue(const rdma::QueueOptions& options) override {
    return first_.create_queue(options);
  }
  Result<std::unique_ptr<rdma::Listener>> listen(const std::string& address) override {
    return first_.listen(address);
  }
  Result<std::unique_ptr<rdma::Connection>> connect(rdma::Queue& queue,
                                                    const rdma::ConnectionOptions& options,
                                                    const std::string& address, Bytes private_data,
                                                    const Deadline& deadline,
                                                    rdma::Rejection* rejection) override {
    if (address == silent) {
      clock_.advance(std::max<Nanos>(deadline.at() - clock_.now(), 0));
      return fail(Code::kTimeout, "no answer");
    }
    return AnsweringTransport(*servers_.at(address))
        .connect(queue, options, address, private_data, deadline, rejection);
  }

  std::function<Status()> before_allocate;  // the first thing done for a server: its way
  std::string silent;                       // its host swallows what is sent to it

 private:
  std::map<std::string, FakeServer*> servers_;
  AnsweringTransport first_;
  ManualClock& clock_;
};

class ClusterTest : public ::testing::Test {
 protected:
  // Addresses are given out by the order of the alphabet: a has the clock.
  Result<Cluster> connect(const char* list = "a:1,b:1,c:1") {
    return Cluster::connect(*ShardMap::parse(list), options_, transport_, &a_.clock, &problem_);
  }
  static Status fail_way() { return fail(Code::kUnreachable, "no device leads there"); }
  // As where no device leads to b's host: a is connected before it, c after it.
  Result<Cluster> connect_without_way_to_b() {
    bool once = true;
    transport_->before_allocate = [&]() -> Status {
      const bool is_b = a_.connects != 0 && std::exchange(once, false);
      return is_b ? fail_way() : Status{};
    };
    auto cluster = connect();
    transport_->before_allocate = nullptr;
    return cluster;
  }
  static void down(FakeServer& server, Code code = Code::kUnreachable) {
    for (int i = 0; i < 100; ++i)
      server.connect_errors.push_back({.code = code, .text = "scripted"});
  }
  // The key of a server.
  static std::string key_of(const Cluster& cluster, std::string_view address) {
    for (int i = 0;; ++i) {
      std::string key = "k" + std::to_string(i);
      if (cluster.server_of(key).address == address) return key;
    }
  }
  static void start_again(FakeServer& server, std::uint64_t number) {
    server.memory = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + number);
  }
  void SetUp() override {
    start_again(b_, 1);
    start_again(c_, 2);
  }

  FakeServer a_;
  FakeServer b_;
  FakeServer c_;
  ClientOptions options_{.timeout = std::chrono::milliseconds(1000)};
  std::string problem_;
  std::shared_ptr<SeveralTransport> transport_ = std::make_shared<SeveralTransport>(
      std::map<std::string, FakeServer*>{{"a:1", &a_}, {"b:1", &b_}, {"c:1", &c_}});
};

TEST_F(ClusterTest, AServerThatIsDownIsNoErrorAndFailsItsOwnKeys) {
  down(b_);
  auto cluster = connect();
  ASSERT_TRUE(cluster) << problem_;
  EXPECT_TRUE(cluster->put(key_of(*cluster, "a:1"), "v"));
  EXPECT_TRUE(cluster->put(key_of(*cluster, "c:1"), "v"));
  const auto put = cluster->put(key_of(*cluster, "b:1"), "v");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kUnreachable);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(cluster->last_server().address, "b:1");
  b_.connect_errors.clear();
  EXPECT_TRUE(cluster->put(key_of(*cluster, "b:1"), "v"));
}

// Whether the bytes are anywhere in this process's memory that can be written. They are given
// complemented, so that this is not a place.
bool is_in_memory(const std::string& complement) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(memory, 0);
  const auto is_needle = [](char one, char other) { return one == static_cast<char>(~other); };
  std::vector<char> chunk(kChunk + complement.size());
  std::ifstream maps("/proc/self/maps");
  bool found = false;
  for (std::string line; !found && std::getline(maps, line);) {
    std::size_t begin = 0;
    std::size_t end = 0;
    char writable = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx %*c%c", &begin, &end, &writable) != 3) continue;
    if (writable != 'w') continue;
    for (; !found && begin < end; begin += kChunk) {
      const ssize_t got = pread(memory, chunk.data(), std::min(chunk.size(), end - begin),
                                static_cast<off_t>(begin));
      if (got <= 0) break;
      found = !std::ranges::search(std::span(chunk).first(static_cast<std::size_t>(got)),
                                   complement, is_needle)
                   .empty();
    }
  }
  close(memory);
  cleanse(std::as_writable_bytes(std::span(chunk)));
  return found;
}

TEST_F(ClusterTest, KeepsNoSecret) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers map too much memory to search, and keep what was freed";
#endif
  options_.user = "anna";
  options_.secret.resize(64);
  std::string complement(64, '\0');
  for (std::size_t i = 0; i < complement.size(); ++i) {
    options_.secret[i] = "0123456789abcdef"[random_from_kernel() % 16];
    complement[i] = static_cast<char>(~options_.secret[i]);
  }
  ASSERT_TRUE(is_in_memory(complement));
  int looks = 0;
  transport_->before_allocate = [&]() -> Status {
    cleanse(std::as_writable_bytes(std::span(options_.secret)));
    EXPECT_FALSE(is_in_memory(complement));
    ++looks;
    return fail_way();
  };
  EXPECT_FALSE(connect());
  EXPECT_EQ(looks, 3);
}

TEST_F(ClusterTest, AUserWithoutASecretIsNamed) {
  options_.user = "anna";
  const auto cluster = connect();
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, Code::kInvalidArgument);
  EXPECT_NE(problem_.find("the option secret"), std::string::npos) << problem_;
}

TEST_F(ClusterTest, WhereNoneAnswersTheFirstOneIsNamed) {
  for (FakeServer* const server : {&a_, &b_, &c_})
    down(*server);
  const auto cluster = connect();
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, Code::kUnreachable);
  EXPECT_NE(problem_.find("none of the 3 servers answers"), std::string::npos) << problem_;
  EXPECT_NE(problem_.find("a:1"), std::string::npos) << problem_;
}

TEST_F(ClusterTest, AServerOfAnotherVersionIsAnErrorThatNamesIt) {
  c_.reject.resize(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kVersionMismatch, .text = "speaks 2"}, c_.reject);
  down(c_, Code::kRejected);
  const auto cluster = connect();
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, Code::kVersionMismatch);
  EXPECT_NE(problem_.find("c:1"), std::string::npos) << problem_;
  EXPECT_NE(problem_.find("version"), std::string::npos) << problem_;
}

TEST_F(ClusterTest, TwoAddressesOfOneProcessAreAnErrorThatNamesBoth) {
  start_again(c_, 0);
  const auto cluster = connect();
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, Code::kInvalidArgument);
  EXPECT_NE(problem_.find("a:1 and c:1"), std::string::npos) << problem_;
}

// It was down when the cluster was opened, and turns out to be another one's address.
TEST_F(ClusterTest, ATwinThatComesLaterFailsItsKeys) {
  down(c_);
  auto cluster = connect();
  ASSERT_TRUE(cluster) << problem_;
  c_.connect_errors.clear();
  start_again(c_, 0);
  EXPECT_EQ(cluster->put(key_of(*cluster, "c:1"), "v").error().code, Code::kInvalidArgument);
  EXPECT_TRUE(cluster->put(key_of(*cluster, "a:1"), "v"));
}

TEST_F(ClusterTest, AnotherMapKeepsTheConnectionsThatStay) {
  auto cluster = connect("a:1,b:1");
  ASSERT_TRUE(cluster) << problem_;
  ASSERT_TRUE(cluster->use(*ShardMap::parse("c:1,b:1"), &problem_)) << problem_;
  EXPECT_EQ(a_.connects, 1);
  EXPECT_EQ(b_.connects, 1);
  EXPECT_EQ(c_.connects, 1);
  EXPECT_TRUE(cluster->put(key_of(*cluster, "c:1"), "v"));
  EXPECT_TRUE(cluster->put(key_of(*cluster, "b:1"), "v"));
  EXPECT_EQ(b_.connects, 1);
  EXPECT_EQ(a_.connection, nullptr);
}

TEST_F(ClusterTest, AMapThatIsRefusedChangesNothing) {
  auto cluster = connect("a:1,b:1");
  ASSERT_TRUE(cluster) << problem_;
  start_again(c_, 1);
  EXPECT_EQ(cluster->use(*ShardMap::parse("b:1,c:1"), &problem_).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(cluster->map(), *ShardMap::parse("a:1,b:1"));
  EXPECT_TRUE(cluster->put(key_of(*cluster, "a:1"), "v"));
  EXPECT_TRUE(cluster->put(key_of(*cluster, "b:1"), "v"));
  EXPECT_EQ(a_.connects, 1);
  EXPECT_EQ(b_.connects, 1);
}

// ---------------------------------------------------------------------------- ways and time

TEST_F(ClusterTest, AWayThatIsNotThereIsLookedForAgainButNotByEveryOperation) {
  auto cluster = connect_without_way_to_b();
  ASSERT_TRUE(cluster) << problem_;
  int looks = 0;
  transport_->before_allocate = [&] {
    ++looks;
    return fail_way();
  };
  const std::string key = key_of(*cluster, "b:1");
  for (int i = 0; i < 100; ++i) {
    const auto put = cluster->put(key, "v");
    ASSERT_EQ(put.error().code, Code::kUnreachable);
    ASSERT_EQ(put.error().write, WriteOutcome::kNotApplied);
  }
  EXPECT_EQ(looks, 2);  // at once; once more; then not before the back-off is over
  transport_->before_allocate = nullptr;
  EXPECT_FALSE(cluster->put(key, "v"));
  a_.clock.advance(std::chrono::nanoseconds(ClientOptions{}.longest_backoff).count());
  EXPECT_TRUE(cluster->put(key, "v"));
}

TEST_F(ClusterTest, TheTimeSpentOnAWayIsPartOfTheCalls) {
  b_.answer = [](const Request&) { return std::nullopt; };
  auto cluster = connect_without_way_to_b();
  ASSERT_TRUE(cluster) << problem_;
  bool looked = false;
  transport_->before_allocate = [&]() -> Status {
    if (!std::exchange(looked, true)) a_.clock.advance(600 * kNanosPerMs);
    return {};
  };
  const std::string key = key_of(*cluster, "b:1");
  const Nanos begin = a_.clock.now();
  EXPECT_EQ(cluster->put(key, "v").error().code, Code::kTimeout);
  EXPECT_TRUE(looked);
  EXPECT_LE(a_.clock.now() - begin, 1000 * kNanosPerMs);
  // Later calls have all of their time.
  const Nanos again = a_.clock.now();
  EXPECT_EQ(cluster->put(key, "v").error().code, Code::kTimeout);
  EXPECT_GT(a_.clock.now() - again, 900 * kNanosPerMs);
}

// One has work for four fifths of the time; the other's host swallows every attempt to connect.
TEST_F(ClusterTest, AttemptsAtASilentServerLeaveTheOthersTheirTime) {
  options_.first_backoff = options_.longest_backoff = std::chrono::milliseconds(1);
  auto cluster = connect("a:1,b:1");
  ASSERT_TRUE(cluster) << problem_;
  std::vector<std::string> keys;
  std::size_t of_a = 0;
  for (int i = 0; of_a < 800; ++i) {
    keys.push_back("k" + std::to_string(i));
    of_a += cluster->server_of(keys.back()).address == "a:1" ? 1 : 0;
  }
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = "v"});
  a_.latency = a_.credits * kNanosPerMs;
  b_.die_at_send = 1;
  transport_->silent = "b:1";
  const Nanos begin = a_.clock.now();
  const auto results = cluster->multi_put(items, std::chrono::milliseconds(1000));
  EXPECT_LE(a_.clock.now() - begin, 1010 * kNanosPerMs);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool is_of_a = cluster->server_of(keys[i]).address == "a:1";
    ASSERT_EQ(results[i].has_value(), is_of_a)
        << keys[i] << (results[i] ? "" : to_string(results[i].error()));
  }
}

// The last argument of an operation may be its options, their fields, or only a timeout. The same
// lines compile for a Client and a Cluster.
template <class Store>
void use_every_form(Store& store) {
  constexpr auto kShort = std::chrono::milliseconds(100);
  constexpr auto kLong = std::chrono::seconds(1);
  constexpr Durability kLeast = Durability::kMemory;
  std::array<std::byte, 16> room;
  const std::array<std::string_view, 1> keys{"key"};
  const std::array<KeyValue, 1> items{KeyValue{.key = "key", .value = "value"}};
  EXPECT_TRUE(store.put("key", "value"));
  EXPECT_TRUE(store.put("key", "value", kShort));
  EXPECT_TRUE(store.put("key", "value", {.durability = kLeast, .timeout = kShort}));
  EXPECT_TRUE(store.put_with("key", "value", {.timeout = kShort, .durability = kLeast}));
  EXPECT_TRUE(store.put_if_absent("key", "value", kLong));
  EXPECT_TRUE(store.put_if_absent("key", "value", {.durability = kLeast}));
  EXPECT_TRUE(store.put_if_version("key", "value", 1, kShort));
  EXPECT_TRUE(store.put_if_version("key", "value", 1, WriteOptions{.timeout = kShort}));
  for (const Durability least : {kLeast})
    EXPECT_TRUE(store.get("stored", {.at_least = least, .timeout = kShort}));
  EXPECT_TRUE(store.get("stored"));
  EXPECT_TRUE(store.get("stored", kShort));
  EXPECT_TRUE(store.get("stored", {}));
  EXPECT_TRUE(store.get_into("stored", room, kLong));
  EXPECT_TRUE(store.get_into("stored", room, {.timeout = kLong}));
  EXPECT_EQ(store.multi_get(keys, kShort).size(), 1U);
  EXPECT_EQ(store.multi_get(keys, {.timeout = kShort}).size(), 1U);
  EXPECT_EQ(store.multi_put(items, kShort).size(), 1U);
  EXPECT_EQ(store.multi_put(items, {.durability = kLeast}).size(), 1U);
  store.multi_get_into(keys, [](std::size_t, const Result<ValueView>&) {}, kLong);
  store.multi_put_each(items, [](std::size_t, const Result<std::uint64_t>&) {}, kLong);
  EXPECT_TRUE(store.remove("key", kShort));
  EXPECT_TRUE(store.remove("key", {.durability = kLeast}));
  EXPECT_TRUE(store.remove_if_version("key", 1, kShort));
  EXPECT_TRUE(store.remove_if_version("key", 1, {.timeout = kShort}));
}

TEST_F(ClusterTest, OptionsOrATimeoutEndEveryCallOfAClientAndOfACluster) {
  a_.memory->add("stored", a_.memory->store("stored", "value"));
  auto cluster = connect("a:1");
  ASSERT_TRUE(cluster) << problem_;
  use_every_form(*cluster);
  options_.server = "a:1";
  auto client = Client::connect(options_, transport_, &a_.clock);
  ASSERT_TRUE(client);
  use_every_form(*client);
}

}  // namespace
}  // namespace rkv
