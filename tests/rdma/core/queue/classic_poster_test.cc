// Batches on a provider that has ibv_post_send(3) alone.
#include "rdma/core/queue/classic_poster.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "rkv/rdma/connect.h"
#include "tests/rdma/support/fake_rdma.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kSlots = 4;

class ClassicPosters : public ::testing::Test {
 protected:
  void connect(const QueuePairOptions& options = {.send_length = kSlots, .inline_bytes = 64}) {
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    const Device device = connector.device();
    pd_.emplace(need(ProtectionDomain::allocate(device)));
    queue_.emplace(need(CompletionQueue::create(device, {.entries = 16})));
    memory_.emplace(need(MemoryRegion::attach(*pd_, bytes_, kEverything)));
    link_.emplace(need(std::move(connector).connect(
        need(QueuePair::create(*pd_, *queue_, *queue_, options)), {}, {}, soon())));
  }
  QueuePair& qp() { return link_->qp; }
  RegisteredSpan local(std::size_t length) const { return memory_->local(0, length); }
  static RemoteSpan remote(std::size_t length) {
    return {.address = 4096, .length = length, .rkey = 7};
  }
  bool is_in_error() const { return fake_.state_of_queue_pair() == IBV_QPS_ERR; }

  FakeRdma fake_;
  alignas(8) std::array<std::byte, 256> bytes_{};
  std::optional<ProtectionDomain> pd_;
  std::optional<CompletionQueue> queue_;
  std::optional<MemoryRegion> memory_;
  std::optional<CmConnection> link_;
};

TEST_F(ClassicPosters, PostABatchAsOneChainInItsOrder) {
  fake_.be_classic();
  connect();
  std::array message = {std::byte{1}, std::byte{2}, std::byte{3}};
  Batch batch = qp().batch();
  batch.read(1, OpFlags::kNone, local(16), remote(16));
  batch.fetch_add(2, OpFlags::kSignaled, local(8), remote(8), 5);
  batch.send(3, OpFlags::kSignaled, inlined(message));
  batch.send(4, OpFlags::kSolicited, RegisteredSpan());
  message.fill(std::byte{9});  // POSTER-3
  EXPECT_TRUE(fake_.posted().empty());
  ASSERT_TRUE(std::move(batch).submit());

  const std::vector<FakeRdma::Posted> posted = fake_.posted();
  ASSERT_EQ(posted.size(), 4U);
  EXPECT_EQ(posted[0].opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(posted[0].flags, 0U);
  EXPECT_EQ(posted[0].piece.length, 16U);
  EXPECT_EQ(posted[1].opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(posted[1].flags, unsigned{IBV_SEND_SIGNALED});
  EXPECT_EQ(posted[2].wr_id, 3U);
  EXPECT_EQ(posted[2].flags, unsigned{IBV_SEND_SIGNALED} | IBV_SEND_INLINE);
  EXPECT_EQ(posted[2].inlined, (std::vector{std::byte{1}, std::byte{2}, std::byte{3}}));
  EXPECT_EQ(posted[3].flags, unsigned{IBV_SEND_SOLICITED});
  EXPECT_EQ(posted[3].piece.length, 0U) << "an empty piece may mean 2 GiB to a provider";
}

TEST_F(ClassicPosters, PostNothingOfABatchThatWasDropped) {
  fake_.be_classic();
  connect();
  {
    Batch batch = qp().batch();
    batch.send(1, OpFlags::kSignaled, local(8));
  }
  Batch next = qp().batch();
  next.send(2, OpFlags::kSignaled, local(8));
  ASSERT_TRUE(std::move(next).submit());
  ASSERT_EQ(fake_.posted().size(), 1U);
  EXPECT_EQ(fake_.posted()[0].wr_id, 2U);
}

TEST_F(ClassicPosters, PostNothingOfABatchLongerThanTheSendQueue) {
  fake_.be_classic();
  connect();
  Batch batch = qp().batch();
  for (std::uint64_t i = 0; i < 3 * kSlots; ++i) {
    batch.send(i, OpFlags::kSignaled, inlined(std::span(bytes_).first(64)));
  }
  EXPECT_EQ(std::move(batch).submit().error().code, Code::kOutOfMemory);
  EXPECT_TRUE(fake_.posted().empty());
  EXPECT_FALSE(is_in_error());

  Batch fits = qp().batch();
  for (std::uint64_t i = 0; i < kSlots; ++i)
    fits.send(i, OpFlags::kSignaled, local(8));
  EXPECT_TRUE(std::move(fits).submit());
  EXPECT_EQ(fake_.posted().size(), kSlots);
}

TEST_F(ClassicPosters, RefuseAtomicsWhereTheDeviceHasNone) {
  fake_.be_iwarp();
  connect();
  Batch batch = qp().batch();
  batch.send(1, OpFlags::kSignaled, local(8));
  batch.compare_swap(2, OpFlags::kSignaled, local(8), remote(8), 1, 2);
  EXPECT_EQ(std::move(batch).submit().error().code, Code::kUnsupported);
  EXPECT_TRUE(fake_.posted().empty());
  EXPECT_FALSE(is_in_error());

  Batch next = qp().batch();
  next.send(3, OpFlags::kSignaled, local(8));
  EXPECT_TRUE(std::move(next).submit());
}

TEST_F(ClassicPosters, LeaveNoGapAfterAProviderRefusedAPart) {
  for (const auto& [answer, code] :
       {std::pair{-EINVAL, Code::kInvalidArgument}, std::pair{ENOMEM, Code::kOutOfMemory},
        // As soft-iWARP, when its queue becomes full.
        std::pair{0, Code::kOutOfMemory}}) {
    fake_.be_classic();
    connect();
    fake_.refuse_posts(2, answer);
    Batch batch = qp().batch();
    for (std::uint64_t i = 0; i < 3; ++i)
      batch.send(i, OpFlags::kSignaled, local(8));
    const Status posted = std::move(batch).submit();
    ASSERT_FALSE(posted) << answer;
    EXPECT_EQ(posted.error().code, code) << answer;
    EXPECT_TRUE(is_in_error()) << answer;
    EXPECT_TRUE(qp().refused_in_the_middle()) << answer;
    link_.reset();
  }
}

TEST_F(ClassicPosters, StayUsableWhenAProviderRefusedTheWholeBatch) {
  fake_.be_classic();
  connect();
  fake_.refuse_posts(0, ENOMEM);
  Batch batch = qp().batch();
  batch.send(1, OpFlags::kSignaled, local(8));
  EXPECT_EQ(std::move(batch).submit().error().code, Code::kOutOfMemory);
  EXPECT_FALSE(is_in_error());
}

// As soft-iWARP, when the kernel refuses its doorbell.
TEST_F(ClassicPosters, SayWhyADoorbellWasRefused) {
  fake_.be_classic();
  connect();
  fake_.refuse_posts(0, -1);
  Batch batch = qp().batch();
  batch.send(1, OpFlags::kSignaled, local(8));
  errno = ENOTCONN;
  EXPECT_EQ(std::move(batch).submit().error().sys_errno, ENOTCONN);
}

TEST_F(ClassicPosters, FenceAllButReadsOnIwarp) {
  fake_.be_iwarp();
  connect();
  Batch batch = qp().batch();
  batch.read(1, OpFlags::kSignaled, local(8), remote(8));
  batch.send(2, OpFlags::kSignaled, local(8));
  batch.write(3, OpFlags::kSignaled, local(8), remote(8));
  ASSERT_TRUE(std::move(batch).submit());
  ASSERT_TRUE(qp().op(4).signaled().send(local(8)));
  const std::vector<FakeRdma::Posted> posted = fake_.posted();
  ASSERT_EQ(posted.size(), 4U);
  EXPECT_EQ(posted[0].flags & IBV_SEND_FENCE, 0U) << "soft-iWARP ends a connection for it";
  for (std::size_t i = 1; i < posted.size(); ++i)
    EXPECT_NE(posted[i].flags & IBV_SEND_FENCE, 0U) << i;
}

TEST_F(ClassicPosters, GiveAReadOfNoBytesAPieceOnIwarp) {
  fake_.be_iwarp();
  connect();
  Batch batch = qp().batch();
  batch.read(1, OpFlags::kSignaled, RegisteredSpan(), remote(0));
  batch.send(2, OpFlags::kSignaled, RegisteredSpan());
  ASSERT_TRUE(std::move(batch).submit());
  ASSERT_TRUE(qp().op(3).signaled().read({}, remote(0)));
  const std::vector<FakeRdma::Posted> posted = fake_.posted();
  ASSERT_EQ(posted.size(), 3U);
  for (const std::size_t i : {0, 2}) {
    EXPECT_EQ(posted[i].pieces, 1) << "soft-iWARP would read what an earlier request named";
    EXPECT_EQ(posted[i].piece.length, 0U);
  }
  EXPECT_EQ(posted[1].pieces, 0);
}

TEST_F(ClassicPosters, SayThatIwarpHasNoImmediateData) {
  fake_.be_iwarp();
  connect();
  fake_.refuse_posts(0, -EINVAL);
  Batch batch = qp().batch();
  batch.op(1).signaled().immediate(5).send(local(8));
  EXPECT_EQ(std::move(batch).submit().error().code, Code::kUnsupported);
  EXPECT_FALSE(is_in_error());
}

TEST_F(ClassicPosters, RefuseAReadOfMorePiecesThanTheDeviceReads) {
  fake_.be_iwarp();
  connect({.send_length = kSlots, .send_sge = 2});
  const std::array pieces = {local(8), memory_->local(8, 8)};
  EXPECT_EQ(qp().op(1).read(pieces, remote(16)).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(fake_.posted().empty());
  EXPECT_TRUE(qp().op(1).read(std::span(pieces).first(1), remote(8)));
}

TEST_F(ClassicPosters, AreNotMadeForWindows) {
  fake_.be_classic();
  connect();
  EXPECT_EQ(QueuePair::create(*pd_, *queue_, *queue_, {.operations = kAllSendOps | kWindowOps})
                .error()
                .code,
            Code::kUnsupported);
}

TEST_F(ClassicPosters, AbortAtASecondOpenBatch) {
  fake_.be_classic();
  connect();
  const Batch open = qp().batch();
  EXPECT_DEATH((void)qp().batch(), "a batch is opened while");
  EXPECT_DEATH((void)qp().op(4).send(local(8)), "a batch is opened while");
}

// The kernel moves the queue pair, and there is no third message.
TEST_F(ClassicPosters, AreConnectedWithTwoMessagesOnIwarp) {
  fake_.be_iwarp();
  connect();
  for (const FakeRdma::Change& change : fake_.changes())
    EXPECT_EQ(change.attributes.qp_state, IBV_QPS_INIT);
  EXPECT_TRUE(link_->established);
  PreparedQueuePair<> other = need(QueuePair::create(*pd_, *queue_, *queue_, {}));
  GidEntry gid;
  gid.port = 1;
  EXPECT_EQ(other.endpoint(1, gid).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace rkv::rdma
