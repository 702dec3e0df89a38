// The table of state changes, without a device. transitions_device_test.cc compares it with the
// kernel.
#include "rkv/rdma/transitions.h"

#include <gtest/gtest.h>

namespace rkv::rdma {
namespace {

constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC,         IBV_QPT_UC,       IBV_QPT_UD,
                                  IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};

TEST(Transitions, TheWayUpIsThatOfTheSpecification) {
  const auto init = transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT);
  EXPECT_EQ(init.required, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(init.optional, 0);
  const auto receive = transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR);
  EXPECT_EQ(receive.required, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  const auto send = transition(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS);
  EXPECT_EQ(send.required, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                               IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(transition(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS).required, IBV_QP_SQ_PSN);
  EXPECT_EQ(transition(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR).required, 0);
}

TEST(Transitions, EveryTypeCanBeGivenUpFromEverywhere) {
  for (const ibv_qp_type type : kTypes) {
    for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from) {
      const auto state = static_cast<ibv_qp_state>(from);
      EXPECT_TRUE(transition(type, state, IBV_QPS_RESET).exists) << to_string(state);
      EXPECT_EQ(transition(type, state, IBV_QPS_ERR).exists, state != IBV_QPS_RESET);
    }
  }
}

TEST(Transitions, NoAttributeIsBothRequiredAndOptional) {
  for (const ibv_qp_type type : kTypes) {
    for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from) {
      for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; ++to) {
        const auto takes =
            transition(type, static_cast<ibv_qp_state>(from), static_cast<ibv_qp_state>(to));
        EXPECT_EQ(takes.required & takes.optional, 0);
        EXPECT_EQ((takes.required | takes.optional) & (IBV_QP_STATE | IBV_QP_CAP), 0);
        EXPECT_TRUE(takes.exists || (takes.required | takes.optional) == 0);
      }
    }
  }
}

TEST(Transitions, WhatIsNoStateOrTypeHasNone) {
  const auto none = static_cast<ibv_qp_state>(7);
  EXPECT_FALSE(transition(IBV_QPT_RC, none, IBV_QPS_RESET).exists);
  EXPECT_FALSE(transition(IBV_QPT_RC, none, IBV_QPS_ERR).exists);
  EXPECT_FALSE(transition(IBV_QPT_RC, IBV_QPS_RTS, none).exists);
  EXPECT_FALSE(transition(IBV_QPT_DRIVER, IBV_QPS_RESET, IBV_QPS_INIT).exists);
  EXPECT_STREQ(to_string(none), "?");
}

TEST(Transitions, AreDescribedByWhatIsWrong) {
  const int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const auto said = [](ibv_qp_state from, ibv_qp_state to, int mask) {
    return describe_transition(IBV_QPT_RC, from, to, mask);
  };
  EXPECT_EQ(said(IBV_QPS_RESET, IBV_QPS_INIT, all), "RESET to INIT (RC) takes these attributes");
  EXPECT_EQ(said(IBV_QPS_RESET, IBV_QPS_INIT, all & ~IBV_QP_PORT),
            "RESET to INIT (RC) lacks IBV_QP_PORT");
  EXPECT_EQ(said(IBV_QPS_RESET, IBV_QPS_INIT, (all & ~IBV_QP_PORT) | IBV_QP_QKEY | IBV_QP_CAP),
            "RESET to INIT (RC) lacks IBV_QP_PORT and does not take IBV_QP_QKEY, IBV_QP_CAP");
  EXPECT_EQ(said(IBV_QPS_RESET, IBV_QPS_RTS, IBV_QP_STATE),
            "RESET to RTS (RC) is not a valid state transition");
  EXPECT_EQ(attribute_names(IBV_QP_AV | (1 << 30)), "IBV_QP_AV, 0x40000000");
}

}  // namespace
}  // namespace rkv::rdma
