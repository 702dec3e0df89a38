// The contract over TCP: two transports of one process, over the loopback interface.
#include "tests/contract/harness.h"

namespace rkv::rdma::contract {
namespace {

class TcpHarness final : public Harness {
 public:
  Transport& server() override { return *server_; }
  Transport& client() override { return *client_; }
  std::string listen_address() override { return "127.0.0.1:0"; }
  std::string connect_address(std::uint16_t port) override {
    return "127.0.0.1:" + std::to_string(port);
  }
  bool confirms_messages() override { return false; }

 private:
  const std::unique_ptr<Transport> server_ = *open_tcp();
  const std::unique_ptr<Transport> client_ = *open_tcp();
};

std::unique_ptr<Harness> open_harness() {
  return std::make_unique<TcpHarness>();
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract,
                         ::testing::Values(Backend{.name = "tcp", .open = &open_harness}),
                         [](const auto& backend) { return std::string(backend.param.name); });

}  // namespace
}  // namespace rkv::rdma::contract
