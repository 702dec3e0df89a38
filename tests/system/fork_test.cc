// Clients that a forked child inherits, four ways: the child only ends, it makes a client of its
// own in the same place, it is forked while threads are in calls, and both use it.
//
// A child reports by its exit status: 0, or the line that it found wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "rkv/async_client.h"
#include "rkv/c.h"
#include "rkv/cluster.h"
#include "rkv/shared_client.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using namespace std::chrono_literals;

// In a child, which has none of gtest's means.
#define CHILD_EXPECT(condition)                  \
  do {                                           \
    if (!(condition)) _exit(1 + __LINE__ % 254); \
  } while (false)

// An argument of this program.
constexpr const char* kParent = "--parent";

class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    body();
    _exit(0);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // Returns what the child found wrong, or that it hangs; empty: nothing.
  std::string wrong() {
    int status = 0;
    for (int i = 0; i < 3000; ++i) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
        return WEXITSTATUS(status) == 0 ? ""
                                        : fmt::format("line % 254 + 1 = {}", WEXITSTATUS(status));
      }
      std::this_thread::sleep_for(10ms);
    }
    return "hangs";
  }

 private:
  pid_t pid_;
};

ClientOptions options_of(const std::string& server) {
  ClientOptions options{.server = server, .transport = test_transport()};
  options.timeout = 10s;
  return options;
}

// A client of any kind.
class Any {
 public:
  virtual ~Any() = default;
  virtual Result<Counter> incr(const std::string& key) = 0;
};

template <class T>
class Plain final : public Any {
 public:
  explicit Plain(T client) : client_(std::move(client)) {}
  Result<Counter> incr(const std::string& key) override {
    if constexpr (std::same_as<T, AsyncClient>) {
      return client_.incr(key).start().wait();
    } else {
      return client_.incr(key);
    }
  }

 private:
  T client_;
};

template <class T>
std::unique_ptr<Any> any_of(Result<T> client) {
  if (!client) return nullptr;
  return std::make_unique<Plain<T>>(std::move(*client));
}

class OfC final : public Any {
 public:
  explicit OfC(rkv_client* client) : client_(client) {}
  ~OfC() override { rkv_free(client_); }
  OfC(const OfC&) = delete;
  OfC& operator=(const OfC&) = delete;
  Result<Counter> incr(const std::string& key) override {
    rkv_error error;
    Counter sum;
    if (rkv_incr(client_, key.data(), key.size(), 1, nullptr, &sum.number, &error) == RKV_OK)
      return sum;
    return std::unexpected(Error{.code = static_cast<Code>(error.code),
                                 .write = error.may_have_happened != 0
                                              ? WriteOutcome::kMayHaveHappened
                                              : WriteOutcome::kNotApplied});
  }

 private:
  rkv_client* client_;
};

class OfAsyncC final : public Any {
 public:
  explicit OfAsyncC(rkv_async* client) : client_(client) {}
  ~OfAsyncC() override { rkv_async_free(client_); }
  OfAsyncC(const OfAsyncC&) = delete;
  OfAsyncC& operator=(const OfAsyncC&) = delete;
  Result<Counter> incr(const std::string& key) override {
    std::optional<Result<Counter>> sum;
    const auto take = [](void* to, const rkv_result* told) {
      Result<Counter> result = Counter{.number = told->number};
      if (told->status != RKV_OK)
        result = std::unexpected(Error{.code = static_cast<Code>(told->status),
                                       .write = told->error->may_have_happened != 0
                                                    ? WriteOutcome::kMayHaveHappened
                                                    : WriteOutcome::kNotApplied});
      static_cast<std::optional<Result<Counter>>*>(to)->emplace(result);
    };
    if (rkv_async_incr(client_, key.data(), key.size(), 1, nullptr, nullptr, take, &sum, nullptr) !=
        RKV_OK)
      return fail(Code::kInternal, "not begun");
    while (!sum) {
      rkv_async_poll(client_);
      pollfd waits{.fd = rkv_async_descriptor(client_), .events = POLLIN, .revents = 0};
      if (!sum && rkv_async_arm(client_) != 0) ::poll(&waits, 1, 10'000);
    }
    return *sum;
  }

 private:
  rkv_async* client_;
};

struct Options {
  explicit Options(const std::string& server, const char* name) {
    set(name, server);
    set("transport", std::array{"", "verbs", "shm", "tcp"}[static_cast<int>(test_transport())]);
  }
  ~Options() { rkv_options_free(options); }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  void set(const char* name, const std::string& value) {
    rkv_error error;
    EXPECT_EQ(rkv_options_set(options, name, value.c_str(), &error), RKV_OK) << error.text;
  }
  rkv_options* options = rkv_options_new();
};

std::unique_ptr<Any> of_c(const std::string& server, const char* option) {
  const Options options(server, option);
  rkv_client* client = nullptr;
  if (rkv_connect(options.options, &client, nullptr) != RKV_OK) return nullptr;
  return std::make_unique<OfC>(client);
}

struct Kind {
  const char* name;
  std::unique_ptr<Any> (*make)(const std::string& server);
  bool is_for_threads;
};

const std::array kKinds = {
    Kind{"Client",
         [](const std::string& server) { return any_of(Client::connect(options_of(server))); },
         false},
    Kind{"Cluster",
         [](const std::string& server) {
           return any_of(Cluster::connect(*ShardMap::parse(server), options_of(server)));
         },
         false},
    Kind{"Shared",
         [](const std::string& server) {
           return any_of(SharedClient::connect(options_of(server), 2));
         },
         true},
    Kind{"Async",
         [](const std::string& server) { return any_of(AsyncClient::connect(options_of(server))); },
         true},
    Kind{"C", [](const std::string& server) { return of_c(server, "server"); }, true},
    Kind{"CCluster", [](const std::string& server) { return of_c(server, "servers"); }, true},
    Kind{"CAsync",
         [](const std::string& server) -> std::unique_ptr<Any> {
           const Options options(server, "server");
           rkv_async* client = nullptr;
           if (rkv_async_connect(options.options, &client, nullptr) != RKV_OK) return nullptr;
           return std::make_unique<OfAsyncC>(client);
         },
         false},
};

bool is_refused(const Result<Counter>& result) {
  return !result && result.error().code == Code::kInvalidArgument &&
         result.error().write == WriteOutcome::kNotApplied;
}

// In a child: a client of its own works. Over verbs it is refused (rdma/README.md).
void expect_own_client_works(const Kind& kind, const Server& server, std::unique_ptr<Any>& client) {
  client = kind.make(server.address());
  if (test_transport() == Transport::kVerbs) {
    CHILD_EXPECT(client == nullptr);
    return;
  }
  CHILD_EXPECT(client != nullptr);
  for (int i = 0; i < 20; ++i)
    CHILD_EXPECT(client->incr("child"));
  client.reset();
}

class Fork : public ::testing::TestWithParam<Kind> {
 protected:
  Fork() : client_(GetParam().make(server_.address())) {}
  void SetUp() override {
    ASSERT_NE(client_, nullptr);
    const auto first = client_->incr("parent");
    ASSERT_TRUE(first) << to_string(first.error());
    accepted_ = server_stat(looker_, "connections_accepted");
  }
  // The parent's counter goes on, over the same connections.
  void expect_undisturbed() {
    const auto sum = client_->incr("parent");
    ASSERT_TRUE(sum) << to_string(sum.error());
    EXPECT_EQ(sum->number, ++last_);
    EXPECT_EQ(server_stat(looker_, "connections_accepted"), accepted_) << "it had to reconnect";
  }

  Server server_;
  Client looker_ = server_.client();
  std::unique_ptr<Any> client_;
  std::uint64_t accepted_ = 0;
  std::int64_t last_ = 1;
};

TEST_P(Fork, AChildThatOnlyEnds) {
  for (int i = 0; i < 3; ++i) {
    Child child([&] { client_.reset(); });
    EXPECT_EQ(child.wrong(), "");
    expect_undisturbed();
  }
  // Also after a connection was lost, which takes a thread of the client to mend.
  server_.kill();
  server_.start();
  while (!client_->incr("parent"))
    std::this_thread::sleep_for(10ms);
  Child child([&] { client_.reset(); });
  EXPECT_EQ(child.wrong(), "");
  EXPECT_TRUE(client_->incr("parent"));
}

TEST_P(Fork, AChildThatMakesAClientOfItsOwnInTheSamePlace) {
  for (int i = 0; i < 3; ++i) {
    Child child([&] { expect_own_client_works(GetParam(), server_, client_); });
    EXPECT_EQ(child.wrong(), "");
    accepted_ = server_stat(looker_, "connections_accepted");
    expect_undisturbed();
  }
}

TEST_P(Fork, AChildThatIsForkedWhileThreadsAreInCalls) {
  std::atomic<bool> stops = false;
  std::atomic<std::int64_t> added = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < (GetParam().is_for_threads ? 4 : 1); ++t)
    threads.emplace_back([&] {
      while (!stops) {
        const auto sum = client_->incr("parent");
        EXPECT_TRUE(sum) << to_string(sum.error());
        ++added;
      }
    });
  for (int i = 0; i < 8; ++i) {
    const std::int64_t before = added;
    while (added < before + 20)
      std::this_thread::sleep_for(1ms);
    Child child([&] {
      CHILD_EXPECT(is_refused(client_->incr("parent")));
      expect_own_client_works(GetParam(), server_, client_);
    });
    EXPECT_EQ(child.wrong(), "");
  }
  stops = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(looker_.get_counter("parent")->number, 1 + added);
}

TEST_P(Fork, AChildThatUsesItBesideItsParent) {
  constexpr int kEach = 300;
  Child child([&] {
    for (int i = 0; i < kEach; ++i)
      CHILD_EXPECT(is_refused(client_->incr("parent")));
    Child of_its_own([&] { CHILD_EXPECT(is_refused(client_->incr("parent"))); });
    CHILD_EXPECT(of_its_own.wrong().empty());
  });
  for (int i = 0; i < kEach; ++i) {
    const auto sum = client_->incr("parent");
    ASSERT_TRUE(sum) << to_string(sum.error());
    EXPECT_EQ(sum->number, ++last_);
  }
  EXPECT_EQ(child.wrong(), "");
  expect_undisturbed();
}

// Replaces the tests in main(): makes a client, and a child that lives until stdin ends, then ends
// like a killed process, without destroying anything. Returns only on an error.
int be_a_parent(const std::string& kind_name, const std::string& server) {
  const auto* kind = std::ranges::find(kKinds, kind_name, &Kind::name);
  if (kind == kKinds.end()) return 2;
  auto own = kind->make(server);
  if (!own || !own->incr("other")) return 1;
  if (fork() != 0) _exit(0);
  char byte = 0;
  _exit(static_cast<int>(read(STDIN_FILENO, &byte, 1)));
}

// A child's copy of the socket must not keep the connection. Its copy of an RDMA device's
// descriptors does (client/README.md).
TEST_P(Fork, TheServerNoticesTheEndOfAParentWhoseChildLives) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const std::uint64_t before = server_stat(looker_, "connections");
  Child parent([&] {  // exec: a child of this process could not use RDMA
    dup2(ends[0], STDIN_FILENO);
    execl("/proc/self/exe", "fork_test", kParent, GetParam().name, server_.address().c_str(),
          nullptr);
  });
  close(ends[0]);
  EXPECT_EQ(parent.wrong(), "");
  const auto connections_are_back = [&] {
    for (int i = 0; i < 1000 && server_stat(looker_, "connections") != before; ++i)
      std::this_thread::sleep_for(10ms);
    return server_stat(looker_, "connections") == before;
  };
  if (test_transport() != Transport::kVerbs) {
    EXPECT_TRUE(connections_are_back());
  }
  close(ends[1]);
  EXPECT_TRUE(connections_are_back());
}

INSTANTIATE_TEST_SUITE_P(Kinds, Fork, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

// ---- what only one kind has

struct ForkedClient : ::testing::Test {
  Server server;
  Client client = server.client();
};

TEST_F(ForkedClient, EveryCallIsRefused) {
  auto buffer = client.allocate_buffer(1 << 20);
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(client.put("key", "value"));
  auto counter = client.open_counter("counter");
  Child child([&] {
    const auto is_told = [](const auto& result) {
      return !result && result.error().code == Code::kInvalidArgument &&
             std::string(result.error().text).find("fork()") != std::string::npos;
    };
    std::array<std::byte, 8> room{};
    const std::array<std::string_view, 2> keys = {"key", "other"};
    const std::array<KeyValue, 1> items = {KeyValue{.key = "key", .value = "new"}};
    CHILD_EXPECT(is_told(client.get("key")));
    CHILD_EXPECT(is_told(client.get_into("key", room)));
    CHILD_EXPECT(is_told(client.get_into("key", *buffer)));
    CHILD_EXPECT(is_told(client.put("key", "new")));
    CHILD_EXPECT(is_told(client.put_from("key", *buffer, 100)));
    CHILD_EXPECT(is_told(client.remove("key")));
    CHILD_EXPECT(is_told(client.allocate_buffer(4096)));
    for (const auto& got : client.multi_get(keys))
      CHILD_EXPECT(is_told(got));
    for (const auto& put : client.multi_put(items))
      CHILD_EXPECT(is_told(put));
    CHILD_EXPECT(is_told(client.scan()));
    CHILD_EXPECT(is_told(client.ping()));
    CHILD_EXPECT(is_told(client.ping_one_sided()));
    CHILD_EXPECT(is_told(client.flush()));
    CHILD_EXPECT(is_told(client.backup("name")));
    CHILD_EXPECT(is_told(client.server_stats()));
    CHILD_EXPECT(is_told(client.revoke_user("name")));
    CHILD_EXPECT(is_told(client.move_primary("name")));
    CHILD_EXPECT(is_told(client.remove_replica("name")));
    CHILD_EXPECT(is_told(client.open_counter("counter")));
    if (counter) {
      CHILD_EXPECT(is_told(client.incr(*counter)));
      const std::array<CounterAddition, 1> all = {
          CounterAddition{.counter = &*counter, .summand = 1}};
      CHILD_EXPECT(is_told(client.multi_incr(all).front()));
    }
    CHILD_EXPECT(buffer->is_inherited());
    buffer = fail(Code::kInternal, "destroyed");
  });
  EXPECT_EQ(child.wrong(), "");
  EXPECT_EQ(client.get("key")->value, "value");
}

// A transport that is shared by clients is inherited like them.
TEST_F(ForkedClient, AnInheritedTransportIsRefused) {
  auto chosen = rdma::choose_for_client(
      {.kind = test_transport_kind(), .verbs = {.address = server.address()}});
  ASSERT_TRUE(chosen) << to_string(chosen.error());
  const std::shared_ptr<rdma::Transport> transport = std::move(chosen->transport);
  Child child([&] {
    const auto own = Client::connect(options_of(server.address()), transport);
    CHILD_EXPECT(!own && own.error().code == Code::kInvalidArgument);
  });
  EXPECT_EQ(child.wrong(), "");
}

// Operations in flight at the fork are the parent's: none ends in the child.
TEST_F(ForkedClient, AnAsynchronousOneEndsTheParentsOperationsInTheParentAlone) {
  auto async = AsyncClient::connect(options_of(server.address()));
  ASSERT_TRUE(async) << to_string(async.error());
  constexpr int kCount = 100;
  int ended = 0;
  for (int i = 0; i < kCount; ++i)
    async->incr("sum").then([&](const Result<Counter>& sum) { ended += sum ? 1 : 1000; });
  auto waits = async->get("absent").start();
  Child child([&] {
    const int descriptor = async->descriptor();
    pollfd readable{.fd = descriptor, .events = POLLIN, .revents = 0};
    CHILD_EXPECT(async->poll() == 0 && async->in_flight() == 0);
    CHILD_EXPECT(async->arm() && ::poll(&readable, 1, 0) == 0);
    Result<Value> told = Value{};
    async->get("key").then([&](const Result<Value>& got) { told = got; });
    CHILD_EXPECT(told && async->in_flight() == 1);
    CHILD_EXPECT(!async->arm() && ::poll(&readable, 1, 0) == 1);
    CHILD_EXPECT(async->poll() == 1 && !told && told.error().code == Code::kInvalidArgument);
    CHILD_EXPECT(async->arm() && ::poll(&readable, 1, 0) == 0);
    CHILD_EXPECT(!async->wait(10ms));
    CHILD_EXPECT(!waits.ready() && !waits.wait());
    CHILD_EXPECT(async->close());
    CHILD_EXPECT(ended == 0);
  });
  EXPECT_EQ(child.wrong(), "");
  while (async->in_flight() != 0)
    ASSERT_TRUE(async->wait(10s));
  EXPECT_EQ(ended, kCount);
  EXPECT_EQ(waits.wait().error().code, Code::kNotFound);
}

}  // namespace
}  // namespace rkv::testing_support

int main(int argc, char** argv) {
  using namespace rkv::testing_support;
  if (argc == 4 && std::string_view(argv[1]) == kParent) return be_a_parent(argv[2], argv[3]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
