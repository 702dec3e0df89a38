// Receive buffers of a shared queue when a connection ends. The device keeps a receive for a while
// after the marker, and drops unpolled completions when the queue pair is destroyed.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "rdma/transport/verbs/connection.h"
#include "tests/rdma/support/fake_rdma.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::verbs {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

TEST(SharedReceives, AreNotLostWithAReceiveThatIsFlushedBehindTheMarker) {
  FakeRdma fake;
  constexpr std::uint32_t kBuffers = 8;
  auto device = Device::borrow(fake.context());
  auto pd = need(ProtectionDomain::allocate(device));
  auto shared = std::make_shared<const Shared>(Shared{.anchor = nullptr,
                                                      .device = std::move(device),
                                                      .pd = std::move(pd),
                                                      .port = 1,
                                                      .gid = {},
                                                      .source = {},
                                                      .description = "fake"});
  auto queue = need(VerbsQueue::create(
      shared, {.completions = 64, .receive_buffers = kBuffers, .receive_bytes = 64}));
  ASSERT_EQ(fake.posted_receives(), kBuffers);
  Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
  auto connection = need(VerbsConnection::create(*queue, {.sends_in_flight = 4}));
  connection->adopt(need(std::move(connector).connect(connection->take_queue_pair(),
                                                      connection->parameters(), {}, soon())),
                    "peer");
  fake.take_receive();  // a message has begun to arrive
  EXPECT_EQ(fake.posted_receives(), kBuffers - 1);
  connection.reset();
  std::array<rdma::Completion, 4> none;
  EXPECT_EQ(queue->poll(none), 0U);
  EXPECT_EQ(fake.posted_receives(), kBuffers);
}

}  // namespace
}  // namespace rkv::rdma::verbs
