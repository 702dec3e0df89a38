// READs and atomics that the device completes with success and without data, as SoftRoCE does when
// packets are lost.
#include "rdma/transport/verbs/unwritten.h"

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
using Kind = rdma::Completion::Kind;
using CompletionStatus = rdma::Completion::Status;

class UnwrittenBuffers : public ::testing::Test {
 protected:
  void connect() {
    auto device = Device::borrow(fake_.context());
    auto pd = need(ProtectionDomain::allocate(device));
    auto shared = std::make_shared<const Shared>(Shared{.anchor = nullptr,
                                                        .device = std::move(device),
                                                        .pd = std::move(pd),
                                                        .port = 1,
                                                        .gid = {},
                                                        .source = {},
                                                        .description = "fake",
                                                        .atomics = true});
    queue_ = need(
        VerbsQueue::create(shared, {.completions = 64, .receive_buffers = 8, .receive_bytes = 64}));
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    connection_ = need(VerbsConnection::create(*queue_, {.sends_in_flight = 4}));
    connection_->adopt(need(std::move(connector).connect(connection_->take_queue_pair(),
                                                         connection_->parameters(), {}, soon())),
                       "peer");
  }
  void post(Operation::Kind kind, MutableBytes to, bool signaled = true) {
    const Operation operation{
        .kind = kind, .signaled = signaled, .local = to, .remote_address = 64, .context = 5};
    EXPECT_EQ(need(connection_->post({&operation, 1})), 1U);
  }
  std::size_t poll() { return queue_->poll(done_); }

  FakeRdma fake_;
  std::unique_ptr<VerbsQueue> queue_;
  std::unique_ptr<VerbsConnection> connection_;
  alignas(8) std::array<std::byte, 64> buffer_{};
  std::array<std::byte, 64> data_{std::byte{7}};
  std::array<rdma::Completion, 4> done_;
};

TEST_F(UnwrittenBuffers, MakeAReadThatSucceededAFailure) {
  fake_.be_soft_roce();
  connect();
  post(Operation::Kind::kRead, buffer_);
  fake_.complete_read(data_);
  ASSERT_EQ(poll(), 1U);
  EXPECT_EQ(done_[0].status, CompletionStatus::kOk);
  EXPECT_EQ(buffer_, data_);

  post(Operation::Kind::kRead, buffer_);
  fake_.complete_read({});
  ASSERT_GE(poll(), 1U);
  EXPECT_EQ(done_[0].kind, Kind::kRead);
  EXPECT_EQ(done_[0].status, CompletionStatus::kFailed);
  EXPECT_EQ(done_[0].context, 5U);
  EXPECT_FALSE(connection_->alive());
}

TEST_F(UnwrittenBuffers, MakeAnAtomicThatSucceededAFailure) {
  fake_.be_soft_roce();
  connect();
  post(Operation::Kind::kFetchAdd, std::span(buffer_).first(8));
  fake_.complete_read({});
  ASSERT_GE(poll(), 1U);
  EXPECT_EQ(done_[0].kind, Kind::kFetchAdd);
  EXPECT_EQ(done_[0].status, CompletionStatus::kFailed);
}

TEST_F(UnwrittenBuffers, AreNoticedWhereSuccessIsNotReported) {
  fake_.be_soft_roce();
  connect();
  post(Operation::Kind::kRead, buffer_, false);
  fake_.complete_read(data_);
  EXPECT_EQ(poll(), 0U);
  post(Operation::Kind::kRead, buffer_, false);
  fake_.complete_read({});
  ASSERT_GE(poll(), 1U);
  EXPECT_EQ(done_[0].status, CompletionStatus::kFailed);
}

TEST_F(UnwrittenBuffers, HaveNoMarkOnOtherDevices) {
  connect();
  buffer_ = data_;
  post(Operation::Kind::kRead, buffer_);
  EXPECT_EQ(buffer_, data_);
  fake_.complete_read(data_);
  ASSERT_EQ(poll(), 1U);
  EXPECT_EQ(done_[0].status, CompletionStatus::kOk);
}

}  // namespace
}  // namespace rkv::rdma::verbs
