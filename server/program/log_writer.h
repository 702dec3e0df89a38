// LogWriter: a bounded queue of lines and a thread that writes them to a descriptor, so that a
// reader that stalls, or a slow disk, blocks this thread and no other.
//
// Invariants:
//  LOG-1  add() never waits for the descriptor. A line for which the queue has no room is dropped.
//  LOG-2  Each line is written whole or counted: the number of lines that were dropped, or whose
//      write failed, comes before the next line that is queued.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "common/mutex.h"

namespace rkv::server {

class LogWriter {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  // Formats the line that says how many lines are lost. Called by add(), with its mutex held.
  using Notice = std::function<std::string(std::uint64_t lost)>;

  // Throws std::system_error if no thread can be started. `fd` must stay open.
  LogWriter(int fd, Notice notice, std::size_t most_bytes = kMostBytes);
  // Writes what is queued first: blocks for as long as the descriptor does. The program's writer is
  // never destroyed.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // `line`: with its line end.
  void add(std::string line);
  // Waits until what is queued is written; false if that takes longer than `most_ms`.
  bool flush(int most_ms);

 private:
  struct Entry {
    std::string text;
    std::uint64_t lost = 0;  // how many lost lines the text tells of
  };

  void run();
  bool write_whole(const std::string& text) const;

  const int fd_;
  const Notice notice_;
  const std::size_t most_bytes_;
  Mutex mutex_;
  ConditionVariable queued_;
  ConditionVariable written_;
  std::deque<Entry> queue_ RKV_GUARDED_BY(mutex_);  // the first one is being written
  std::size_t bytes_ RKV_GUARDED_BY(mutex_) = 0;
  std::uint64_t lost_ RKV_GUARDED_BY(mutex_) = 0;
  bool ends_ RKV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rkv::server
