#include "bench/kvbench/status_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "common/standard_streams.h"

namespace rkv::kvbench {

namespace {

// At most two decimals, without trailing zeroes, as Java's "#.##".
std::string short_number(double number) {
  std::string text = fmt::format("{:.2f}", number);
  while (text.ends_with('0'))
    text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// "1 hour 2 minutes", in YCSB's form: seconds only below a minute, minutes only below a day.
std::string remaining(std::uint64_t seconds) {
  const auto part = [](std::uint64_t number, const char* unit) {
    return number == 0 ? "" : fmt::format("{} {}{} ", number, unit, number == 1 ? "" : "s");
  };
  const std::uint64_t days = seconds / 86400;
  std::string text = part(days, "day") + part(seconds / 3600 % 24, "hour");
  if (days == 0) text += part(seconds / 60 % 60, "minute");
  return text.empty() ? fmt::format("{} second{} ", seconds, seconds == 1 ? "" : "s") : text;
}

std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  return fmt::format("{:%Y-%m-%d %H:%M:%S}:{:03}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(now)), ms.count() % 1000);
}

}  // namespace

std::string StatusLine::line(Nanos now, std::uint64_t done, std::uint64_t total,
                             const std::vector<Row>& rows, const std::string& date) const {
  const double seconds = static_cast<double>(now - began_) / 1e9;
  const double since_last = static_cast<double>(now - last_) / 1e9;
  std::string text =
      fmt::format("{}{} {:.0f} sec: {} operations; ", label_, date, std::floor(seconds), done);
  if (done != 0) {
    const double rate = since_last > 0 ? static_cast<double>(done - last_done_) / since_last : 0;
    text += fmt::format("{} current ops/sec; ", short_number(rate));
  }
  if (total > done && done != 0 && seconds > 0) {
    const double left =
        std::ceil(static_cast<double>(total - done) / static_cast<double>(done) * seconds);
    text += fmt::format("est completion in {}", remaining(static_cast<std::uint64_t>(left)));
  }
  for (const Row& row : rows) {
    const HdrHistogram& latency = row.latency;
    if (latency.count() == 0) continue;
    const auto us = [&](double percent) { return latency.percentile(percent) / 1000; };
    text += fmt::format(
        "[{}: Count={}, Max={}, Min={}, Avg={}, 50={}, 90={}, 99={}, 99.9={}, 99.99={}] ", row.name,
        latency.count(), latency.max() / 1000, latency.min() / 1000,
        short_number(latency.mean() / 1000), us(50), us(90), us(99), us(99.9), us(99.99));
  }
  return text;
}

void StatusLine::print(Nanos now, std::uint64_t done, std::uint64_t total,
                       const std::vector<Row>& rows) {
  const std::string text = line(now, done, total, rows, now_text()) + "\n";
  write_to_stderr(text, 0);  // the measurement waits for nobody who reads it
  last_ = now;
  last_done_ = done;
}

}  // namespace rkv::kvbench
