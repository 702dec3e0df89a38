#include "client/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "common/standard_streams.h"

namespace rkv::cli {

namespace {
constexpr Nanos kRewrite = 100 * kNanosPerMs;
constexpr Nanos kPlain = 1000 * kNanosPerMs;

// The work goes on whether or not anybody reads how far it is.
void show(const std::string& text) {
  write_to_stderr(text, 0);
}

}  // namespace

Progress::Progress(std::string what, std::uint64_t total, bool anywhere)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      silent_(!terminal_ && !anywhere),
      started_(clock_.now()),
      next_(started_ + (terminal_ ? kRewrite : kPlain)) {}

void Progress::update(std::uint64_t done, double part) {
  if (silent_) return;
  const Nanos now = clock_.now();
  if (now < next_) return;
  next_ = now + (terminal_ ? kRewrite : kPlain);
  const double seconds = static_cast<double>(now - started_) / 1e9;
  if (total_ != 0) part = static_cast<double>(done) / static_cast<double>(total_);
  const std::string line = fmt::format("{} {}{}{}, {:.0f}/s", what_, done,
                                       total_ != 0 ? fmt::format(" of {}", total_) : "",
                                       part >= 0 ? fmt::format(" ({:.0f} %)", 100.0 * part) : "",
                                       static_cast<double>(done) / seconds);
  show(terminal_ ? fmt::format("\r{}\x1b[K", line) : line + "\n");
  shown_ = true;
}

Waiting::Waiting(std::string what, bool anywhere) : what_(std::move(what)) {
  if (::isatty(STDERR_FILENO) == 1 || anywhere) thread_ = std::thread([this] { run(); });
}

Waiting::~Waiting() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void Waiting::run() {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const MutexLock lock(mutex_);
  for (int seconds = 1;; ++seconds) {
    const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!is_over_ && over_.wait_until(mutex_, next)) {
    }
    if (is_over_) break;
    show(fmt::format("{}{}, {} s{}", terminal ? "\r" : "", what_, seconds,
                     terminal ? "\x1b[K" : "\n"));
  }
  if (terminal) show("\r\x1b[K");
}

void Progress::clear() {
  if (terminal_ && shown_) show("\r\x1b[K");
  shown_ = false;
}

}  // namespace rkv::cli
