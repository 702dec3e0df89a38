#include "server/group/replica/configuration_note.h"

#include <chrono>

#include "common/thread.h"

namespace rkv::server {

namespace {

// Pause after a failure. The disk's own trouble is in the log already.
constexpr std::chrono::seconds kAgainAfter{1};

}  // namespace

void ConfigurationNote::start() {
  thread_ = std::thread([this] { run(); });
}

void ConfigurationNote::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ConfigurationNote::write(std::uint64_t number, std::uint32_t term) {
  {
    const MutexLock lock(mutex_);
    if (number <= number_) return;
    number_ = number;
    term_ = term;
  }
  changed_.notify_all();
}

void ConfigurationNote::run() {
  name_thread("rkv-group-note");
  std::uint64_t written = 0;
  bool has_failed = false;
  for (;;) {
    std::uint64_t number = 0;
    std::uint32_t term = 0;
    {
      const MutexLock lock(mutex_);
      if (has_failed && !stopping_) changed_.wait_for(mutex_, kAgainAfter);
      while (!stopping_ && number_ == written)
        changed_.wait(mutex_);
      if (number_ == written || (stopping_ && has_failed)) return;
      number = number_;
      term = term_;
    }
    has_failed = !write_(number, term);
    if (!has_failed) written = number;
  }
}

}  // namespace rkv::server
