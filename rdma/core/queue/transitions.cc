#include "rkv/rdma/transitions.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

namespace rkv::rdma {

namespace {

constexpr int kAddress = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kAnswering = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kAsking =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
// Path attributes and rights that may change while a connection is up.
constexpr int kPath = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;

// Properties of a queue pair type that the transitions depend on.
struct Kind {
  bool connected;  // has a path to one peer
  bool answers;    // sends acknowledgements: RC and the XRC target
  bool asks;       // receives acknowledgements: RC and the XRC initiator
  int identity;    // attributes required for INIT
};

constexpr int kConnectedIdentity = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

bool find_kind(ibv_qp_type type, Kind& kind) {
  switch (type) {
    case IBV_QPT_RC:
      kind = {true, true, true, kConnectedIdentity};
      return true;
    case IBV_QPT_UC:
      kind = {true, false, false, kConnectedIdentity};
      return true;
    case IBV_QPT_XRC_SEND:
      kind = {true, false, true, kConnectedIdentity};
      return true;
    case IBV_QPT_XRC_RECV:
      kind = {true, true, false, kConnectedIdentity};
      return true;
    case IBV_QPT_UD:
      kind = {false, false, false, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY};
      return true;
    case IBV_QPT_RAW_PACKET:
      kind = {false, false, false, IBV_QP_PORT};
      return true;
    default:
      return false;
  }
}

Transition to_ready_to_receive(ibv_qp_type type, const Kind& kind) {
  if (type == IBV_QPT_RAW_PACKET) return {.exists = true};
  if (!kind.connected) return {.exists = true, .optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
  return {.exists = true,
          .required = kAddress | (kind.answers ? kAnswering : 0),
          .optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX};
}

// Transitions to RTS from any state, and within RTS.
Transition in_ready_to_send(ibv_qp_type type, const Kind& kind, ibv_qp_state from) {
  Transition out{.exists = true};
  if (type == IBV_QPT_RAW_PACKET) {
    const bool limits = from == IBV_QPS_RTR || from == IBV_QPS_RTS;
    out.optional = limits ? IBV_QP_RATE_LIMIT : 0;
    return out;
  }
  if (from == IBV_QPS_RTR) {
    out.required = IBV_QP_SQ_PSN;
    if (kind.asks) out.required |= kAsking;
    if (kind.answers) out.required |= IBV_QP_TIMEOUT;
  }
  if (from == IBV_QPS_SQE) {
    if (type == IBV_QPT_UD) out.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY;
    if (type == IBV_QPT_UC) out.optional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS;
    return out;
  }
  out.optional = IBV_QP_CUR_STATE | (kind.connected ? kPath : IBV_QP_QKEY);
  if (kind.answers) out.optional |= IBV_QP_MIN_RNR_TIMER;
  return out;
}

// Attribute changes in SQD, where the send queue is drained.
Transition at_rest(ibv_qp_type type, const Kind& kind) {
  if (type == IBV_QPT_RAW_PACKET) return {.exists = true};
  if (!kind.connected) return {.exists = true, .optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
  // UC has no IBV_QP_AV here: Linux would also take its port, which UC may not change.
  int optional = kPath | IBV_QP_PKEY_INDEX;
  if (kind.asks || kind.answers) optional |= IBV_QP_AV | IBV_QP_PORT | IBV_QP_TIMEOUT;
  if (kind.asks) optional |= kAsking;
  if (kind.answers) optional |= kAnswering;
  return {.exists = true, .optional = optional};
}

constexpr std::pair<int, const char*> kAttributes[] = {
    {IBV_QP_STATE, "IBV_QP_STATE"},
    {IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE"},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    {IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS"},
    {IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX"},
    {IBV_QP_PORT, "IBV_QP_PORT"},
    {IBV_QP_QKEY, "IBV_QP_QKEY"},
    {IBV_QP_AV, "IBV_QP_AV"},
    {IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU"},
    {IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT"},
    {IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT"},
    {IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY"},
    {IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC"},
    {IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH"},
    {IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"},
    {IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    {IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE"},
    {IBV_QP_CAP, "IBV_QP_CAP"},
    {IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN"},
    {IBV_QP_RATE_LIMIT, "IBV_QP_RATE_LIMIT"},
};

}  // namespace

Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  Kind kind{};
  if (!find_kind(type, kind)) return {};
  if (to == IBV_QPS_RESET) return {.exists = from <= IBV_QPS_ERR};
  if (to == IBV_QPS_ERR) return {.exists = from != IBV_QPS_RESET && from <= IBV_QPS_ERR};
  switch (from) {
    case IBV_QPS_RESET:
      if (to == IBV_QPS_INIT) return {.exists = true, .required = kind.identity};
      break;
    case IBV_QPS_INIT:
      if (to == IBV_QPS_INIT) {
        const bool raw = type == IBV_QPT_RAW_PACKET;
        return {.exists = true, .optional = raw ? 0 : kind.identity};
      }
      if (to == IBV_QPS_RTR) return to_ready_to_receive(type, kind);
      break;
    case IBV_QPS_RTS:
      if (to == IBV_QPS_SQD) {
        const bool raw = type == IBV_QPT_RAW_PACKET;
        return {.exists = true, .optional = raw ? 0 : IBV_QP_EN_SQD_ASYNC_NOTIFY};
      }
      [[fallthrough]];
    case IBV_QPS_RTR:
    case IBV_QPS_SQE:
      if (to == IBV_QPS_RTS) return in_ready_to_send(type, kind, from);
      break;
    case IBV_QPS_SQD:
      if (to == IBV_QPS_RTS) return in_ready_to_send(type, kind, from);
      if (to == IBV_QPS_SQD) return at_rest(type, kind);
      break;
    default:
      break;
  }
  return {};
}

TransitionVerdict judge_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const Transition takes = transition(type, from, to);
  if (!takes.exists) return {.exists = false};
  const int given = mask & ~IBV_QP_STATE;
  return {.missing = takes.required & ~given,
          .surplus = given & ~(takes.required | takes.optional)};
}

std::string describe_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const TransitionVerdict verdict = judge_transition(type, from, to, mask);
  const std::string what =
      fmt::format("{} to {} ({})", to_string(from), to_string(to), to_string(type));
  if (!verdict.exists) return what + " is not a valid state transition";
  if (verdict.ok()) return what + " takes these attributes";
  std::string sentence = what;
  if (verdict.missing != 0) sentence += " lacks " + attribute_names(verdict.missing);
  if (verdict.surplus != 0) {
    sentence += fmt::format("{} does not take {}", verdict.missing != 0 ? " and" : "",
                            attribute_names(verdict.surplus));
  }
  return sentence;
}

const char* to_string(ibv_qp_state state) {
  constexpr std::array kNames = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  const auto index = static_cast<std::size_t>(state);
  return index < kNames.size() ? kNames[index] : "?";
}

const char* to_string(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    case IBV_QPT_RAW_PACKET:
      return "raw packet";
    case IBV_QPT_XRC_SEND:
      return "XRC initiator";
    case IBV_QPT_XRC_RECV:
      return "XRC target";
    default:
      return "unknown";
  }
}

std::string attribute_names(int mask) {
  std::string names;
  for (const auto& [bit, name] : kAttributes) {
    if ((mask & bit) == 0) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    mask &= ~bit;
  }
  if (mask != 0) {
    names += fmt::format("{}{:#x}", names.empty() ? "" : ", ", static_cast<unsigned>(mask));
  }
  return names;
}

}  // namespace rkv::rdma
