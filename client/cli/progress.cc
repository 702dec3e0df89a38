#include "client/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace rkv::cli {

namespace {
constexpr Nanos kRewrite = 100 * kNanosPerMs;
constexpr Nanos kPlain = 5000 * kNanosPerMs;
}  // namespace

Progress::Progress(std::string what, std::uint64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      started_(clock_.now()),
      next_(started_ + (terminal_ ? kRewrite : kPlain)) {}

void Progress::update(std::uint64_t done) {
  const Nanos now = clock_.now();
  if (now < next_) return;
  next_ = now + (terminal_ ? kRewrite : kPlain);
  const double seconds = static_cast<double>(now - started_) / 1e9;
  const std::string line =
      fmt::format("{} {} of {} ({:.0f} %), {:.0f}/s", what_, done, total_,
                  100.0 * static_cast<double>(done) / static_cast<double>(total_),
                  static_cast<double>(done) / seconds);
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K", line);
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (terminal_ && shown_) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
  shown_ = false;
}

}  // namespace rkv::cli
