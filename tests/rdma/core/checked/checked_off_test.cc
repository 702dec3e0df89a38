// Checked mode while it is off: the provider's functions are unchanged.
#include <gtest/gtest.h>

#include <cstdlib>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/checked.h"

namespace rkv::rdma {
namespace {

TEST(CheckedOffDeathTest, LeavesTheProvidersFunctionsInPlace) {
  ASSERT_EQ(getenv("RKV_RDMA_CHECKED"), nullptr) << "this test is for the mode that is off";
  ibv_context context{};
  ibv_pd pd{.context = &context, .handle = 1};
  ibv_cq_ex queue{};
  queue.context = &context;
  queue.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) { return 0; };
  ibv_qp_ex pair{};
  pair.qp_base.context = &context;
  pair.qp_base.pd = &pd;
  pair.wr_start = [](ibv_qp_ex*) {};
  pair.wr_rdma_read = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {};
  const auto start_poll = queue.start_poll;
  const auto start = pair.wr_start;
  const auto read = pair.wr_rdma_read;
  checked::queue_begins(ibv_cq_ex_to_cq(&queue), &queue);
  checked::pair_begins(&pair.qp_base, &pair, nullptr, 1);
  EXPECT_EQ(queue.start_poll, start_poll);
  EXPECT_EQ(pair.wr_start, start);
  EXPECT_EQ(pair.wr_rdma_read, read);
  EXPECT_EQ(context.ops.poll_cq, nullptr);
  EXPECT_EQ(context.ops.post_send, nullptr);
  EXPECT_EQ(checked::fields_needed(), 0U);
  EXPECT_EQ(checked::in_flight(), 0U);
  EXPECT_FALSE(checked::on());
  // Too late: objects created before are not recorded.
  EXPECT_DEATH(checked::enable(), "before the first region or queue is created");
}

}  // namespace
}  // namespace rkv::rdma
