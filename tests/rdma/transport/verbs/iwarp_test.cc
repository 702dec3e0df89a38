// Connections of the verbs transport on a device without atomics, markers and long inline messages.
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

class ConnectionsOnIwarp : public ::testing::Test {
 protected:
  ConnectionsOnIwarp() {
    fake_.be_iwarp();
    auto device = Device::borrow(fake_.context());
    auto pd = need(ProtectionDomain::allocate(device));
    auto shared = std::make_shared<const Shared>(Shared{.anchor = nullptr,
                                                        .device = std::move(device),
                                                        .pd = std::move(pd),
                                                        .port = 1,
                                                        .gid = {},
                                                        .source = {},
                                                        .description = "fake",
                                                        .iwarp = true});
    queue_ = need(
        VerbsQueue::create(shared, {.completions = 64, .receive_buffers = 8, .receive_bytes = 64}));
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    connection_ =
        need(VerbsConnection::create(*queue_, {.sends_in_flight = 4, .peer_grants_reads = true}));
    connection_->adopt(need(std::move(connector).connect(connection_->take_queue_pair(),
                                                         connection_->parameters(), {}, soon())),
                       "peer");
  }
  Operation operation(Operation::Kind kind, std::uint64_t context) {
    return {.kind = kind,
            .local = std::span(buffer_).first(8),
            .remote_address = 64,
            .context = context};
  }

  void look_until_a_probe_is_due() {
    for (std::uint32_t i = 0; i < VerbsConnection::kProbeAfter; ++i)
      connection_->look_at_silence();
  }

  FakeRdma fake_;
  std::unique_ptr<VerbsQueue> queue_;
  std::unique_ptr<VerbsConnection> connection_;
  alignas(8) std::array<std::byte, 64> buffer_{};
  std::array<rdma::Completion, 8> done_;
};

TEST_F(ConnectionsOnIwarp, EndWithoutAMarker) {
  const std::array operations = {operation(Operation::Kind::kRead, 1),
                                 operation(Operation::Kind::kSend, 2)};
  ASSERT_EQ(need(connection_->post(operations)), 2U);
  connection_->abort();
  fake_.flush(0);
  const std::size_t count = queue_->poll(done_);
  ASSERT_EQ(count, 3U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(done_[i].status, CompletionStatus::kFlushed);
    EXPECT_EQ(done_[i].context, i + 1);
  }
  EXPECT_EQ(done_[2].kind, Kind::kDisconnected);
  EXPECT_EQ(fake_.posted().size(), 2U) << "a marker would stay in the send queue for good";
  fake_.flush(1);
  EXPECT_EQ(queue_->poll(done_), 0U) << "its end was reported";
}

// As soft-iWARP, when it flushes a READ that it has not begun to send.
TEST_F(ConnectionsOnIwarp, ReportAnOperationOnceThatIsFlushedTwice) {
  const std::array operations = {operation(Operation::Kind::kRead, 1),
                                 operation(Operation::Kind::kRead, 2)};
  ASSERT_EQ(need(connection_->post(operations)), 2U);
  for (const std::uint64_t number : {0U, 0U, 1U})
    fake_.flush(number);
  ASSERT_EQ(queue_->poll(done_), 3U);
  EXPECT_EQ(done_[0].context, 1U);
  EXPECT_EQ(done_[1].context, 2U);
  EXPECT_EQ(done_[2].kind, Kind::kDisconnected);
}

// A READ of no bytes may end a connection on soft-iWARP.
TEST_F(ConnectionsOnIwarp, LookAtASilentPeerByAReadOfWhatTheyHaveRead) {
  connection_->note_connected();
  look_until_a_probe_is_due();
  EXPECT_TRUE(fake_.posted().empty()) << "nothing is known that may be READ";
  Operation first = operation(Operation::Kind::kRead, 1);
  first.remote_key = 7;
  ASSERT_EQ(need(connection_->post({&first, 1})), 1U);
  fake_.complete_read({});
  EXPECT_EQ(queue_->poll(done_), 1U);
  look_until_a_probe_is_due();
  const auto posted = fake_.posted();
  ASSERT_EQ(posted.size(), 2U);
  EXPECT_EQ(posted[1].opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(posted[1].piece.length, 8U);
  EXPECT_NE(posted[1].piece.addr, posted[0].piece.addr) << "memory of the user";
  fake_.flush(1);
  ASSERT_EQ(queue_->poll(done_), 1U);
  EXPECT_EQ(done_[0].kind, Kind::kDisconnected) << "the peer is gone";
}

// Memory that was lent by a peer that connected may be gone.
TEST_F(ConnectionsOnIwarp, LookAtNoPeerThatConnected) {
  Operation first = operation(Operation::Kind::kRead, 1);
  first.remote_key = 7;
  ASSERT_EQ(need(connection_->post({&first, 1})), 1U);
  fake_.complete_read({});
  EXPECT_EQ(queue_->poll(done_), 1U);
  look_until_a_probe_is_due();
  EXPECT_EQ(fake_.posted().size(), 1U);
}

TEST_F(ConnectionsOnIwarp, RefuseAtomicsAndGoOn) {
  const std::array operations = {operation(Operation::Kind::kRead, 1),
                                 operation(Operation::Kind::kCompareSwap, 2)};
  EXPECT_EQ(connection_->post(operations).error().code, Code::kUnsupported);
  EXPECT_TRUE(fake_.posted().empty());
  EXPECT_TRUE(connection_->alive());
  EXPECT_EQ(need(connection_->post(std::span(operations).first(1))), 1U);
}

TEST_F(ConnectionsOnIwarp, HaveTheInlineBytesThatTheDeviceGrants) {
  EXPECT_EQ(connection_->limits().inline_bytes, 64U) << "half of half of what was asked for";
}

// Clients verify what they READ, so the order of its bytes matters.
TEST(RegionsOfTheStore, NeverHaveRelaxedOrderingNorRemoteWrites) {
  constexpr AccessFlags kForbidden = AccessFlags::kRelaxedOrdering | AccessFlags::kRemoteWrite;
  for (const Access access : {Access::kLocal, Access::kRemoteRead, Access::kRemoteReadAtomic}) {
    for (const bool atomics : {false, true})
      EXPECT_EQ(region_flags(access, atomics) & kForbidden, AccessFlags::kNone);
  }
}

TEST_F(ConnectionsOnIwarp, GrantNoAtomics) {
  EXPECT_EQ(region_flags(Access::kRemoteReadAtomic, false),
            AccessFlags::kLocalWrite | AccessFlags::kRemoteRead);
  EXPECT_EQ(region_flags(Access::kRemoteReadAtomic, true),
            AccessFlags::kLocalWrite | AccessFlags::kRemoteRead | AccessFlags::kRemoteAtomic);
  EXPECT_EQ(grant_flags(Access::kRemoteReadAtomic, false), AccessFlags::kRemoteRead);
}

}  // namespace
}  // namespace rkv::rdma::verbs
