// Connection requests without a client behind them, over verbs: the handshake is left where its
// last word is due. They have places for a moment, and lose them to who comes.
#include <gtest/gtest.h>

#include <vector>

#include "common/clock.h"
#include "common/wire.h"
#include "rkv/rdma/cm.h"
#include "rkv/rdma/connect.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

template <class T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result) << to_string(result.error());
  if (!result) std::abort();
  return std::move(*result);
}

// A caller that has been accepted, as far as the server knows, and never says that it has heard. On
// iWARP nobody says that: the caller is connected, and silent.
struct HalfOpen {
  rdma::CmId id;
  rdma::PreparedQueuePair<> prepared;
};

class Callers {
 public:
  explicit Callers(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    there_ =
        value_of(rdma::resolve(
                     {.host = address.substr(0, colon),
                      .port = static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)))},
                     Deadline::after_ms(clock_, 20'000)))
            .front();
  }
  void call() {
    rdma::CmId id = value_of(rdma::CmId::create(channel_));
    EXPECT_TRUE(id.resolve_address(there_, nullptr, 20'000));
    await(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_TRUE(id.resolve_route(20'000));
    await(RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (!domain_) {
      domain_.emplace(value_of(rdma::ProtectionDomain::allocate(id.device())));
      completions_.emplace(value_of(rdma::CompletionQueue::create(id.device(), {.entries = 512})));
    }
    auto prepared = value_of(rdma::QueuePair::create(*domain_, *completions_, *completions_, {}));
    std::byte hello[kConnectRequestBytes];
    encode(ConnectRequest{.credits_wanted = 4, .name = "half open"}, hello);
    EXPECT_TRUE(id.to_init(prepared, {}));
    EXPECT_TRUE(id.connect(prepared, {}, {}, hello));
    await(id.device().info().iwarp ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE);
    half_.push_back({.id = std::move(id), .prepared = std::move(prepared)});
  }

 private:
  void await(rdma_cm_event_type type) {
    const rdma::CmEvent event = value_of(channel_.wait(Deadline::after_ms(clock_, 20'000)));
    EXPECT_EQ(event.type(), type) << event.name();
  }

  const SteadyClock clock_;
  rdma::EventChannel channel_ = value_of(rdma::EventChannel::create());
  rdma::SocketAddress there_;
  std::optional<rdma::ProtectionDomain> domain_;
  std::optional<rdma::CompletionQueue> completions_;
  std::vector<HalfOpen> half_;
};

TEST(HalfOpenConnections, LoseTheirPlacesToWhoComes) {
  Server server({"--memory", "32MiB", "--max-clients", "16"});
  Callers callers(server.address());
  for (int i = 0; i < 16; ++i)
    callers.call();
  for (int i = 0; i < 3; ++i) {
    const Ended ended = kvclient(server.address(), {"--timeout", "20s", "put", "new", "client"});
    EXPECT_EQ(ended.status, 0) << ended.output;
  }
}

}  // namespace
}  // namespace rkv::testing_support
