// The contract on the verbs backend: real verbs on the address in RKV_RDMA_ADDRESS. Without a
// device every test fails.
#include <cstdlib>
#include <iostream>

#include "tests/contract/harness.h"

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

INSTANTIATE_TEST_SUITE_P(Verbs, TransportContract,
                         ::testing::Values(Backend{.name = "verbs", .open = &open_harness}),
                         [](const auto& backend) { return std::string(backend.param.name); });

// What the seam leaves to the backend.
TEST(VerbsTransport, DescribesTheDeviceItOpened) {
  const auto harness = open_harness();
  ASSERT_NE(harness, nullptr);
  const std::string text = harness->client().describe();
  EXPECT_TRUE(text.starts_with("verbs: ")) << text;
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
  bool found = false;
  for (int index = 0; index < 16 && !found; ++index) {
    const auto transport = open_verbs({.gid_index = index, .address = std::string(host) + ":0"});
    found = transport && (*transport)->describe().find(host) != std::string::npos;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(open_verbs({.gid_index = 9999}).error().code, Code::kNoDevice);
}

}  // namespace
}  // namespace rkv::rdma::contract
