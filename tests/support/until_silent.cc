// until_silent COMMAND...: runs a command and ends it when it has printed nothing for
// RKV_SILENT_SECONDS. So a test that hangs is found, and one that a busy machine slows down is not
// taken for it.
//
// The command's output, on both descriptors, comes through at once. Its status is passed on.
// When it is ended, so are all processes that it has started.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kMisuse = 2;
constexpr int kSilent = 124;  // as timeout(1)

pid_t command = 0;

// The command has a process group of its own, which does not get what is typed.
void pass_on(int signal) {
  ::kill(-command, signal);
}

[[noreturn]] void become(char** argv, int out, pid_t parent, const sigset_t& signals) {
  ::setpgid(0, 0);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kSilent);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::execvp(argv[0], argv);
  std::perror(argv[0]);
  ::_exit(127);
}

// Passes on what can be read. Returns false at the end.
bool copy(int in) {
  static std::array<char, 64 << 10> buffer;
  const ssize_t got = ::read(in, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t wrote = ::write(STDOUT_FILENO, buffer.data() + sent, got - sent);
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) sent += wrote;
  }
  return got > 0;
}

// Ends what the command has started, in whatever group or session: orphans become our children.
void end_all() {
  ::kill(-command, SIGKILL);
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/children", ::getpid());
  for (;;) {
    int children = 0;
    if (std::FILE* const file = std::fopen(path.data(), "r")) {
      for (pid_t child = 0; std::fscanf(file, "%d", &child) == 1; ++children)
        ::kill(child, SIGKILL);
      std::fclose(file);
    }
    // The children of one that ends come to us.
    if (children == 0 || (::waitpid(-1, nullptr, 0) < 0 && errno == ECHILD)) return;
  }
}

// Reaps orphans, or tests would take them for living. Returns whether the command has ended.
bool reap_orphans(int signals) {
  signalfd_siginfo some;
  while (::read(signals, &some, sizeof some) > 0) {
  }
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0)
      return false;
    if (ended.si_pid == command) return true;
    ::waitpid(ended.si_pid, nullptr, 0);
  }
}

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("until_silent: the command was ended by signal %d\n", WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  char* end = nullptr;
  const char* const given = std::getenv("RKV_SILENT_SECONDS");
  const long seconds = given == nullptr ? 0 : std::strtol(given, &end, 10);
  if (argc < 2 || seconds <= 0 || seconds > 1'000'000 || *end != '\0') {
    std::fputs("usage: RKV_SILENT_SECONDS=N until_silent COMMAND...\n", stderr);
    return kMisuse;
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return std::perror("pipe"), kMisuse;
  sigset_t of_children;
  sigset_t before;
  ::sigemptyset(&of_children);
  ::sigaddset(&of_children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &of_children, &before);
  const int signals = ::signalfd(-1, &of_children, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) return std::perror("signalfd"), kMisuse;
  const pid_t self = ::getpid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  command = ::fork();
  if (command < 0) return std::perror("fork"), kMisuse;
  if (command == 0) become(argv + 1, pipe[1], self, before);
  ::setpgid(command, command);
  ::close(pipe[1]);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    ::signal(signal, pass_on);
  for (;;) {
    std::array<pollfd, 2> ready{{{pipe[0], POLLIN, 0}, {signals, POLLIN, 0}}};
    const int count = ::poll(ready.data(), ready.size(), static_cast<int>(seconds * 1000));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) {
      std::printf("until_silent: nothing was printed for %ld s; the command is ended\n", seconds);
      std::fflush(stdout);  // it may be in the kernel, and not end
      end_all();
      return kSilent;
    }
    if (ready[1].revents != 0 && reap_orphans(signals)) break;
    if (ready[0].revents != 0 && !copy(pipe[0])) ::close(pipe[0]), pipe[0] = -1;
  }
  // The rest of the output, but no more than a pipe holds: the command may have left a process that
  // prints without end.
  pollfd rest{pipe[0], POLLIN, 0};
  for (int i = 0; i < 16 && ::poll(&rest, 1, 0) > 0 && copy(pipe[0]); ++i) {
  }
  return status_of(command);
}
