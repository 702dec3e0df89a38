// The contract on the simulated network: fibers instead of threads, simulated time.
#include <utility>

#include "tests/contract/harness.h"
#include "tests/sim/network/fabric.h"

namespace rkv::rdma::contract {
namespace {

class SimHarness final : public Harness {
 public:
  explicit SimHarness(std::uint64_t seed)
      : fabric_(std::make_shared<sim::Fabric>(seed)),
        server_(sim::open_sim(fabric_, "server")),
        client_(sim::open_sim(fabric_, "client")) {
    // Whatever order is left open is drawn at random; nothing fails.
    fabric_->faults().pieces = 4;
    fabric_->faults().piece_spread = 5'000;
    fabric_->faults().short_poll_in = 4;
    fabric_->faults().early_wake_in = 8;
  }
  Transport& server() override { return *server_; }
  Transport& client() override { return *client_; }
  std::string listen_address() override { return "server:0"; }
  std::string connect_address(std::uint16_t port) override {
    return "server:" + std::to_string(port);
  }
  bool waits_for_several() override { return false; }
  const Clock& clock() override { return fabric_->scheduler(); }
  void run_both(const std::function<void()>& a, const std::function<void()>& b) override {
    sim::Scheduler& scheduler = fabric_->scheduler();
    sim::WaitPoint both;
    int running = 2;
    for (const auto* body : {&a, &b}) {
      scheduler.spawn("contract", [&, body] {
        (*body)();
        --running;
        scheduler.notify(both);
      });
    }
    while (running != 0)
      scheduler.park(both, scheduler.now() + 1'000'000 * kNanosPerMs);
  }

 private:
  std::shared_ptr<sim::Fabric> fabric_;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
};

template <std::uint64_t kSeed>
std::unique_ptr<Harness> open_harness() {
  return std::make_unique<SimHarness>(kSeed);
}

INSTANTIATE_TEST_SUITE_P(Sim, TransportContract,
                         ::testing::Values(Backend{.name = "seed1", .open = &open_harness<1>},
                                           Backend{.name = "seed2", .open = &open_harness<2>},
                                           Backend{.name = "seed3", .open = &open_harness<3>},
                                           Backend{.name = "seed4", .open = &open_harness<4>}),
                         [](const auto& backend) { return std::string(backend.param.name); });

}  // namespace
}  // namespace rkv::rdma::contract
