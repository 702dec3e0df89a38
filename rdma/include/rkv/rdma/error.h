// Errors of verbs as rkv::Error: one adapter for each of the five ways in which verbs report
// errors.
//
//   RKV_RETURN_IF_ERROR(from_errno("ibv_modify_qp", ibv_modify_qp(qp, &attr, mask)));
//   RKV_ASSIGN_OR_RETURN(ibv_pd* pd, from_null("ibv_alloc_pd", ibv_alloc_pd(context)));
//
// Every error names the verb, keeps the errno and, if a user can correct the cause, contains
// advice. Nothing here blocks. Thread safety: all functions may be called from any thread.
// Source: "RETURN VALUE" of each verb's page, as in ibv_modify_qp(3), ibv_reg_mr(3),
// ibv_poll_cq(3).
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <expected>
#include <string_view>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The error code for an errno, and advice about it (static; nullptr if the errno's own text is
// enough). Some errnos depend on the verb: ENOMEM of ibv_reg_mr is nearly always the locked-memory
// limit.
RKV_EXPORT Code code_of_errno(int sys_errno);
RKV_EXPORT const char* advice_for(std::string_view verb, int sys_errno);
RKV_EXPORT std::unexpected<Error> verb_error(const char* verb, int sys_errno);

// Way 1: 0, or the errno itself as a positive number. ibv_modify_qp, ibv_query_*, ibv_post_*,
// ibv_wr_complete, ibv_req_notify_cq, ibv_dereg_mr, ibv_destroy_*. Providers that break the rule
// and return -errno, or -1 with errno set, are handled too.
inline Status from_errno(const char* verb, int returned) {
  if (returned == 0) [[likely]]
    return {};
  if (returned > 0) return verb_error(verb, returned);
  return verb_error(verb, returned == -1 && errno != 0 ? errno : -returned);
}

// Way 2: 0, or -1 with errno set. All of librdmacm, ibv_get_cq_event, ibv_get_async_event,
// ibv_query_gid, ibv_close_device.
inline Status from_minus_one(const char* verb, int returned) {
  if (returned != -1) [[likely]]
    return {};
  return verb_error(verb, errno);
}

// Way 3: a pointer, or NULL with errno set. ibv_open_device, ibv_alloc_pd, ibv_reg_mr,
// ibv_create_*. A few failing calls leave errno unchanged; set it to 0 before the call to get EIO
// for those.
template <class T>
Result<T*> from_null(const char* verb, T* returned) {
  if (returned != nullptr) [[likely]]
    return returned;
  return verb_error(verb, errno != 0 ? errno : EIO);
}

// Way 4: a count, or a negative number. ibv_query_gid_table returns -errno; ibv_poll_cq promises
// only "negative", which becomes EIO.
inline Result<std::size_t> from_count(const char* verb, std::int64_t returned) {
  if (returned >= 0) [[likely]]
    return static_cast<std::size_t>(returned);
  return verb_error(verb, returned == -1 ? EIO : static_cast<int>(-returned));
}

// Way 5: 0 for an entry, ENOENT for "empty", any other errno for an error. ibv_start_poll and
// ibv_next_poll.
inline Result<bool> from_poll(const char* verb, int returned) {
  if (returned == 0) return true;
  if (returned == ENOENT) [[likely]]
    return false;
  return verb_error(verb, returned);
}

// The meaning of a work completion's status for the poster of the request.
enum class WcClass : unsigned char {
  kSuccess,
  kFlushed,           // the queue pair was in the error state: the first error has the cause
  kLocalError,        // the local request was wrong: key, length, access
  kRemoteRefused,     // the peer's device refused it: rkey, bounds, rights
  kPeerUnreachable,   // no acknowledgement: the peer has ended, the link is down, wrong GID
  kReceiverNotReady,  // the peer had no receive posted
  kDeviceError,       // the device or its driver failed
};
struct WcExplanation {
  WcClass kind;
  Code code;
  const char* text;  // static: the meaning, and what to check
};
// Never fails: a status unknown to this library counts as a device error.
RKV_EXPORT const WcExplanation& explain(ibv_wc_status status);
// The error of a failed completion; `operation` is a static name such as "RDMA READ".
// REQUIRES: status != IBV_WC_SUCCESS.
RKV_EXPORT Error wc_error(const char* operation, ibv_wc_status status);

// Receives the errors of destructors, which cannot return them. An object that could not be
// destroyed is a leak or an ownership bug. The default handler writes one line to standard error.
// The handler may be called from any thread and must not throw. Returns the previous handler.
using TeardownHandler = void (*)(const Error&) noexcept;
RKV_EXPORT TeardownHandler set_teardown_handler(TeardownHandler handler) noexcept;
RKV_EXPORT void report_teardown(const Status& status) noexcept;

}  // namespace rkv::rdma
