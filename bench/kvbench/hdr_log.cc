#include "bench/kvbench/hdr_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace rkv::kvbench {

namespace {
double seconds(std::chrono::system_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}
}  // namespace

HdrLog::HdrLog(std::string prefix)
    : prefix_(std::move(prefix)), began_(std::chrono::system_clock::now()), last_(began_) {}

std::FILE* HdrLog::file_of(const std::string& row) {
  const auto found = files_.find(row);
  if (found != files_.end()) return found->second.get();
  const std::string path = fmt::format("{}{}.hdr", prefix_, row);
  File file(std::fopen(path.c_str(), "we"));
  if (file == nullptr) {
    if (problem_.empty()) {
      problem_ = fmt::format("cannot write the histogram log {}: {}", path, std::strerror(errno));
    }
    return nullptr;
  }
  const auto time = std::chrono::system_clock::to_time_t(began_);
  const std::string head = fmt::format(
      "#[Logging for: {}]\n"
      "#[Values are nanoseconds]\n"
      "#[Histogram log format version 1.3]\n"
      "#[StartTime: {:.3f} (seconds since epoch), {:%a %b %d %H:%M:%S UTC %Y}]\n"
      "#[BaseTime: {:.3f} (seconds since epoch)]\n"
      "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
      "\"Interval_Compressed_Histogram\"\n",
      row, seconds(began_.time_since_epoch()), fmt::gmtime(time),
      seconds(began_.time_since_epoch()));
  std::fputs(head.c_str(), file.get());  // the next flush reports a failure
  return files_.emplace(row, std::move(file)).first->second.get();
}

void HdrLog::add(const std::vector<Row>& rows) {
  const auto now = std::chrono::system_clock::now();
  for (const Row& row : rows) {
    if (row.latency.count() == 0) continue;
    std::FILE* file = file_of(row.name);
    if (file == nullptr) continue;
    const std::string line =
        fmt::format("{:.3f},{:.3f},{:.3f},{}\n", seconds(last_ - began_), seconds(now - last_),
                    static_cast<double>(row.latency.max()) / 1e6, row.latency.encode());
    std::fputs(line.c_str(), file);
    if ((std::fflush(file) != 0 || std::ferror(file) != 0) && problem_.empty()) {
      problem_ =
          fmt::format("cannot write the histogram log of {}: {}", row.name, std::strerror(errno));
    }
  }
  last_ = now;
}

}  // namespace rkv::kvbench
