// The transport in memory, the one with faults, and what every transport must do on both.
#include "rkv/rdma/message/memory_transport.h"

#include "rkv/rdma/message/faulty_transport.h"
#include "tests/rdma/message/transport_scenarios.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr MemoryOptions kTiny = {.message_bytes = 512, .send_buffers = 2, .receive_buffers = 4};

struct InMemory {
  using Builder = MemoryBuilder;
  static Builder usual() { return shared(); }
  static Builder tiny() {
    Builder out = shared();
    out.options = kTiny;
    return out;
  }
  static SocketAddress address() { return {}; }
  static const Builder& shared() {
    static const Builder network;
    return network;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, TransportScenarios, InMemory);

// Gives one message at a time; the other faults break what the scenarios count on.
struct Moody {
  using Builder = FaultyBuilder<MemoryBuilder>;
  static constexpr Faults kFaults = {.receive_at_a_time = 1};
  static Builder usual() { return {InMemory::usual(), kFaults}; }
  static Builder tiny() { return {InMemory::tiny(), kFaults}; }
  static SocketAddress address() { return {}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, TransportScenarios, Moody);
static_assert(TransportBuilder<Moody::Builder>);

}  // namespace
}  // namespace rkv::rdma
