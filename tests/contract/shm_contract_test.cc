// The contract on shared memory: two transports of one process, in a directory of their own.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "tests/contract/harness.h"

namespace rkv::rdma::contract {
namespace {

class ShmHarness final : public Harness {
 public:
  explicit ShmHarness(std::string directory)
      : directory_(std::move(directory)),
        server_(*open_shm({.directory = directory_})),
        client_(*open_shm({.directory = directory_})) {}
  ~ShmHarness() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  ShmHarness(const ShmHarness&) = delete;
  ShmHarness& operator=(const ShmHarness&) = delete;

  Transport& server() override { return *server_; }
  Transport& client() override { return *client_; }
  std::string listen_address() override { return "127.0.0.1:0"; }
  bool reads_at_once() override { return true; }
  std::string connect_address(std::uint16_t port) override {
    return "127.0.0.1:" + std::to_string(port);
  }

 private:
  std::string directory_;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
};

std::unique_ptr<Harness> open_harness() {
  char directory[] = "/tmp/rkv-contract-XXXXXX";
  if (mkdtemp(directory) == nullptr) return nullptr;
  return std::make_unique<ShmHarness>(directory);
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportContract,
                         ::testing::Values(Backend{.name = "shm", .open = &open_harness}),
                         [](const auto& backend) { return std::string(backend.param.name); });

}  // namespace
}  // namespace rkv::rdma::contract
