// Progress of something long: one line that is rewritten on a terminal, a log line every few
// seconds elsewhere.
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace rkv::server {

class Progress {
 public:
  // `expected` may be far off; 0 = unknown. Looks at the clock when `done` is a multiple of
  // `look_every`.
  Progress(const Clock& clock, const char* what, std::uint64_t expected,
           const char* unit = "records", std::uint64_t look_every = 1024);
  // Cheap; looks at the clock now and then. True when it did, so that the caller may look at other
  // things as well.
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
