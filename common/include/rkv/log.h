// The library's log: each line is a level and a sentence, passed to a sink that the program
// chooses. The library logs only what a return value cannot report, such as an error in a
// destructor.
//
//   rkv::set_log_sink([](rkv::LogLevel level, std::string_view text) { ... });
//
// Thread safety: set_log_level() may be called from any thread at any time. The sink may be called
// from any thread.
#pragma once

#include <functional>
#include <string_view>

#include "rkv/export.h"

namespace rkv {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarn, kError, kOff };

using LogSink = std::function<void(LogLevel, std::string_view)>;

RKV_EXPORT void set_log_level(LogLevel least);
// Replaces the default sink, which writes "level: text" lines to stderr. An empty sink brings it
// back. Call it before threads start.
RKV_EXPORT void set_log_sink(LogSink sink);

}  // namespace rkv
