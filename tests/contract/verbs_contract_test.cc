// The contract on the verbs backend: real verbs on the address in RKV_RDMA_ADDRESS. Without a
// device every test fails.
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "link.h"
#include "rdma/transport/reopening/transport.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma::contract {
namespace {

class VerbsHarness final : public Harness {
 public:
  VerbsHarness(std::string host, std::unique_ptr<Transport> server,
               std::unique_ptr<Transport> client)
      : host_(std::move(host)), server_(std::move(server)), client_(std::move(client)) {}
  Transport& server() override { return *server_; }
  Transport& client() override { return *client_; }
  std::string listen_address() override { return host_ + ":0"; }
  std::string connect_address(std::uint16_t port) override {
    return host_ + ":" + std::to_string(port);
  }
  bool holds_messages() override {
    return !need(need(Device::of_connection_manager()).attributes()).iwarp;
  }
  int tries() override { return 5; }
  bool may_hold_bytes_back() override { return !holds_messages(); }
  // The kernel ends an iWARP request that nobody answers after 10 s, and not before.
  Nanos longest_giving_up() override {
    const bool iwarp = need(need(Device::of_connection_manager()).attributes()).iwarp;
    return (iwarp ? 15'000 : 3'000) * kNanosPerMs;
  }
  // Devices differ; the transport halves what is refused.
  std::uint32_t granted_inline_bytes(std::uint32_t wanted) override {
    const Device device = need(Device::of_connection_manager());
    const ProtectionDomain pd = need(ProtectionDomain::allocate(device));
    const CompletionQueue queue = need(CompletionQueue::create(device, {.entries = 16}));
    while (wanted != 0 && !QueuePair::create(pd, queue, queue, {.inline_bytes = wanted}))
      wanted /= 2;
    return wanted;
  }

 private:
  std::string host_;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
};

std::unique_ptr<Harness> open_harness() {
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  if (host == nullptr) {
    std::cerr << "RKV_RDMA_ADDRESS must name an address of an RDMA device\n";
    return nullptr;
  }
  const VerbsOptions options{.address = std::string(host) + ":0"};
  auto server = open_verbs(options);
  auto client = open_verbs(options);
  if (!server || !client) {
    std::cerr << to_string(server ? client.error() : server.error()) << '\n';
    return nullptr;
  }
  return std::make_unique<VerbsHarness>(host, std::move(*server), std::move(*client));
}

// The server's side as kvserver has it.
std::unique_ptr<Harness> open_reopening_harness() {
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  if (host == nullptr) return open_harness();
  const VerbsOptions options{.address = std::string(host) + ":0"};
  auto server = ReopeningTransport::wrap(need(open_verbs(options)),
                                         [options] { return open_verbs(options); });
  return std::make_unique<VerbsHarness>(host, need(std::move(server)), need(open_verbs(options)));
}

INSTANTIATE_TEST_SUITE_P(Verbs, TransportContract,
                         ::testing::Values(Backend{.name = "verbs", .open = &open_harness},
                                           Backend{.name = "reopening",
                                                   .open = &open_reopening_harness}),
                         [](const auto& backend) { return std::string(backend.param.name); });

DeviceAttributes device_limits() {
  return need(need(Device::of_connection_manager()).attributes());
}

// Behaviour that the seam leaves to the backend.
TEST(VerbsTransport, DescribesTheDeviceItOpened) {
  const auto harness = open_harness();
  ASSERT_NE(harness, nullptr);
  const std::string text = harness->client().describe();
  EXPECT_TRUE(text.starts_with("verbs: ")) << text;
  if (device_limits().iwarp) {  // its GID is not an address
    EXPECT_NE(text.find("(iWARP)"), std::string::npos) << text;
    return;
  }
  EXPECT_NE(text.find("gid"), std::string::npos) << text;
  EXPECT_NE(text.find(std::getenv("RKV_RDMA_ADDRESS")), std::string::npos) << text;
}

TEST(VerbsTransport, AnUnknownDeviceIsNamedWithWhatToDo) {
  const auto missing = open_verbs({.device = "no_such_device"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNoDevice);
  EXPECT_NE(missing.error().text, nullptr);
}

TEST(VerbsTransport, AChosenGidIsUsed) {
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  ASSERT_NE(host, nullptr);
  if (device_limits().iwarp) {
    EXPECT_EQ(open_verbs({.gid_index = 0}).error().code, Code::kInvalidArgument);
    return;
  }
  bool found = false;
  for (int index = 0; index < 16 && !found; ++index) {
    const auto transport = open_verbs({.gid_index = index, .address = std::string(host) + ":0"});
    found = transport && (*transport)->describe().find(host) != std::string::npos;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(open_verbs({.gid_index = 9999}).error().code, Code::kNoDevice);
}

// As of a device that answers no more: nothing is taken from it, and nobody is left without an end.
TEST(VerbsTransport, AnAbandonedQueueTellsTheEndOfAllThatWasOutstanding) {
  constexpr std::uint64_t kReads = 20;
  const auto harness = open_harness();
  ASSERT_NE(harness, nullptr);
  Link link(*harness);
  for (std::uint64_t i = 0; i < kReads; ++i) {
    Operation read =
        Operation::read(link.client.piece(8 * i, 8), link.client.region->local_key(),
                        link.server.region->address(), link.server.region->remote_key(), i);
    read.signaled = i % 2 == 0;
    ASSERT_EQ(need(link.active->post(std::span(&read, 1))), 1U);
  }
  EXPECT_NE(link.client.queue->connections(), 0U);
  link.client.queue->abandon();
  ASSERT_TRUE(link.client.until_disconnected());
  ASSERT_EQ(link.client.seen.size(), kReads + 1);
  for (std::uint64_t i = 0; i < kReads; ++i) {
    EXPECT_EQ(link.client.seen[i].kind, Completion::Kind::kRead);
    EXPECT_EQ(link.client.seen[i].status, Completion::Status::kFlushed);
    EXPECT_EQ(link.client.seen[i].context, i);
  }
  EXPECT_EQ(link.client.seen.back().kind, Completion::Kind::kDisconnected);
  EXPECT_EQ(link.client.poll_once(), 0U);
  // One that joins later ends as well.
  auto late = join(*harness, *link.listener, link.client, link.server, {});
  ASSERT_NE(late.first, nullptr);
  EXPECT_TRUE(
      link.client.until([&] { return link.client.count(Completion::Kind::kDisconnected) == 2; }));
  link.active.reset();
  EXPECT_NE(link.client.queue->connections(), 0U);
  late.first.reset();
  EXPECT_EQ(link.client.queue->connections(), 0U);
}

// Nothing is in flight. The peer of one connection refuses the probe, and that connection ends;
// that of the other one answers.
TEST(VerbsTransport, ASilentPeerIsLookedAfter) {
  const auto harness = open_harness();
  ASSERT_NE(harness, nullptr);
  LinkOptions options;
  options.server.peer_grants_reads = true;
  Link link(*harness, options);
  options.client.grant = Access::kRemoteRead;
  const auto other = join(*harness, *link.listener, link.client, link.server, options);
  ASSERT_NE(other.second, nullptr);
  if (!harness->server().enforces_grants()) {  // the device answers whatever the peer grants
    EXPECT_FALSE(link.server.until_disconnected());
    EXPECT_TRUE(link.passive->alive());
    EXPECT_TRUE(other.second->alive());
    return;
  }
  ASSERT_TRUE(link.server.until_disconnected());
  ASSERT_EQ(link.server.seen.size(), 1U) << "the probe itself is not reported";
  EXPECT_EQ(link.server.seen[0].connection, link.passive.get());
  EXPECT_FALSE(link.passive->alive());
  EXPECT_TRUE(other.second->alive());
}

// One memory, two networks: what a server with clients on its own host and on others does.
class TwoNetworks : public ::testing::Test {
 protected:
  TwoNetworks() : verbs_(open_harness()) {
    char directory[] = "/tmp/rkv-two-networks-XXXXXX";
    if (mkdtemp(directory) != nullptr) directory_ = directory;
    auto opened = open_shm({.directory = directory_});
    if (opened) shm_ = std::move(*opened);
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  // Connects over one network and READs 8 bytes of the region.
  std::uint64_t read_over(Transport& server, Transport& client, const std::string& host,
                          const Region& region) {
    const auto listener = need(server.listen(host + ":0"));
    End client_end(*verbs_, client, {}, Access::kLocal);
    End server_end(*verbs_, server, {}, Access::kLocal);
    std::unique_ptr<Connection> active;
    std::unique_ptr<Connection> passive;
    verbs_->run_both(
        [&] {
          auto incoming = need(listener->next(server_end.soon()));
          passive = need(incoming->accept(*server_end.queue, {.grant = Access::kRemoteRead}, {},
                                          server_end.soon()));
        },
        [&] {
          active = need(client.connect(*client_end.queue, {},
                                       host + ":" + std::to_string(listener->port()), {},
                                       client_end.soon(), nullptr));
        });
    const Operation read = Operation::read(client_end.piece(0, 8), client_end.region->local_key(),
                                           region.address(), region.remote_key(), 1);
    EXPECT_EQ(need(active->post(std::span(&read, 1))), 1U);
    EXPECT_TRUE(client_end.until_seen(1));
    EXPECT_TRUE(client_end.seen[0].ok()) << to_string(client_end.seen[0].status);
    return client_end.word(0);
  }

  std::unique_ptr<Harness> verbs_;
  std::string directory_;
  std::unique_ptr<Transport> shm_;
};

TEST_F(TwoNetworks, OneMemoryIsReadOverBothUnderAKeyOfEach) {
  ASSERT_NE(verbs_, nullptr);
  ASSERT_NE(shm_, nullptr);
  const auto region = need(shm_->allocate(8192, Access::kRemoteRead));
  const auto attached = need(verbs_->server().attach(region->bytes(), Access::kRemoteRead));
  EXPECT_EQ(attached->address(), region->address());
  store_le<std::uint64_t>(region->bytes().data(), 0x1234'5678);
  const auto shm_client = need(open_shm({.directory = directory_}));
  EXPECT_EQ(read_over(*shm_, *shm_client, "127.0.0.1", *region), 0x1234'5678U);
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(read_over(verbs_->server(), verbs_->client(), host, *attached), 0x1234'5678U);
}

}  // namespace
}  // namespace rkv::rdma::contract
