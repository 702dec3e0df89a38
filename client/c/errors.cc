#include "client/c/errors.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace rkv::c {

namespace {

void append(std::string_view refusal, rkv_error* error) {
  if (refusal.empty() || error == nullptr) return;
  std::size_t end = std::strlen(error->text);
  for (const std::string_view part : {std::string_view(": "), refusal}) {
    const std::size_t length = std::min(part.size(), sizeof error->text - 1 - end);
    std::memcpy(error->text + end, part.data(), length);
    end += length;
  }
  error->text[end] = 0;
}

}  // namespace

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
  try {
    report(code, to_string(given), error);
  } catch (const std::bad_alloc&) {  // in a callback, which must be called all the same
    report(code, given.text == nullptr ? to_string(given.code) : given.text, error);
  }
  error->may_have_happened = given.write == WriteOutcome::kMayHaveHappened ? 1 : 0;
  error->sys_errno = given.sys_errno;
  return code;
}

rkv_status report_refused(const Error& given, std::string_view refusal, rkv_error* error) {
  const rkv_status code = report(given, error);
  append(refusal, error);
  return code;
}

void add_refusal(std::string_view refusal, rkv_error* error) {
  if (error == nullptr || std::string_view(error->text) != rkv_status_text(error->code)) return;
  append(refusal, error);
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
