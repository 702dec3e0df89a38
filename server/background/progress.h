// Progress: shows the progress of a long operation. On a terminal it rewrites one line; elsewhere
// it logs a line every few seconds.
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace rkv::server {

class Progress {
 public:
  // `expected` is a rough estimate; 0: unknown. advance() reads the clock only when `done` is a
  // multiple of `look_every`.
  Progress(const Clock& clock, const char* what, std::uint64_t expected,
           const char* unit = "records", std::uint64_t look_every = 1024);
  // Shows the progress if it is time to. Returns true if it read the clock, so that the caller can
  // do its own periodic work.
  bool advance(std::uint64_t done);
  void finish(std::uint64_t done);

 private:
  void show(std::uint64_t done);
  const Clock& clock_;
  const char* const what_;
  const std::uint64_t expected_;
  const char* const unit_;
  const std::uint64_t look_every_;
  const bool terminal_;
  const Nanos started_;
  Nanos shown_;
  bool open_line_ = false;
};

}  // namespace rkv::server
