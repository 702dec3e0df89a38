// What ibv_modify_qp(3) takes: which changes of state a type of queue pair has, and which
// attributes each of them needs and allows. The kernel answers EINVAL to anything else, whatever it
// was; this says what.
//
//   const auto verdict = judge_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, mask);
//   if (!verdict.ok()) puts(describe_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
//   mask).c_str());
//   // "INIT to RTR (RC) lacks IBV_QP_AV, IBV_QP_DEST_QPN"
//
// An attribute's value may be wrong as well, of which nothing is said here. Devices may allow less;
// Linux refuses IBV_QP_ALT_PATH wherever the link is Ethernet.
//
// Thread safety: values and free functions. Source: InfiniBand specification 10.3.1 and 11.2.5.2;
// of RC, UC and UD compared with the kernel's answers (tests/rdma/transitions_device_test.cc), but
// for what starts in SQE.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "rkv/export.h"

namespace rkv::rdma {

// Masks are of ibv_qp_attr_mask, without IBV_QP_STATE: it belongs to every change of state.
struct Transition {
  bool exists = false;
  int required = 0;
  int optional = 0;  // besides those required
};
// Of types without a transition of this kind, and of types not known here (only RC, UC, UD, raw
// packets and both of XRC are), none exists. `to` == `from`: attributes change, the state does not.
RKV_EXPORT Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to);

struct TransitionVerdict {
  bool exists = true;  // the change of state as such
  int missing = 0;     // attributes that the mask lacks
  int surplus = 0;     // attributes that it has and must not have
  bool ok() const { return exists && missing == 0 && surplus == 0; }
};
// IBV_QP_STATE in the mask is neither missing nor surplus.
RKV_EXPORT TransitionVerdict judge_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                              int mask);

// A sentence about it, without a full stop; that all is well, if it is.
RKV_EXPORT std::string describe_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                           int mask);

RKV_EXPORT const char* to_string(ibv_qp_state state);  // "INIT"; "?" for what is none
RKV_EXPORT const char* to_string(ibv_qp_type type);    // "RC"
// "IBV_QP_AV, IBV_QP_PATH_MTU"; bits without a name as "0x80000000".
RKV_EXPORT std::string attribute_names(int mask);

}  // namespace rkv::rdma
