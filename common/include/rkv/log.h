// Where the library's log lines go: a level and one sentence, to a sink that the program chooses.
// There are few: what no return value could tell, such as an error in a destructor.
//
//   rkv::set_log_sink([](rkv::LogLevel level, std::string_view text) { ... });
//
// Thread safety: set_log_level() from any thread at any time. The sink may be called from any
// thread.
#pragma once

#include <functional>
#include <string_view>

#include "rkv/export.h"

namespace rkv {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarn, kError, kOff };

using LogSink = std::function<void(LogLevel, std::string_view)>;

RKV_EXPORT void set_log_level(LogLevel least);
// Replaces the default sink, which writes "level: text" lines to stderr. Set it before threads
// start.
RKV_EXPORT void set_log_sink(LogSink sink);

}  // namespace rkv
