#include "rkv/result.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <iterator>

namespace rkv {

const char* to_string(Code code) {
  switch (code) {
    case Code::kNotFound:
      return "not found";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kTooLarge:
      return "too large";
    case Code::kConflict:
      return "conflict";
    case Code::kWrongType:
      return "wrong type";
    case Code::kValueChanged:
      return "the value changed while it was being sent";
    case Code::kOutOfRange:
      return "out of range";
    case Code::kCancelled:
      return "cancelled";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kBusy:
      return "busy";
    case Code::kDisconnected:
      return "disconnected";
    case Code::kStale:
      return "the server has restarted";
    case Code::kNotPrimary:
      return "the server is not the primary of its group";
    case Code::kTimeout:
      return "timed out";
    case Code::kUnreachable:
      return "unreachable";
    case Code::kVersionMismatch:
      return "version mismatch";
    case Code::kPermission:
      return "permission denied";
    case Code::kNoDevice:
      return "no RDMA device";
    case Code::kUnsupported:
      return "not supported";
    case Code::kIo:
      return "input/output error";
    case Code::kCorrupt:
      return "corrupt data";
    case Code::kRejected:
      return "rejected by the server";
    case Code::kInternal:
      return "internal error";
    case Code::kUnauthenticated:
      return "not authenticated";
  }
  return "unknown error";
}

std::string to_string(const Error& error) {
  std::string out;
  if (error.call != nullptr) out += fmt::format("{}: ", error.call);
  if (error.sys_errno != 0) {
    char buffer[128];
    out += fmt::format("{} (errno {})", strerror_r(error.sys_errno, buffer, sizeof buffer),
                       error.sys_errno);
    if (error.text != nullptr) {
      out += fmt::format(": {}", error.text);
    } else if (error.sys_errno == EMFILE) {  // of any call that takes a descriptor
      out += ": raise the limit of open files (ulimit -n)";
    }
  } else {
    out += error.text != nullptr ? error.text : to_string(error.code);
  }
  if (error.write == WriteOutcome::kMayHaveHappened) out += "; the write may have happened";
  return out;
}

}  // namespace rkv
