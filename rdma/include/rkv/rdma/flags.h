// Typed bit sets. An enum class that opts in gets only |, & and has(). So flags of different kinds
// cannot be mixed, and integers do not convert to flags.
//
//   AccessFlags access = AccessFlags::kLocalWrite | AccessFlags::kRemoteRead;
//   if (has(access, AccessFlags::kRemoteRead)) ...
//
// Thread safety: values. Source: ibv_reg_mr(3), ibv_post_send(3), ibv_create_qp_ex(3).
#pragma once

#include <infiniband/verbs.h>

#include <type_traits>
#include <utility>

namespace rkv::rdma {

template <class E>
inline constexpr bool kIsFlagEnum = false;
template <class E>
concept FlagEnum = std::is_enum_v<E> && kIsFlagEnum<E>;

template <FlagEnum E>
constexpr E operator|(E a, E b) {
  return static_cast<E>(std::to_underlying(a) | std::to_underlying(b));
}
template <FlagEnum E>
constexpr E operator&(E a, E b) {
  return static_cast<E>(std::to_underlying(a) & std::to_underlying(b));
}
// `set` without the bits of `unwanted`.
template <FlagEnum E>
constexpr E without(E set, E unwanted) {
  return static_cast<E>(std::to_underlying(set) & ~std::to_underlying(unwanted));
}
// True if every bit of `wanted` is in `set`.
template <FlagEnum E>
constexpr bool has(E set, E wanted) {
  return (set & wanted) == wanted;
}

// Access rights on registered memory, or of a connected peer on a queue pair (ibv_reg_mr(3),
// ibv_modify_qp(3)). The local device may always read.
enum class AccessFlags : unsigned {
  kNone = 0,
  kLocalWrite = IBV_ACCESS_LOCAL_WRITE,  // the device may store: receives, READ and atomic results
  kRemoteRead = IBV_ACCESS_REMOTE_READ,
  kRemoteWrite = IBV_ACCESS_REMOTE_WRITE,    // needs kLocalWrite
  kRemoteAtomic = IBV_ACCESS_REMOTE_ATOMIC,  // needs kLocalWrite
  kBindWindow = IBV_ACCESS_MW_BIND,
  kZeroBased = IBV_ACCESS_ZERO_BASED,
  kOnDemand = IBV_ACCESS_ON_DEMAND,  // no pinning; not on SoftRoCE of Linux 6.1
  kHugePages = IBV_ACCESS_HUGETLB,
  // Regions only. The device's accesses to the region may pass each other on the PCIe bus, which
  // is faster on some machines. Bytes are then in order only when a completion has been polled, and
  // not before. So memory that a thread polls without a completion, or that a reader verifies by a
  // version or checksum, must not have it. A hint: ignored where the kernel or device lacks it.
  kRelaxedOrdering = IBV_ACCESS_RELAXED_ORDERING,
};
template <>
inline constexpr bool kIsFlagEnum<AccessFlags> = true;

// Remote WRITE and atomics make the device store into the region, so the verbs specification
// requires LOCAL_WRITE with them.
constexpr bool is_registrable(AccessFlags access) {
  const bool stores =
      (access & (AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic)) != AccessFlags::kNone;
  return !stores || has(access, AccessFlags::kLocalWrite);
}

// The behaviour of one work request (ibv_wr_post(3)).
enum class OpFlags : unsigned {
  kNone = 0,
  kSignaled = IBV_SEND_SIGNALED,  // requests a completion on success; failures always complete
  kFenced = IBV_SEND_FENCE,       // starts only after earlier READs and atomics of this queue pair
  kSolicited = IBV_SEND_SOLICITED,  // wakes a receiver that armed for solicited completions only
};
template <>
inline constexpr bool kIsFlagEnum<OpFlags> = true;

// Operations that a queue pair must offer (ibv_create_qp_ex(3)). With fewer operations, a device
// without atomics can still create the queue pair.
enum class SendOps : unsigned {
  kNone = 0,
  kWrite = IBV_QP_EX_WITH_RDMA_WRITE,
  kWriteImm = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
  kSend = IBV_QP_EX_WITH_SEND,
  kSendImm = IBV_QP_EX_WITH_SEND_WITH_IMM,
  kRead = IBV_QP_EX_WITH_RDMA_READ,
  kCompareSwap = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
  kFetchAdd = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
  kBindWindow = IBV_QP_EX_WITH_BIND_MW,
  kLocalInvalidate = IBV_QP_EX_WITH_LOCAL_INV,
  kSendInvalidate = IBV_QP_EX_WITH_SEND_WITH_INV,
};
template <>
inline constexpr bool kIsFlagEnum<SendOps> = true;
inline constexpr SendOps kAllSendOps = SendOps::kWrite | SendOps::kWriteImm | SendOps::kSend |
                                       SendOps::kSendImm | SendOps::kRead | SendOps::kCompareSwap |
                                       SendOps::kFetchAdd;
// Not in kAllSendOps: a device without memory windows refuses a queue pair that names them.
inline constexpr SendOps kWindowOps =
    SendOps::kBindWindow | SendOps::kLocalInvalidate | SendOps::kSendInvalidate;

}  // namespace rkv::rdma
