// Progress on stderr: one rewriting line on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"

namespace rkv::cli {

class Progress {
 public:
  // `what` such as "loading"; `total` records.
  Progress(std::string what, std::uint64_t total);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::uint64_t done);
  // Takes the rewriting line away, before anything else is printed.
  void clear();

 private:
  std::string what_;
  std::uint64_t total_;
  bool terminal_;
  bool shown_ = false;
  SteadyClock clock_;
  Nanos started_;
  Nanos next_;
};

}  // namespace rkv::cli
