// The message transports on verbs: what every transport must do, on the address in RKV_RDMA_ADDRESS.
#include <cstdlib>

#include "rkv/rdma/message/send_receive.h"
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
INSTANTIATE_TYPED_TEST_SUITE_P(SendReceive, TransportScenarios, OverSendReceive);

}  // namespace
}  // namespace rkv::rdma
