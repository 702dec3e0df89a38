// Every change of state, with each attribute missing or superfluous, as judged by the kernel.
#include <gtest/gtest.h>

#include <memory>

#include "rkv/rdma/transitions.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using testing::need;

struct Destroy {
  void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
};
using RawQueuePair = std::unique_ptr<ibv_qp, Destroy>;

class TransitionsOnDevice : public ::testing::TestWithParam<ibv_qp_type> {
 protected:
  RawQueuePair create() const {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_.raw();
    wanted.qp_type = GetParam();
    wanted.cap = {.max_send_wr = 1,
                  .max_recv_wr = 1,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = 0};
    return RawQueuePair(ibv_create_qp(pd_.raw(), &wanted));
  }
  // Valid values for every attribute; the queue pair is its own peer.
  ibv_qp_attr values(const ibv_qp& qp, ibv_qp_state from, ibv_qp_state to) const {
    ibv_qp_attr all{};
    all.qp_state = to;
    all.cur_qp_state = from;
    all.port_num = all.alt_port_num = port_;
    all.qkey = 0x1234;
    all.path_mtu = IBV_MTU_1024;
    all.dest_qp_num = qp.qp_num;
    all.ah_attr.port_num = port_;
    all.ah_attr.is_global = 1;
    all.ah_attr.grh.hop_limit = 1;
    all.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_.index);
    std::memcpy(all.ah_attr.grh.dgid.raw, gid_.gid.data(), gid_.gid.size());
    all.alt_ah_attr = all.ah_attr;
    all.max_dest_rd_atomic = all.max_rd_atomic = 1;
    all.min_rnr_timer = 12;
    all.timeout = all.alt_timeout = 14;
    all.retry_cnt = all.rnr_retry = 6;
    all.path_mig_state = IBV_MIG_MIGRATED;
    return all;
  }
  int change(ibv_qp& qp, ibv_qp_state from, ibv_qp_state to, int mask) const {
    ibv_qp_attr attributes = values(qp, from, to);
    return ibv_modify_qp(&qp, &attributes, mask | IBV_QP_STATE);
  }
  // A new queue pair in this state. SQE cannot be reached: only a failure leads to it.
  RawQueuePair in(ibv_qp_state wanted) const {
    RawQueuePair qp = create();
    if (qp == nullptr || wanted == IBV_QPS_RESET) return qp;
    ibv_qp_state now = IBV_QPS_RESET;
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    wanted == IBV_QPS_SQD ? IBV_QPS_SQD : IBV_QPS_ERR}) {
      const int required = transition(GetParam(), now, next).required;
      EXPECT_EQ(change(*qp, now, next, required), 0) << to_string(now) << " to " << to_string(next);
      now = next;
      if (now == wanted) break;
    }
    if (wanted == IBV_QPS_SQD) wait_until_drained(*qp);
    return qp;
  }
  // While it drains, every change but to ERR is refused, whatever the mask.
  static void wait_until_drained(ibv_qp& qp) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr created{};
    const Deadline deadline = testing::soon();
    do {
      ASSERT_FALSE(deadline.passed());
      ASSERT_EQ(ibv_query_qp(&qp, &attributes, IBV_QP_STATE, &created), 0);
    } while (attributes.sq_draining != 0);
  }
  // True if the kernel and the table agree.
  void compare(ibv_qp_state from, ibv_qp_state to, int mask) const {
    const RawQueuePair qp = in(from);
    ASSERT_NE(qp, nullptr);
    const int answer = change(*qp, from, to, mask);
    const bool expected = judge_transition(GetParam(), from, to, mask).ok();
    EXPECT_EQ(answer == 0, expected)
        << "errno " << answer << ": " << describe_transition(GetParam(), from, to, mask) << ": "
        << attribute_names(mask);
  }

  Device device_ = need(Device::open_first_active());
  ProtectionDomain pd_ = need(ProtectionDomain::allocate(device_));
  CompletionQueue queue_ = need(CompletionQueue::create(device_, {.entries = 16}));
  std::uint8_t port_ = need(device_.first_active_port());
  bool ethernet_ = need(device_.port(port_)).ethernet;
  GidEntry gid_ = need(device_.routable_gid(port_));
};

constexpr ibv_qp_state kReachable[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                       IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

TEST_P(TransitionsOnDevice, TheKernelAgreesOnEachAttribute) {
  for (const ibv_qp_state from : kReachable) {
    for (const ibv_qp_state to : kReachable) {
      const int required = transition(GetParam(), from, to).required;
      compare(from, to, required);
      if (!transition(GetParam(), from, to).exists) continue;
      for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
        if (bit == IBV_QP_ALT_PATH && ethernet_) continue;
        compare(from, to, required ^ bit);  // one attribute less or more
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TransitionsOnDevice,
                         ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(TransitionsOfQueuePairs, ARefusalSaysWhetherStateMaskOrValueIsToBlame) {
  testing::Loopback loop;
  QueuePair& qp = *loop.client.qp;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  auto refused = qp.modify(attributes, IBV_QP_STATE);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(to_string(refused.error()).find("state transition does not exist"), std::string::npos);
  EXPECT_EQ(need(qp.explain_modify(attributes, IBV_QP_STATE)),
            "RTS to INIT (RC) is not a valid state transition");
  refused = qp.modify(attributes, IBV_QP_PORT);
  ASSERT_FALSE(refused);
  EXPECT_NE(to_string(refused.error()).find("the attribute mask is wrong"), std::string::npos);
  EXPECT_EQ(need(qp.explain_modify(attributes, IBV_QP_PORT)),
            "RTS to RTS (RC) does not take IBV_QP_PORT");
  EXPECT_EQ(need(qp.state()), IBV_QPS_RTS);  // nothing has changed
}

}  // namespace
}  // namespace rkv::rdma
