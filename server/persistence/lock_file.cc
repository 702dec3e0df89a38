#include "server/persistence/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/log.h"

namespace rkv::server {

namespace {

// Returns a whole small file; empty when it cannot be read.
std::string slurp(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::array<char, 1024> text{};
  const ssize_t length = read(fd, text.data(), text.size());
  close(fd);
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

// Identifies a process permanently. A pid alone may be reused; the start time (in ticks since the
// machine booted) and the machine's boot ID make it unique.
struct Holder {
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  std::string machine_boot;
  std::string place;  // of the file (place_of()), if no earlier holder lives; else empty

  std::string line() const {
    return fmt::format("{} {} {} {}\n", pid, start_time, machine_boot, place);
  }
  static Holder parse(const std::string& line) {
    Holder holder;
    std::istringstream(line) >> holder.pid >> holder.start_time >> holder.machine_boot >>
        holder.place;
    return holder;
  }
};

// A copy of the file is at another place.
std::string place_of(int fd) {
  struct stat found{};
  if (fstat(fd, &found) != 0) return {};
  return fmt::format("{}:{}", found.st_dev, found.st_ino);
}

// Field 22 of /proc/PID/stat, or 0 when the process does not exist. Fields are counted after the
// last ')', because the name in field 2 may contain anything.
std::uint64_t start_time_of(pid_t pid) {
  const std::string stat = slurp(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field)
    fields >> skipped;
  std::uint64_t start_time = 0;
  fields >> start_time;
  return start_time;
}

std::string machine_boot() {
  const std::string id = slurp("/proc/sys/kernel/random/boot_id");
  return id.substr(0, id.find('\n'));
}

Holder ourselves(std::string place) {
  return {.pid = getpid(),
          .start_time = start_time_of(getpid()),
          .machine_boot = machine_boot(),
          .place = std::move(place)};
}

bool is_running(const Holder& holder) {
  return holder.pid > 0 && holder.machine_boot == machine_boot() && holder.start_time != 0 &&
         start_time_of(holder.pid) == holder.start_time;
}

// Waits until all threads of the process have ended, and with them its memory and descriptors. A
// pidfd reports exactly that. (/proc/PID/stat shows a zombie as soon as the main thread has ended.)
bool wait_until_gone(const Holder& holder, int wait_ms) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, holder.pid, 0));
  if (pidfd < 0) return !is_running(holder);
  // The pidfd is opened before the start time is compared, so it cannot refer to another process.
  bool gone = !is_running(holder);
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, wait_ms);
  while (!gone && !deadline.passed()) {
    pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
    gone = poll(&ended, 1, deadline.left_ms()) > 0;
  }
  close(pidfd);
  return gone;
}

Status write_holder(int fd, const Holder& holder) {
  const std::string line = holder.line();
  if (ftruncate(fd, 0) != 0) return fail_call(Code::kIo, "ftruncate", errno);
  if (pwrite(fd, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    return fail_call(Code::kIo, "pwrite", errno);
  }
  return {};
}

std::string read_holder(int fd) {
  std::array<char, 256> text{};
  const ssize_t length = pread(fd, text.data(), text.size(), 0);
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

// Locks the whole file without waiting. Returns 0 or the errno.
int lock_whole(int fd, short type) {
  struct flock whole{};
  whole.l_type = type;
  whole.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

// Writes the sentence for a lock that could not be taken.
Error tell_locked(int error, int fd, const std::string& directory, std::string* sentence) {
  if (error == EAGAIN || error == EACCES) {
    const Holder holder = Holder::parse(read_holder(fd));
    // No holder is running: the lock is a reader's, or a server's that has not written its line
    // yet.
    *sentence = fmt::format(
        "the data directory {} is in use by {}: stop that server, or choose another --data-dir",
        directory,
        is_running(holder) ? fmt::format("process {}", holder.pid)
                           : "another server, or kvserver --verify");
    return {.code = Code::kConflict, .text = "the data directory is in use by another server"};
  }
  *sentence = fmt::format("cannot lock {}/LOCK: {}: the file system must support locks", directory,
                          strerror(error));
  return {.code = Code::kIo, .sys_errno = error, .call = "fcntl(F_OFD_SETLK)"};
}

}  // namespace

Result<LockFile> LockFile::share(const std::string& directory, std::string* sentence) {
  const std::string path = directory + "/LOCK";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return LockFile(-1);
  if (fd < 0) {
    const int error = errno;
    *sentence = fmt::format("cannot open {}: {}: check the owner and mode of the data directory",
                            path, strerror(error));
    return fail_call(error == EACCES ? Code::kPermission : Code::kIo, "open", error);
  }
  LockFile lock(fd);
  const int error = lock_whole(fd, F_RDLCK);
  if (error != 0) return std::unexpected(tell_locked(error, fd, directory, sentence));
  return lock;
}

Result<LockFile> LockFile::acquire(const std::string& directory, std::string* sentence,
                                   int wait_ms) {
  const std::string path = directory + "/LOCK";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    const int error = errno;
    const bool denied = error == EACCES || error == EPERM || error == EROFS;
    *sentence =
        fmt::format("cannot open {}: {}: {}", path, strerror(error),
                    error == ENOSPC ? "free space on the disk of the data directory"
                                    : "check owner, mode and mount options of the data directory");
    return fail_call(denied ? Code::kPermission : Code::kIo, "open", error);
  }
  LockFile lock(fd);
  (void)fchmod(fd, 0600);  // read access allows a lock, which blocks a server's start

  const int error = lock_whole(fd, F_WRLCK);
  if (error != 0) return std::unexpected(tell_locked(error, fd, directory, sentence));

  const Holder before = Holder::parse(read_holder(fd));
  if (before.pid != getpid() && is_running(before)) {
    log_info(EventName("waiting_for_lock"), "waiting for the previous server (process {}) to end",
             before.pid);
    if (!wait_until_gone(before, wait_ms)) {
      *sentence = fmt::format(
          "the previous server on {} (process {}) has released its lock but is still running after "
          "{} s: end that process, then start again",
          directory, before.pid, wait_ms / 1000);
      return fail(Code::kBusy, "the previous server is still running");
    }
  }
  const std::string place = place_of(fd);
  lock.others_have_ended_ =
      before.machine_boot == machine_boot() && !place.empty() && before.place == place;
  if (const Status written = write_holder(fd, ourselves(lock.others_have_ended_ ? place : ""));
      !written) {
    *sentence = fmt::format(
        "cannot write {}: {}: free space on the disk of the data directory, or check it", path,
        to_string(written.error()));
    return std::unexpected(written.error());
  }
  return lock;
}

void LockFile::settle() {
  if (std::exchange(others_have_ended_, true)) return;
  (void)write_holder(fd_, ourselves(place_of(fd_)));
}

LockFile::LockFile(LockFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), others_have_ended_(other.others_have_ended_) {}

LockFile::~LockFile() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace rkv::server
