// Progress on stderr. On a terminal: one line that is rewritten. Elsewhere: nothing, or on request
// a plain line every second.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"

namespace rkv::cli {

class Progress {
 public:
  // `what` is a word like "loading"; `total` records, 0 = not known; `anywhere`: also if stderr is
  // not a terminal.
  Progress(std::string what, std::uint64_t total, bool anywhere);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `part`: the completed fraction, if the number of records does not show it; -1 = not known.
  void update(std::uint64_t done, double part = -1);
  // Removes the rewriting line; call it before anything else is printed.
  void clear();

 private:
  std::string what_;
  std::uint64_t total_;
  bool terminal_;
  bool silent_;
  bool shown_ = false;
  SteadyClock clock_;
  Nanos started_;
  Nanos next_;
};

// Shows the elapsed time of work whose progress is not known, until it is destroyed: "making the
// backup, 12 s".
class Waiting {
 public:
  // `anywhere`: as for Progress.
  Waiting(std::string what, bool anywhere);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void run();
  const std::string what_;
  Mutex mutex_;
  ConditionVariable over_;
  bool is_over_ RKV_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // not started if there is nothing to show
};

}  // namespace rkv::cli
