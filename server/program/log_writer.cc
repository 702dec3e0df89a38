#include "server/program/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "common/thread.h"

namespace rkv::server {

LogWriter::LogWriter(int fd, Notice notice, std::size_t most_bytes)
    : fd_(fd), notice_(std::move(notice)), most_bytes_(most_bytes), thread_([this] { run(); }) {}

LogWriter::~LogWriter() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  queued_.notify_all();
  thread_.join();
}

void LogWriter::add(std::string line) {
  {
    const MutexLock lock(mutex_);
    if (bytes_ + line.size() > most_bytes_) {
      ++lost_;
      return;
    }
    Entry entry{.text = std::move(line), .lost = lost_};
    if (lost_ != 0) entry.text = notice_(std::exchange(lost_, 0)) + entry.text;
    bytes_ += entry.text.size();
    queue_.push_back(std::move(entry));
  }
  queued_.notify_one();
}

bool LogWriter::flush(int most_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(most_ms);
  const MutexLock lock(mutex_);
  while (!queue_.empty()) {
    if (written_.wait_until(mutex_, end)) continue;
    return queue_.empty();
  }
  return true;
}

void LogWriter::run() {
  name_thread("rkv-log");
  for (;;) {
    const std::string* text = nullptr;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !ends_)
        queued_.wait(mutex_);
      if (queue_.empty()) return;
      text = &queue_.front().text;  // a deque moves no element when others are added
    }
    const bool arrived = write_whole(*text);
    {
      const MutexLock lock(mutex_);
      if (!arrived) lost_ += 1 + queue_.front().lost;
      bytes_ -= queue_.front().text.size();
      queue_.pop_front();
    }
    written_.notify_all();
  }
}

bool LogWriter::write_whole(const std::string& text) const {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd_, text.data() + done, text.size() - done);
    if (wrote > 0) {
      done += static_cast<std::size_t>(wrote);
    } else if (wrote < 0 && errno == EAGAIN) {  // another process has made it non-blocking
      pollfd room{.fd = fd_, .events = POLLOUT, .revents = 0};
      poll(&room, 1, -1);
    } else if (wrote == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace rkv::server
