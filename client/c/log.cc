// The library's log, as C gets it.
#include "rkv/log.h"

#include <string>
#include <string_view>

#include "client/c/errors.h"

namespace rkv::c {
namespace {

static_assert(RKV_LOG_DEBUG == static_cast<int>(LogLevel::kDebug));
static_assert(RKV_LOG_INFO == static_cast<int>(LogLevel::kInfo));
static_assert(RKV_LOG_WARNING == static_cast<int>(LogLevel::kWarn));
static_assert(RKV_LOG_ERROR == static_cast<int>(LogLevel::kError));
static_assert(RKV_LOG_OFF == static_cast<int>(LogLevel::kOff));

}  // namespace
}  // namespace rkv::c

extern "C" {

rkv_status rkv_set_log(rkv_log_callback callback, void* context, rkv_error* error) {
  return rkv::c::guarded(error, [&] {
    if (callback == nullptr) {
      rkv::set_log_sink({});
    } else {
      rkv::set_log_sink([callback, context](rkv::LogLevel level, std::string_view text) {
        const std::string line(text);  // ends with a zero
        callback(context, static_cast<int>(level), line.c_str());
      });
    }
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_set_log_level(int least, rkv_error* error) {
  if (least < RKV_LOG_DEBUG || least > RKV_LOG_OFF)
    return rkv::c::wrong("a log's level is RKV_LOG_DEBUG to RKV_LOG_OFF", error);
  rkv::set_log_level(static_cast<rkv::LogLevel>(least));
  return RKV_OK;
}

}  // extern "C"
