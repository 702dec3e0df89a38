// Errors as values: Error, Result<T>, Status.
//
// Every call of this project that can fail returns a Result; nothing throws. An Error is small and
// trivially copyable. `code` says what the caller can do, `write` whether a write may have taken
// effect, and `call` which system call or verb failed with `sys_errno`.
//
//   rkv::Result<Device> device = Device::open("rxe0");
//   if (!device) return std::unexpected(device.error());
//
// Thread safety: values, no shared state.
#pragma once

#include <expected>
#include <string>
#include <type_traits>
#include <utility>

#include "rkv/export.h"

#ifndef __cpp_lib_expected
#error "rkv needs std::expected: compile as C++23 (-std=c++23), by g++ 12 or clang 19 or later"
#endif

namespace rkv {

// Grouped by what the caller must do. The numbers are sent on the wire (common/WIRE.md): append new
// ones only, within the group's range.
enum class Code : unsigned char {
  // The operation was carried out; this is its answer. Repeating it changes nothing.
  kNotFound = 1,         // the key does not exist
  kInvalidArgument = 2,  // the request itself is wrong
  kTooLarge = 3,         // key, value or message above a stated limit
  kConflict = 4,         // a condition did not hold, or something exists already
  kWrongType = 5,        // the key holds a counter but a value is needed, or the reverse
  kOutOfRange = 6,       // a counter would pass its limits
  kValueChanged = 7,     // the value's memory was written while it was being sent
  kCancelled = 8,        // the caller has withdrawn the operation
  // Retry later on the same connection.
  kOutOfMemory = 20,  // the store (or this process) is out of memory
  kBusy = 21,         // a queue is full or a limit of connections is reached
  // Reconnect, then retry.
  kDisconnected = 40,  // the connection is lost
  kStale = 41,         // the peer restarted: everything learnt from it is invalid
  kNotPrimary = 42,    // the server is a backup of its group: another one is the primary
  // Give up: only a person or another configuration can help.
  kTimeout = 60,          // the deadline passed
  kUnreachable = 61,      // no answer from that address
  kVersionMismatch = 62,  // the peer speaks another version
  kPermission = 63,       // the system or the peer refuses
  kNoDevice = 64,         // no RDMA device, or not the one asked for
  kUnsupported = 65,      // device, kernel or build cannot do it
  kIo = 66,               // disk
  kCorrupt = 67,          // stored data or a message does not verify
  kRejected = 68,         // the peer refused the connection and said why
  kInternal = 69,         // a bug
  kUnauthenticated = 70,  // the peer does not know who this is, or this does not know the peer
};

// Whether a write may have taken effect although the call failed.
enum class WriteOutcome : unsigned char {
  kNotApplied,       // certainly not (always so for reads)
  kMayHaveHappened,  // the request was sent and nothing says what became of it, or the answer is so
};

struct Error {
  Code code = Code::kInternal;
  WriteOutcome write = WriteOutcome::kNotApplied;
  int sys_errno = 0;           // 0 if no system call was involved
  const char* call = nullptr;  // static: the system call or verb that failed, e.g. "ibv_reg_mr"
  const char* text =
      nullptr;  // static: what is wrong and what to do, a sentence without a full stop
};
static_assert(std::is_trivially_copyable_v<Error>);

// "ibv_reg_mr: Cannot allocate memory (errno 12): raise the locked-memory limit (ulimit -l)".
RKV_EXPORT std::string to_string(const Error& error);
RKV_EXPORT const char* to_string(Code code);  // "not found", static

// Makes std::expected [[nodiscard]], which that of libstdc++ 12 is not. Otherwise identical.
template <class T>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using std::expected<T, Error>::expected;
};
using Status = Result<void>;

inline std::unexpected<Error> fail(Code code, const char* text) {
  return std::unexpected(Error{.code = code, .text = text});
}
inline std::unexpected<Error> fail_call(Code code, const char* call, int sys_errno,
                                        const char* text = nullptr) {
  return std::unexpected(Error{.code = code, .sys_errno = sys_errno, .call = call, .text = text});
}

}  // namespace rkv

// Evaluates an expression of type Result<T>; returns its error from the enclosing function.
#define RKV_RETURN_IF_ERROR(expression)                           \
  do {                                                            \
    if (auto rkv_status = (expression); !rkv_status) [[unlikely]] \
      return std::unexpected(rkv_status.error());                 \
  } while (false)

#define RKV_CONCAT_INNER(a, b) a##b
#define RKV_CONCAT(a, b) RKV_CONCAT_INNER(a, b)
// RKV_ASSIGN_OR_RETURN(auto device, Device::open(name));
#define RKV_ASSIGN_OR_RETURN(declaration, expression)                  \
  auto RKV_CONCAT(rkv_result_, __LINE__) = (expression);               \
  if (!RKV_CONCAT(rkv_result_, __LINE__)) [[unlikely]]                 \
    return std::unexpected(RKV_CONCAT(rkv_result_, __LINE__).error()); \
  declaration = std::move(*RKV_CONCAT(rkv_result_, __LINE__))
