#include "common/thread.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <latch>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "common/parse.h"

namespace rkv {

namespace {

constexpr unsigned kMost = CPU_SETSIZE - 1;

// Parses "3" or "2-5". Returns false for other texts.
bool add_range(std::string_view range, std::vector<unsigned>& to) {
  const std::size_t dash = range.find('-');
  const auto first = parse_number<unsigned>(range.substr(0, dash), 0, kMost);
  const auto last = dash == std::string_view::npos
                        ? first
                        : parse_number<unsigned>(range.substr(dash + 1), 0, kMost);
  if (!first || !last || *first > *last) return false;
  for (unsigned processor = *first; processor <= *last; ++processor)
    to.push_back(processor);
  return true;
}

std::string allowed_list(const cpu_set_t& allowed) {
  std::string list;
  for (unsigned i = 0; i <= kMost; ++i) {
    if (!CPU_ISSET(i, &allowed)) continue;
    unsigned end = i;
    while (end < kMost && CPU_ISSET(end + 1, &allowed))
      ++end;
    list += fmt::format("{}{}", list.empty() ? "" : ",", i);
    if (end > i) list += fmt::format("-{}", end);
    i = end;
  }
  return list;
}

}  // namespace

Result<std::thread> start_without_signals(std::function<void()> run) {
  sigset_t most;
  sigset_t before;
  sigfillset(&most);
  for (const int of_a_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&most, of_a_fault);
  pthread_sigmask(SIG_SETMASK, &most, &before);  // inherited by the thread
  std::thread thread;
  int problem = 0;
  try {
    thread = std::thread(std::move(run));
  } catch (const std::system_error& error) {
    problem = error.code().value();
  } catch (const std::bad_alloc&) {
    problem = ENOMEM;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (problem != 0) {
    return fail_call(
        Code::kPermission, "pthread_create", problem,
        "the system starts no further thread: raise ulimit -u or the pids limit of the "
        "container");
  }
  return thread;
}

std::expected<std::vector<unsigned>, std::string> parse_processors(std::string_view list) {
  std::vector<unsigned> all;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (!add_range(list.substr(begin, end - begin), all)) {
      return std::unexpected("must be processor numbers, such as 2-5,8");
    }
    begin = end + 1;
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (std::find(all.begin(), one, *one) != one) {
      return std::unexpected("must name each processor once");
    }
    if (!CPU_ISSET(*one, &allowed)) {
      return std::unexpected(fmt::format(
          "must be among the processors that this process may use, {}", allowed_list(allowed)));
    }
  }
  return all;
}

Status stay_on(unsigned processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) {
    return fail(Code::kInvalidArgument, "this processor is no longer usable");
  }
  return {};
}

namespace {

// Reserves address space for its lifetime; reserves none if none is available.
class Reserve {
 public:
  explicit Reserve(std::size_t bytes)
      : bytes_(bytes),
        start_(
            mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserve() {
    if (kept()) munmap(start_, bytes_);
  }
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;
  bool kept() const { return start_ != MAP_FAILED; }

 private:
  const std::size_t bytes_;
  void* const start_;
};

}  // namespace

Status try_threads(unsigned count, std::size_t spare_bytes) {
  constexpr const char* kRemedy =
      "raise the limit of processes (ulimit -u), of address space (ulimit -v) or of the container";
  const Reserve spare(spare_bytes);
  if (!spare.kept()) return fail_call(Code::kPermission, "mmap", ENOMEM, kRemedy);
  std::latch together(1);
  std::vector<std::thread> threads;
  Status started;
  try {
    threads.reserve(count);
    while (threads.size() < count)
      threads.emplace_back([&together] { together.wait(); });
  } catch (const std::exception& error) {  // std::system_error; std::bad_alloc
    const auto* const system = dynamic_cast<const std::system_error*>(&error);
    const int why = system != nullptr ? system->code().value() : ENOMEM;
    started = fail_call(Code::kPermission, "pthread_create", why, kRemedy);
  }
  together.count_down();
  for (std::thread& thread : threads)
    thread.join();
  return started;
}

void spare_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
}

Status check_stack_limit(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= bytes) return {};
  return fail(Code::kPermission, "the limit of the stack is too low: raise it (ulimit -s 8192)");
}

}  // namespace rkv
