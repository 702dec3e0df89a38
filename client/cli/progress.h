// Progress on stderr: one rewriting line on a terminal; elsewhere nothing, or, where it is asked
// for, a plain line every second.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "common/clock.h"

namespace rkv::cli {

class Progress {
 public:
  // `what` such as "loading"; `total` records, 0 = not known; `anywhere`: also on no terminal.
  Progress(std::string what, std::uint64_t total, bool anywhere);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `part`: how much of the whole this is, where the number of records does not tell; -1 = not
  // known.
  void update(std::uint64_t done, double part = -1);
  // Takes the rewriting line away, before anything else is printed.
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

// How long something has taken of which nobody knows how far it is: "making the backup, 12 s".
// Until it is destroyed.
class Waiting {
 public:
  // `anywhere`: as of Progress.
  Waiting(std::string what, bool anywhere);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void run();
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;  // guarded by mutex_
  std::thread thread_;    // none where nothing is to be said
};

}  // namespace rkv::cli
