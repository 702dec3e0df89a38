// Clients of a group's servers over shared memory. The servers are made of their parts, and the
// test is their replicator: it moves ticks and marks, makes rounds, or does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "common/random.h"
#include "common/trust_times.h"
#include "rdma/choose.h"
#include "rkv/client.h"
#include "server/clients/network/endpoints.h"
#include "server/log/replication_reader.h"
#include "server/store/store.h"

namespace rkv::server {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kBoot = 1;
constexpr std::uint32_t kPlaces = 8;

class GroupServer {
 public:
  GroupServer()
      : endpoints_(std::move(*rdma::choose_for_server({.kind = rdma::TransportKind::kShm}))),
        log_(std::move(
            *CommitLog::create(CommitLog::kMinServerCapacityBytes, CommitLog::Group::kReplicated))),
        reader_(*log_) {
    EXPECT_TRUE(endpoints_.listen("127.0.0.1:0", clock_));
    memory_ = std::move(*StoreMemory::create(
        {.memory_bytes = kMinMemoryBytes, .epoch = random_from_kernel(), .hash_seed = 3},
        [this](std::size_t bytes) { return endpoints_.allocate(bytes); }));
    store_ = std::make_unique<Store>(*memory_, *log_, clock_, kBoot);
    EXPECT_TRUE(endpoints_.create_roots(*memory_));
    EXPECT_TRUE(endpoints_.create_hints(*store_));
    EXPECT_TRUE(
        endpoints_.create_workers(1, [this](rdma::Transport& transport, std::uint32_t network) {
          return Worker::create({.transport = transport,
                                 .store = *store_,
                                 .log = *log_,
                                 .clock = clock_,
                                 .boot = kBoot,
                                 .stats = [] { return std::string("{}"); },
                                 .make_durable = [](Durability, std::uint64_t) {},
                                 .network = network,
                                 .outcomes = &outcomes_,
                                 .rounds = &rounds_},
                                {.clients = kPlaces});
        }));
  }
  ~GroupServer() {
    over_ = true;
    if (replicator_.joinable()) replicator_.join();
    endpoints_.stop();
    endpoints_.end_workers();
  }
  GroupServer(const GroupServer&) = delete;
  GroupServer& operator=(const GroupServer&) = delete;

  std::string address() const { return fmt::format("127.0.0.1:{}", endpoints_.port()); }
  void become_backup_of(const std::string& primary) { endpoints_.refuse_as_backup(primary); }
  void become_primary() {
    replicator_ = std::thread([this] {
      while (!over_.load())
        replicate();
    });
    endpoints_.admit({.workers = {},
                      .all_workers = {},
                      .epoch = memory_->epoch(),
                      .root = {},
                      .in_group = true,
                      .max_clients = kPlaces});
  }

  std::atomic<bool> ticks = true;
  std::atomic<bool> moves_mark = true;
  std::atomic<bool> makes_rounds = true;
  std::atomic<Nanos> last_tick = 0;

 private:
  void replicate() {
    const std::uint64_t round = rounds_.begin();
    for (CommitLog::Entry entry; reader_.next(&entry);) {
    }
    if (moves_mark) log_->set_replicated_mark(reader_.position());
    if (makes_rounds) rounds_.complete(round);
    if (ticks) last_tick = clock_.now();
    memory_->set_group_line(last_tick, Version::of(kBoot, log_->replicated_mark()));
    endpoints_.wake_workers();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  const RawClock clock_;
  Endpoints endpoints_;
  std::unique_ptr<CommitLog> log_;
  ReplicationReader reader_;
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Store> store_;
  ReplicationRounds rounds_;
  OutcomeArchive outcomes_{clock_, 8};
  std::atomic<bool> over_ = false;
  std::thread replicator_;
};

class GroupClients : public ::testing::Test {
 protected:
  GroupClients() { first_.become_primary(); }
  static Client connect(const std::string& servers) {
    auto client = Client::connect({.server = servers, .transport = Transport::kShm});
    EXPECT_TRUE(client) << to_string(client.error());
    return std::move(*client);
  }
  std::string both() const { return first_.address() + "," + second_.address(); }

  GroupServer first_;
  GroupServer second_;
};

TEST_F(GroupClients, AllOperationsWork) {
  Client client = connect(first_.address());
  ASSERT_TRUE(client.put("key", "value"));
  EXPECT_EQ(client.get("key")->value, "value");
  EXPECT_EQ(client.put_if_absent("key", "other").error().code, Code::kConflict);
  EXPECT_EQ(client.incr("count", 5)->number, 5);
  EXPECT_EQ(client.get("count")->is_counter, true);
  const std::string large(200'000, 'v');
  ASSERT_TRUE(client.put("large", large));
  EXPECT_EQ(client.get("large")->value, large);
  const std::vector<std::string_view> keys = {"key", "large", "missing", "count"};
  const auto found = client.multi_get(keys);
  EXPECT_EQ(found[0]->value, "value");
  EXPECT_EQ(found[1]->value, large);
  EXPECT_EQ(found[2].error().code, Code::kNotFound);
  ASSERT_TRUE(client.remove("key"));
  EXPECT_EQ(client.get("key").error().code, Code::kNotFound);
  const ClientStats before = client.stats();
  for (int i = 0; i < 20'000; ++i)
    ASSERT_TRUE(client.get("count"));
  EXPECT_EQ(client.stats().one_sided_gets - before.one_sided_gets, 20'000U);
  EXPECT_EQ(client.stats().rdma_reads - before.rdma_reads, 20'000U);
}

TEST_F(GroupClients, NothingIsShownThatIsNotReplicated) {
  Client reader = connect(first_.address());
  Client writer = connect(first_.address());
  ASSERT_TRUE(writer.put("key", "old"));
  ASSERT_TRUE(writer.put("other", "old"));
  ASSERT_EQ(reader.get("key")->value, "old");
  first_.moves_mark = false;
  std::thread writing([&] {
    EXPECT_TRUE(writer.put("key", "new"));
    EXPECT_TRUE(writer.remove("other"));
  });
  const auto is_new = [&](std::string_view key) {
    const auto got = reader.get(key, {.timeout = milliseconds(20)});
    return !got || got->value != "old";
  };
  while (!is_new("key"))  // until the record is published
    std::this_thread::yield();
  EXPECT_EQ(reader.get("key", {.timeout = milliseconds(100)}).error().code, Code::kTimeout);
  EXPECT_EQ(reader.get("other")->value, "old");
  first_.moves_mark = true;
  EXPECT_EQ(reader.get("key")->value, "new");
  writing.join();
  EXPECT_EQ(reader.get("other").error().code, Code::kNotFound);
}

TEST_F(GroupClients, AMissAwaitsTheMarkOfItsRemoval) {
  Client reader = connect(first_.address());
  Client writer = connect(first_.address());
  ASSERT_TRUE(writer.put("key", "old"));
  ASSERT_EQ(reader.get("key")->value, "old");
  first_.moves_mark = false;
  std::thread writing([&] { EXPECT_TRUE(writer.remove("key")); });
  for (;;) {
    const auto got = reader.get("key", {.timeout = milliseconds(50)});
    if (got) continue;
    EXPECT_NE(got.error().code, Code::kNotFound) << "the removal may be taken back";
    break;
  }
  first_.moves_mark = true;
  EXPECT_EQ(reader.get("key").error().code, Code::kNotFound);
  writing.join();
}

// The first is deposed: it answers READs and requests as before, but another one has taken over.
TEST_F(GroupClients, NoValueOfADeposedPrimaryIsShown) {
  second_.become_primary();
  ASSERT_TRUE(connect(second_.address()).put("key", "second"));
  Client client = connect(both());
  ASSERT_TRUE(client.put("key", "first"));
  ASSERT_EQ(client.get("key")->value, "first");
  first_.makes_rounds = false;
  first_.ticks = false;
  const RawClock clock;
  int of_first = 0;
  for (bool moved = false; !moved;) {
    const Nanos began = clock.now();
    const auto got = client.get("key", {.timeout = milliseconds(10'000)});
    ASSERT_TRUE(got) << to_string(got.error());
    moved = got->value == "second";
    ASSERT_TRUE(moved || began < first_.last_tick + kTrustWindow);
    of_first += moved ? 0 : 1;
  }
  EXPECT_GT(of_first, 0) << "it was believed as long as its tick covered it";
  ASSERT_TRUE(client.put("key", "again"));
  EXPECT_EQ(connect(second_.address()).get("key")->value, "again");
}

TEST_F(GroupClients, APrimaryThatMakesNoRoundsIsNotBelievedByNewcomers) {
  first_.makes_rounds = false;
  const auto client = Client::connect(
      {.server = first_.address(), .timeout = milliseconds(1500), .transport = Transport::kShm});
  EXPECT_FALSE(client) << "its clock is not known";
  first_.makes_rounds = true;
  EXPECT_FALSE(connect(first_.address()).get("key"));
}

TEST_F(GroupClients, ABackupDirectsToThePrimary) {
  second_.become_backup_of(first_.address());
  Client client = connect(second_.address());
  ASSERT_TRUE(client.put("key", "value"));
  EXPECT_EQ(connect(first_.address()).get("key")->value, "value");
}

TEST_F(GroupClients, AServerThatBecomesThePrimaryIsFound) {
  GroupServer third;
  third.become_backup_of("");
  second_.become_backup_of("");
  std::thread elected([&] {
    std::this_thread::sleep_for(milliseconds(100));  // clients are refused meanwhile
    second_.become_primary();
  });
  Client client = connect(third.address() + "," + second_.address());
  EXPECT_TRUE(client.put("key", "value"));
  elected.join();
}

// Without the bit of groups a client would believe everything.
TEST_F(GroupClients, ClientsThatKnowNoGroupsAreRefused) {
  auto transport = rdma::choose_for_client(
      {.kind = rdma::TransportKind::kShm, .verbs = {.address = first_.address()}});
  ASSERT_TRUE(transport);
  auto queue = transport->transport->create_queue({.receive_buffers = 8, .receive_bytes = 16'384});
  ASSERT_TRUE(queue);
  second_.become_backup_of(first_.address());
  const SteadyClock clock;
  for (const GroupServer* const server : {&first_, &second_}) {
    std::array<std::byte, kConnectRequestBytes> hello{};
    encode(ConnectRequest{.credits_wanted = 4, .name = "old"}, hello);
    rdma::Rejection rejection;
    auto made = transport->transport->connect(**queue, {.grant = rdma::Access::kRemoteRead},
                                              server->address(), hello,
                                              Deadline::after_ms(clock, 20'000), &rejection);
    ASSERT_FALSE(made);
    const auto reject = decode_connect_reject(Bytes(rejection.reason).first(rejection.length));
    ASSERT_TRUE(reject);
    EXPECT_EQ(reject->code, Code::kVersionMismatch);
  }
}

}  // namespace
}  // namespace rkv::server
