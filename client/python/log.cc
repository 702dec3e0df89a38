#include "client/python/log.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "common/at_fork.h"
#include "rkv/log.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

// A program that does not get to its lines loses some rather than its memory.
constexpr std::size_t kMostLines = 1000;

struct Line {
  LogLevel level;
  std::string text;
};

// Never destroyed: lines may come while the process ends.
struct Queue {
  std::mutex mutex;
  std::condition_variable has_news;
  std::deque<Line> lines;
  std::size_t lost = 0;
  bool is_ending = false;
  std::thread thread;
  PyObject* logger = nullptr;
};
// Another one in a forked child: the parent's thread gives Python the lines of before, and may have
// held the mutex.
Queue& queue() {
  static std::atomic<Queue*> instance = new Queue;
  [[maybe_unused]] static const AtFork& renewed = *new AtFork([] {
    PyObject* const logger = instance.load()->logger;
    instance = new Queue{};
    instance.load()->logger = logger;
  });
  return *instance;
}

int level_of(LogLevel level) {
  constexpr int kStep = 10;  // DEBUG 10, INFO 20, WARNING 30, ERROR 40
  return kStep * (static_cast<int>(level) + 1);
}

// A handler that raises has nobody to tell.
void tell_python(const std::deque<Line>& lines, std::size_t lost) {
  const py::gil_scoped_acquire held;
  const py::handle logger = queue().logger;
  try {
    for (const Line& line : lines)
      logger.attr("log")(level_of(line.level), "%s", line.text);
    if (lost != 0) logger.attr("log")(level_of(LogLevel::kWarn), "%d lines were lost", lost);
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("rkv's log");
  } catch (const std::exception&) {  // a text that is not UTF-8
  }
}

void deliver() {
  Queue& own = queue();
  std::unique_lock lock(own.mutex);
  for (;;) {
    own.has_news.wait(lock, [&] { return !own.lines.empty() || own.is_ending; });
    if (own.lines.empty()) return;
    const std::deque<Line> lines = std::exchange(own.lines, {});
    const std::size_t lost = std::exchange(own.lost, 0);
    lock.unlock();
    tell_python(lines, lost);
    lock.lock();
  }
}

// Signals are for the threads of the program.
std::thread without_signals() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread started;
  try {
    started = std::thread(deliver);
  } catch (const std::system_error&) {  // the next line tries again
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void take(LogLevel level, std::string_view text) {
  Queue& own = queue();
  {
    const std::scoped_lock lock(own.mutex);
    if (own.is_ending) return;
    if (own.lines.size() == kMostLines) {
      ++own.lost;
      return;
    }
    own.lines.push_back({level, std::string(text)});
    if (!own.thread.joinable()) own.thread = without_signals();
  }
  own.has_news.notify_one();
}

}  // namespace

void Log::start(const py::object& logger) {
  queue().logger = logger.inc_ref().ptr();
  set_log_sink(take);
}

void Log::at_exit() {
  Queue& own = queue();
  {
    const std::scoped_lock lock(own.mutex);
    own.is_ending = true;
  }
  own.has_news.notify_one();
  const py::gil_scoped_release released;
  if (own.thread.joinable()) own.thread.join();
}

}  // namespace rkv::python
