#include "rkv/rdma/error.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>

#include "common/standard_streams.h"

namespace rkv::rdma {
namespace {

struct VerbAdvice {
  std::string_view verb;  // empty: any
  int sys_errno;
  const char* text;
};

// Searched in order: advice for one verb comes before advice for all verbs.
constexpr VerbAdvice kAdvice[] = {
    {"ibv_reg_mr", ENOMEM,
     "the locked-memory limit is too low: raise it (ulimit -l unlimited, LimitMEMLOCK=infinity, "
     "docker --ulimit memlock=-1)"},
    {"ibv_reg_mr", EINVAL, "the access flags cannot be combined, or the range is not mapped"},
    {"ibv_reg_mr", EFAULT, "the range is not mapped writable"},
    {"ibv_dereg_mr", EBUSY, "a memory window is still bound to the region"},
    {"ibv_dereg_mr", EINVAL, "a memory window is still bound to the region"},
    {"ibv_query_port", EINVAL, "port is 1 to the device's port_count (DeviceAttributes)"},
    {"ibv_open_device", EMFILE, "raise the limit of open files (ulimit -n)"},
    {"rdma_bind_addr", ENODEV,
     "no RDMA device has this local address: compare `rdma link` with `ip addr`"},
    {"rdma_bind_addr", EADDRNOTAVAIL, "no interface of this machine has this address"},
    {"rdma_resolve_addr", ENODEV,
     "no RDMA device leads to this address: compare `rdma link` with `ip route`"},
    {"rdma_create_event_channel", ENODEV,
     "librdmacm found no device: check that the kernel module rdma_ucm is loaded and that "
     "/dev/infiniband/rdma_cm exists"},
    {"rdma_create_event_channel", ENOENT,
     "librdmacm found no device: check that the kernel module rdma_ucm is loaded and that "
     "/dev/infiniband/rdma_cm exists"},
    {"rdma_connect", EINVAL,
     "private data of a connect request is at most 56 bytes, or the read depth is above the "
     "device's"},
    {"rdma_connect", ECONNREFUSED, "nobody listens on this address and port"},
    {"rdma_accept", EINVAL,
     "private data of an accept is at most 196 bytes, or the read depth is above the device's"},
    {"rdma_reject", EINVAL, "private data of a reject is at most 148 bytes"},
    {"ibv_create_qp_ex", EINVAL,
     "a queue length, the inline size or the number of scatter/gather entries is above the "
     "device's limit"},
    {"ibv_create_qp_ex", ENOMEM, "the device has no room for the queue: lower its length"},
    {"ibv_create_cq_ex", EINVAL, "the completion queue is longer than the device's limit"},
    {"ibv_wr_complete", ENOMEM, "the send queue is full: nothing of this batch was posted"},
    {"ibv_wr_complete", ENOSPC, "the send queue is full: nothing of this batch was posted"},
    {"ibv_post_send", ENOMEM, "the send queue is full"},
    {"ibv_post_recv", ENOMEM, "the receive queue is full"},
    {"ibv_post_srq_recv", ENOMEM, "the shared receive queue is full"},
    {"", EPERM,
     "permission denied: check that this user may open /dev/infiniband/* (group rdma, docker "
     "--device /dev/infiniband, IPC_LOCK)"},
    {"", EACCES,
     "permission denied: check that this user may open /dev/infiniband/* (group rdma, docker "
     "--device /dev/infiniband, IPC_LOCK)"},
    {"", EADDRINUSE, "something else listens on this address and port"},
    {"", EOPNOTSUPP, "this device, kernel or provider does not support the verb"},
    {"", ENOSYS, "this device, kernel or provider does not support the verb"},
    {"", EPROTONOSUPPORT, "this device, kernel or provider does not support the verb"},
    // Set only by linkage/forward.cc.
    {"", ELIBACC,
     "libibverbs.so.1 and librdmacm.so.1 of rdma-core are missing: install the packages "
     "libibverbs1, librdmacm1 and ibverbs-providers"},
    {"", ENETUNREACH, "no route to this address"},
    {"", EHOSTUNREACH, "no route to this address"},
    {"", ENODEV, "no RDMA device: see `rdma link`"},
    {"", EBUSY, "an object created from this one still exists"},
};

constexpr std::array kFirstText = {
    WcExplanation{WcClass::kSuccess, Code::kInternal, "success"},
    WcExplanation{WcClass::kLocalError, Code::kInternal,
                  "local length error: a message was longer than the posted buffer"},
    WcExplanation{WcClass::kLocalError, Code::kInternal,
                  "local queue-pair operation error: the request is malformed for this queue pair"},
    WcExplanation{WcClass::kLocalError, Code::kInternal, "local end-to-end context error"},
    WcExplanation{WcClass::kLocalError, Code::kInternal,
                  "local protection error: lkey, bounds or rights of the local buffer are wrong"},
    WcExplanation{WcClass::kFlushed, Code::kDisconnected,
                  "flushed: the connection was down, an earlier completion says why"},
    WcExplanation{WcClass::kLocalError, Code::kInternal, "memory window bind error"},
    WcExplanation{WcClass::kDeviceError, Code::kDisconnected,
                  "bad response: the peer's device sent an unexpected response"},
    WcExplanation{WcClass::kLocalError, Code::kInternal,
                  "local access error: data arrived for memory without local write access"},
    WcExplanation{WcClass::kRemoteRefused, Code::kPermission,
                  "remote invalid request: the operation is not enabled on the peer's queue pair, "
                  "or a message did not fit its receive"},
    WcExplanation{WcClass::kRemoteRefused, Code::kPermission,
                  "remote access error: rkey, bounds or rights at the peer refuse the operation"},
    WcExplanation{WcClass::kRemoteRefused, Code::kDisconnected,
                  "remote operation error: the peer's device could not complete the request"},
    WcExplanation{WcClass::kPeerUnreachable, Code::kDisconnected,
                  "no acknowledgement after all retries: the peer or the link is down, or the GID "
                  "does not reach the peer"},
    WcExplanation{WcClass::kReceiverNotReady, Code::kDisconnected,
                  "receiver not ready (RNR): the peer posted no receive in time"},
};
static_assert(kFirstText.size() == IBV_WC_RNR_RETRY_EXC_ERR + 1);

constexpr WcExplanation kDeviceFailure = {WcClass::kDeviceError, Code::kDisconnected,
                                          "the device or its driver failed"};

void print_to_stderr(const Error& error) noexcept {
  // Does not use to_string: a destructor must not allocate.
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), "rkv::rdma: tear-down failed: %s: errno %d\n",
                error.call != nullptr ? error.call : "?", error.sys_errno);
  write_to_stderr(line.data(), 0);
}

std::atomic<TeardownHandler> teardown_handler{&print_to_stderr};

}  // namespace

Code code_of_errno(int sys_errno) {
  switch (sys_errno) {
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
      return Code::kOutOfMemory;
    case EAGAIN:
    case EBUSY:
    case EMFILE:
    case ENFILE:
      return Code::kBusy;
    case EPERM:
    case EACCES:
      return Code::kPermission;
    case EADDRINUSE:
    case EEXIST:
      return Code::kConflict;
    case EOPNOTSUPP:
    case ENOSYS:
    case EPROTONOSUPPORT:
    case ELIBACC:
      return Code::kUnsupported;
    case ENODEV:
    case ENXIO:
      return Code::kNoDevice;
    case EINVAL:
    case EFAULT:
    case EMSGSIZE:
    case EADDRNOTAVAIL:
      return Code::kInvalidArgument;
    case ETIMEDOUT:
      return Code::kTimeout;
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EHOSTDOWN:
      return Code::kUnreachable;
    case ENOTCONN:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
      return Code::kDisconnected;
    default:
      return Code::kInternal;
  }
}

const char* advice_for(std::string_view verb, int sys_errno) {
  for (const VerbAdvice& advice : kAdvice) {
    if (advice.sys_errno == sys_errno && (advice.verb.empty() || advice.verb == verb)) {
      return advice.text;
    }
  }
  return nullptr;
}

std::unexpected<Error> verb_error(const char* verb, int sys_errno) {
  return fail_call(code_of_errno(sys_errno), verb, sys_errno, advice_for(verb, sys_errno));
}

const WcExplanation& explain(ibv_wc_status status) {
  const auto index = static_cast<std::size_t>(status);
  return index < kFirstText.size() ? kFirstText[index] : kDeviceFailure;
}

Error wc_error(const char* operation, ibv_wc_status status) {
  const WcExplanation& why = explain(status);
  return {.code = why.code, .call = operation, .text = why.text};
}

TeardownHandler set_teardown_handler(TeardownHandler handler) noexcept {
  return teardown_handler.exchange(handler != nullptr ? handler : &print_to_stderr);
}

void report_teardown(const Status& status) noexcept {
  if (!status) teardown_handler.load()(status.error());
}

}  // namespace rkv::rdma
