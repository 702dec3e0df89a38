#include "server/background/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "common/log.h"
#include "common/standard_streams.h"

namespace rkv::server {

namespace {
constexpr Nanos kTerminalInterval = 200 * kNanosPerMs;  // smooth enough for the eye
constexpr Nanos kLogInterval = 5000 * kNanosPerMs;      // a dozen lines a minute
}  // namespace

Progress::Progress(const Clock& clock, const char* what, std::uint64_t expected, const char* unit,
                   std::uint64_t look_every)
    : clock_(clock),
      what_(what),
      expected_(expected),
      unit_(unit),
      look_every_(look_every),
      terminal_(isatty(STDERR_FILENO) == 1),
      started_(clock.now()),
      shown_(started_) {}

bool Progress::advance(std::uint64_t done) {
  if (done % look_every_ != 0) return false;
  const Nanos now = clock_.now();
  if (now - shown_ >= (terminal_ ? kTerminalInterval : kLogInterval)) {
    shown_ = now;
    show(done);
  }
  return true;
}

void Progress::show(std::uint64_t done) {
  const auto ms = static_cast<std::uint64_t>((clock_.now() - started_) / kNanosPerMs);
  const std::string rate =
      fmt::format("{} {}/s", done * 1000 / std::max<std::uint64_t>(ms, 1), unit_);
  const std::string of = expected_ > done ? fmt::format(" of about {}", expected_) : std::string();
  if (!terminal_)
    return log_info(EventName("progress"), "{}: {}{} {}, {}", what_, done, of, unit_, rate);
  write_to_stderr(fmt::format("\r{}: {}{} {}, {}\033[K", what_, done, of, unit_, rate), 0);
  open_line_ = true;
}

void Progress::finish(std::uint64_t done) {
  if (!open_line_) return;
  show(done);
  write_to_stderr("\n", 0);
  open_line_ = false;
}

}  // namespace rkv::server
