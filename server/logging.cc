#include "server/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace rkv::server {

void install_log_sink(LogLevel least) {
  auto logger = std::make_shared<spdlog::logger>("kvserver",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->set_level(spdlog::level::debug);  // what is logged at all, set_log_level decides
  set_log_sink([logger](LogLevel level, std::string_view text) {
    const spdlog::string_view_t line(text.data(), text.size());
    switch (level) {
      case LogLevel::kDebug:
        return logger->log(spdlog::level::debug, line);
      case LogLevel::kInfo:
        return logger->log(spdlog::level::info, line);
      case LogLevel::kWarn:
        return logger->log(spdlog::level::warn, line);
      default:
        return logger->log(spdlog::level::err, line);
    }
  });
  set_log_level(least);
}

}  // namespace rkv::server
