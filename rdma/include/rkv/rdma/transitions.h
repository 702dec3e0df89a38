// The rules of ibv_modify_qp(3): the state changes of each queue pair type, and the attributes each
// change requires and allows. The kernel returns EINVAL for any violation; these functions return
// which rule is violated.
//
//   const auto verdict = judge_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, mask);
//   if (!verdict.ok())
//     puts(describe_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, mask).c_str());
//   // "INIT to RTR (RC) lacks IBV_QP_AV, IBV_QP_DEST_QPN"
//
// Attribute values may be wrong too; they are not checked here. Devices may allow less; Linux
// refuses IBV_QP_ALT_PATH on every Ethernet link.
//
// Thread safety: values and free functions. Source: InfiniBand specification 10.3.1 and 11.2.5.2.
// For RC, UC and UD the tables were compared with the kernel's results
// (tests/rdma/core/queue/transitions_device_test.cc), except for transitions that start in SQE.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "rkv/export.h"

namespace rkv::rdma {

// Masks are of ibv_qp_attr_mask, without IBV_QP_STATE, which is part of every state change.
struct Transition {
  bool exists = false;
  int required = 0;
  int optional = 0;  // allowed in addition to those required
};
// Returns the transition. `exists` is false if the type lacks it or is unknown here (only RC, UC,
// UD, raw packets and both of XRC are known). `to` == `from`: attributes change, the state does
// not.
RKV_EXPORT Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to);

struct TransitionVerdict {
  bool exists = true;  // the state change itself exists
  int missing = 0;     // required attributes that the mask lacks
  int surplus = 0;     // attributes in the mask that are not allowed
  bool ok() const { return exists && missing == 0 && surplus == 0; }
};
// IBV_QP_STATE in the mask is neither missing nor surplus.
RKV_EXPORT TransitionVerdict judge_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                              int mask);

// Describes the verdict in a sentence without a full stop, also if the transition is valid.
RKV_EXPORT std::string describe_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                           int mask);

RKV_EXPORT const char* to_string(ibv_qp_state state);  // "INIT"; "?" for an invalid state
RKV_EXPORT const char* to_string(ibv_qp_type type);    // "RC"
// "IBV_QP_AV, IBV_QP_PATH_MTU"; bits without a name as "0x80000000".
RKV_EXPORT std::string attribute_names(int mask);

}  // namespace rkv::rdma
