// kvserver. MANUAL.md describes its options, signals and exit codes.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/keep_descriptors.h"
#include "common/log.h"
#include "common/signals.h"
#include "common/standard_streams.h"
#include "common/thread.h"
#include "server/offline/force_primary.h"
#include "server/offline/forget_revoked.h"
#include "server/offline/offline.h"
#include "server/offline/user_command.h"
#include "server/program/environment.h"
#include "server/program/failure.h"
#include "server/program/logging.h"
#include "server/program/options.h"
#include "server/program/service_manager.h"
#include "server/program/stop_watch.h"
#include "server/server.h"

namespace {

using rkv::EventName;
using rkv::server::Failure;
using rkv::server::Options;
using rkv::server::ParsedOptions;
using rkv::server::Server;
using rkv::server::StopWatch;

// Less than the unit's stop timeout (install/kvserver.service.in).
constexpr rkv::Nanos kLongestStop = 240 * rkv::kNanosPerSecond;
// Twice what the database's threads use.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

// The signals that end the server, and SIGHUP.
sigset_t awaited_signals() {
  sigset_t signals = rkv::ending_signals();
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Waits at most `nanos` for a signal and returns it; nothing if none came. The signals are blocked
// in all threads and fetched here.
std::optional<int> signal_within(long nanos) {
  const sigset_t signals = awaited_signals();
  const timespec timeout{.tv_sec = 0, .tv_nsec = nanos};
  const int signal = sigtimedwait(&signals, nullptr, &timeout);
  return signal > 0 ? std::optional(signal) : std::nullopt;
}

// Ends the process at once if a signal to end comes during the start, which may take long. That is
// safe: nothing was promised to a client yet, and a crash could leave the same state on disk.
class StartWatch {
 public:
  StartWatch() : thread_([this] { run(); }) {}
  ~StartWatch() {
    starts_over();
    thread_.join();
  }
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  // From here on the main loop handles signals. Does not return if a signal to end came before.
  void starts_over() {
    int starting = kStarting;
    if (phase_.compare_exchange_strong(starting, kOver) || starting == kOver) return;
    for (;;)
      pause();
  }

 private:
  enum : int { kStarting, kOver, kEnding };
  static constexpr long kLookNanos = 10'000'000;

  void run() {
    bool reads_again = false;
    while (phase_.load() == kStarting) {
      const auto signal = signal_within(kLookNanos);
      reads_again = reads_again || signal == SIGHUP;
      if (!signal || *signal == SIGHUP) continue;
      int starting = kStarting;
      if (phase_.compare_exchange_strong(starting, kEnding)) {
        rkv::log_info(EventName("stopped"), "stopped before the start was complete");
        rkv::server::finish_log();
        std::_Exit(rkv::server::kExitClean);
      }
      kill(getpid(), *signal);
    }
    if (reads_again) kill(getpid(), SIGHUP);
  }

  std::atomic<int> phase_{kStarting};
  std::thread thread_;
};

ParsedOptions parse(const std::vector<std::string>& arguments) {
  return rkv::server::parse_options(
      arguments, [](const char* name) -> const char* { return std::getenv(name); });
}

// Handles SIGHUP. The new level is logged whatever the level is.
void read_log_level_again(const std::vector<std::string>& arguments) {
  const ParsedOptions parsed = parse(arguments);
  if (parsed.done) {
    rkv::log_error(EventName("configuration_wrong"),
                   "the reloaded configuration is invalid, nothing changes: {}", parsed.error);
    return;
  }
  rkv::set_log_level(parsed.options.log_level);
  const std::string text = fmt::format("the configuration was reloaded: the log level is {}",
                                       rkv::server::to_string(parsed.options.log_level));
  rkv::log_event({.level = rkv::LogLevel::kInfo, .name = "configuration_read", .text = text});
}

rkv::Result<rkv::rdma::ServerTransports> open_transports(const Options& options) {
  auto chosen = rkv::rdma::choose_for_server({.kind = options.transport,
                                              .verbs = {.device = options.device,
                                                        .port = options.ib_port,
                                                        .gid_index = options.gid_index,
                                                        .address = options.listen},
                                              .shm = {.group = options.shm_group}});
  if (chosen && !options.admits_other_hosts()) {
    chosen->reason =
        fmt::format("{}, since without --users or --no-auth only this host may connect",
                    chosen->shm->describe());
  }
  return chosen;
}

// Clients over shared memory, the store's files and HTTP connections share the limit of open files.
// Raises it to what this process may have, but at most to kMost, which is more than enough.
void raise_limit_of_open_files() {
  constexpr rlim_t kMost = rlim_t{1} << 20;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = std::min(files.rlim_max, kMost);
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &files);
}

int tell(const Failure& failure) {
  rkv::log_error(EventName("failed"), "{}", failure.sentence);
  return failure.exit_code;
}

// Verifies or restores data, forces a primary, or forgets revocations; serves no clients.
int work_offline(const Options& options) {
  const auto print = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  const rkv::SteadyClock clock;
  const bool forgets = !options.forget_revoked.empty();
  const auto failure = options.force_primary ? rkv::server::force_primary(options, print, clock)
                       : forgets             ? rkv::server::forget_revoked(options, print, clock)
                       : options.verify      ? rkv::server::verify_data(options, print, clock)
                                             : rkv::server::restore_data(options, print, clock);
  const bool flushed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (failure) return tell(*failure);
  if (flushed) return rkv::server::kExitClean;
  return tell(
      {.exit_code = rkv::server::kExitOther,
       .sentence = "the work is done, but its report could not be written to standard output"});
}

std::optional<Failure> start(Server& server) {
  try {
    rkv::server::start_log_writer();
    StartWatch watch;
    server.before_serving([&] { watch.starts_over(); });
    return server.start();
  } catch (const std::system_error& error) {  // of the threads of the log and the watch
    return rkv::server::thread_failure(error);
  }
}

// `*starts_again`: the process should start again, as a replica that has lost its place in a group.
int serve(const Options& options, const std::vector<std::string>& arguments, bool* starts_again) {
  raise_limit_of_open_files();
  const rkv::SteadyClock steady;
  const rkv::RawClock raw;  // replicas and clients of a group compare how fast their clocks are
  const rkv::Clock& clock = options.is_in_group() ? static_cast<const rkv::Clock&>(raw) : steady;
  Server server(options, clock, open_transports);
  if (const auto failure = start(server)) return tell(*failure);
  // After the start: the manager's socket must not be opened before the lock file (lock_file.h).
  rkv::server::ServiceManager manager([](const char* name) { return std::getenv(name); }, clock);
  manager.ready();
  bool leaves = false;  // a primary that hands over before it stops
  for (;;) {
    const auto signal = signal_within(server.tick_every());
    const bool must_end = signal && *signal != SIGHUP;
    if (must_end && (leaves || !server.begin_leaving())) break;
    leaves = leaves || must_end;
    if (signal && !must_end) {
      read_log_level_again(arguments);
      server.read_users_again();
    }
    server.tick();
    if (server.ended() || (leaves && !server.is_leaving())) break;
    manager.tick();
    rkv::server::summarise_log();
  }
  // First: nothing before it is bounded.
  const StopWatch watch(kLongestStop, [] {
    rkv::log_error(EventName("stop_timed_out"),
                   "the stop has not completed after {} s (does the disk answer?): the process "
                   "ends now, and accepted writes that are not synced are lost",
                   kLongestStop / rkv::kNanosPerSecond);
    rkv::server::finish_log();
    std::_Exit(rkv::server::kExitOther);
  });
  const auto ended = leaves ? std::nullopt : server.ended();
  if (ended) rkv::log_warn(EventName("ended"), "{}", ended->failure.sentence);
  rkv::log_info(EventName("stopping"), "stopping");
  manager.stopping();
  const auto failure = server.stop();
  if (failure) (void)tell(*failure);
  if (ended) {
    // A copy that could not be put in place would be fetched again and again.
    *starts_again = ended->may_start_again && !(failure && ended->has_copy);
    return ended->failure.exit_code;
  }
  return failure ? failure->exit_code : rkv::server::kExitClean;
}

// Runs this program again in the same process, with the same arguments. Returns if that fails.
void start_again(char** argv) {
  // Not at once: what ended this replica may end the next.
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 300'000'000};
  nanosleep(&kPause, nullptr);
  rkv::log_info(EventName("starting_again"), "starting again as a backup");
  rkv::server::finish_log();
  execv("/proc/self/exe", argv);
  rkv::log_error(EventName("failed"), "cannot start again: {}", std::strerror(errno));
}

// The log sink is installed, so errors are logged.
int run(const Options& options, const std::vector<std::string>& arguments, bool serves,
        bool* starts_again) {
  try {
    return serves ? serve(options, arguments, starts_again) : work_offline(options);
  } catch (const std::exception& error) {
    return tell({.exit_code = rkv::server::kExitOther, .sentence = error.what()});
  }
}

// For mistakes that are found before the log's sink is installed.
void complain(const std::string& sentence) {
  rkv::write_to_stderr(fmt::format("kvserver: {}\n", sentence), rkv::kReaderWaitMs);
}

// `kvserver user`: no server is started.
int work_on_users(const std::vector<std::string>& arguments) {
  const auto done = rkv::server::run_user_command({arguments.begin() + 1, arguments.end()});
  std::fputs(done.out.c_str(), stdout);
  if (!done.error.empty()) complain(done.error);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return done.exit_code;
  complain("cannot write to standard output: what was to be printed is lost");
  return rkv::server::kExitOther;
}

}  // namespace

RKV_KEEP_STANDARD_DESCRIPTORS;

int main(int argc, char** argv) {
  if (const rkv::Status stack = rkv::check_stack_limit(kStackBytes); !stack) {
    complain(stack.error().text);
    return rkv::server::kExitEnvironment;
  }
  rkv::spare_address_space();
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == "user") return work_on_users(arguments);
    const ParsedOptions parsed = parse(arguments);
    if (!parsed.out.empty()) std::fputs(parsed.out.c_str(), stdout);
    if (!parsed.error.empty()) complain(parsed.error);
    if (parsed.done) return parsed.exit_code;

    // Values, the hash seed, the log's mark and backups are private, whatever mode RocksDB
    // requests.
    umask(0077);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is then an error, like a full disk
    const bool serves = !parsed.options.verify && parsed.options.restore.empty() &&
                        !parsed.options.force_primary && parsed.options.forget_revoked.empty();
    const sigset_t signals = awaited_signals();
    if (serves) pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    rkv::server::install_log_sink(parsed.options.log_level, parsed.options.log_format);
    for (const std::string& sentence : rkv::server::unknown_variables(environ))
      rkv::log_warn(EventName("unknown_variable"), "{}", sentence);
    bool starts_again = false;
    const int status = run(parsed.options, arguments, serves, &starts_again);
    rkv::server::finish_log();
    if (starts_again) start_again(argv);
    return status;
  } catch (const std::exception& error) {
    complain(error.what());
    return rkv::server::kExitOther;
  }
}
