// The message transports on verbs: what every transport must do, on the address in
// RKV_RDMA_ADDRESS.
#include <cstdlib>

#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/read_ring.h"
#include "rkv/rdma/message/send_receive.h"
#include "tests/rdma/message/stream_scenarios.h"
#include "tests/rdma/message/transport_scenarios.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct OverSendReceive {
  using Builder = SendReceiveBuilder;
  static Builder usual() { return {}; }
  static Builder tiny() {
    return {.options = {.message_bytes = 512, .send_buffers = 2, .receive_buffers = 4}};
  }
  static SocketAddress address() { return device_address(); }
};
constexpr RingOptions kTinyRing = {.ring_bytes = 4096, .slots = 4, .message_bytes = 512};

struct OverCreditRing {
  using Builder = CreditRingBuilder;
  static Builder usual() { return {}; }
  static Builder tiny() { return {.options = kTinyRing}; }
  static SocketAddress address() { return device_address(); }
};

struct OverReadRing {
  using Builder = ReadRingBuilder;
  static Builder usual() { return {}; }
  static Builder tiny() { return {.options = kTinyRing}; }
  static SocketAddress address() { return device_address(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(SendReceive, TransportScenarios, OverSendReceive);
INSTANTIATE_TYPED_TEST_SUITE_P(SendReceive, StreamScenarios, OverSendReceive);
INSTANTIATE_TYPED_TEST_SUITE_P(CreditRing, TransportScenarios, OverCreditRing);
INSTANTIATE_TYPED_TEST_SUITE_P(CreditRing, StreamScenarios, OverCreditRing);
INSTANTIATE_TYPED_TEST_SUITE_P(ReadRing, TransportScenarios, OverReadRing);
INSTANTIATE_TYPED_TEST_SUITE_P(ReadRing, StreamScenarios, OverReadRing);

}  // namespace
}  // namespace rkv::rdma
