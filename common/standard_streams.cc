#include "common/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

namespace rkv {

namespace {

// A write to a pipe without a reader would end the program: blocks the signal, and takes it away if
// the write raised it.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec at_once{};
    if (!was_pending_) {
      while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

// Writes one piece of at most PIPE_BUF bytes. A pipe or terminal that poll() calls writable takes
// so many without a wait. Returns what was written; -1 if the piece is lost.
ssize_t write_piece(std::string_view piece, int wait_ms) {
  for (;;) {
    pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const int ready = poll(&room, 1, wait_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return -1;
    ssize_t done = send(STDERR_FILENO, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0 && errno == ENOTSOCK) done = write(STDERR_FILENO, piece.data(), piece.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN && wait_ms > 0) {  // another writer was faster
      wait_ms /= 2;
      continue;
    }
    return done;
  }
}

}  // namespace

void keep_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is `number`. The wrong direction makes each use fail.
    const int direction = number == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", direction) < 0) (void)open("/", O_PATH);  // a root without /dev
  }
}

bool write_to_stderr(std::string_view text, int wait_ms) {
  const int error = errno;
  bool arrived = true;
  {
    const WithoutSigpipe guard;
    while (arrived && !text.empty()) {
      const ssize_t done = write_piece(text.substr(0, PIPE_BUF), wait_ms);
      arrived = done > 0;
      if (arrived) text.remove_prefix(std::min(text.size(), static_cast<std::size_t>(done)));
    }
  }
  errno = error;
  return arrived;
}

}  // namespace rkv
