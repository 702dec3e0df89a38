#include "client/c/errors.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace rkv::c {

rkv_status report(rkv_status code, std::string_view text, rkv_error* error) {
  if (error == nullptr) return code;
  *error = {};
  error->code = code;
  const std::size_t length = std::min(text.size(), sizeof error->text - 1);
  if (length != 0) std::memcpy(error->text, text.data(), length);
  return code;
}

rkv_status report(const Error& given, rkv_error* error) {
  const auto code = static_cast<rkv_status>(given.code);
  if (error == nullptr) return code;
  report(code, to_string(given), error);
  error->may_have_happened = given.write == WriteOutcome::kMayHaveHappened ? 1 : 0;
  error->sys_errno = given.sys_errno;
  return code;
}

rkv_status report_refused(const Error& given, std::string_view refusal, rkv_error* error) {
  if (refusal.empty()) return report(given, error);
  const rkv_status code = report(given, error);
  if (error == nullptr) return code;
  const rkv_error plain = *error;
  report(code, to_string(given) + ": " + std::string(refusal), error);
  error->may_have_happened = plain.may_have_happened;
  error->sys_errno = plain.sys_errno;
  return code;
}

}  // namespace rkv::c

extern "C" {

uint32_t rkv_c_version(void) {
  return RKV_C_VERSION;
}

const char* rkv_status_text(rkv_status status) {
  if (status == RKV_OK) return "ok";
  if (status < 0 || status > 255) return "unknown";
  return rkv::to_string(static_cast<rkv::Code>(status));
}

}  // extern "C"
