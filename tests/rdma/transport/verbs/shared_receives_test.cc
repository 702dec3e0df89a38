// Receive buffers of a shared queue when a connection ends. The device keeps a receive for a while
// after the marker, and drops unpolled completions when the queue pair is destroyed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "rdma/transport/verbs/connection.h"
#include "tests/rdma/support/fake_rdma.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::verbs {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kBuffers = 8;

class SharedReceives : public ::testing::Test {
 protected:
  static std::shared_ptr<const Shared> share(Device device) {
    auto pd = need(ProtectionDomain::allocate(device));
    return std::make_shared<const Shared>(Shared{.anchor = nullptr,
                                                 .device = std::move(device),
                                                 .pd = std::move(pd),
                                                 .port = 1,
                                                 .gid = {},
                                                 .source = {},
                                                 .description = "fake"});
  }
  std::unique_ptr<VerbsConnection> make_connection() {
    return need(VerbsConnection::create(*queue_, {.sends_in_flight = 4}));
  }

  FakeRdma fake_;
  std::unique_ptr<VerbsQueue> queue_ = need(
      VerbsQueue::create(share(Device::borrow(fake_.context())),
                         {.completions = 64, .receive_buffers = kBuffers, .receive_bytes = 64}));
  std::array<rdma::Completion, 4> none_;
};

TEST_F(SharedReceives, AreNotLostWithAReceiveThatIsFlushedBehindTheMarker) {
  ASSERT_EQ(fake_.posted_receives(), kBuffers);
  Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
  auto connection = make_connection();
  connection->adopt(need(std::move(connector).connect(connection->take_queue_pair(),
                                                      connection->parameters(), {}, soon())),
                    "peer");
  fake_.take_receive();  // a message has begun to arrive
  EXPECT_EQ(fake_.posted_receives(), kBuffers - 1);
  connection.reset();
  EXPECT_EQ(queue_->poll(none_), 0U);
  EXPECT_EQ(fake_.posted_receives(), kBuffers);
}

// As when a client disconnects before it is accepted. A queue pair in RESET cannot be made to fail.
TEST_F(SharedReceives, AConnectionThatWasNeverMadeEndsWithoutAComplaint) {
  static std::atomic<int> complaints{0};
  const auto before = set_teardown_handler([](const Error&) noexcept { ++complaints; });
  make_connection().reset();
  EXPECT_EQ(queue_->poll(none_), 0U);
  set_teardown_handler(before);
  EXPECT_EQ(complaints, 0);
}

}  // namespace
}  // namespace rkv::rdma::verbs
