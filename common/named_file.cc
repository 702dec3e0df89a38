#include "common/named_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/fd.h"

namespace rkv {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

std::unexpected<UnreadFile> unread(std::string why) {
  return std::unexpected(UnreadFile{.why = std::move(why)});
}

// Waits until something can be read or the writers have closed the pipe.
bool await_data(int fd) {
  for (;;) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, kPipeWaitMs);
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) return true;  // read() says what it is
  }
}

}  // namespace

std::expected<std::string, UnreadFile> read_named_file(const std::string& path, std::size_t most) {
  // Without waiting for the writer of a named pipe.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status{};
  if (!fd || fstat(fd.get(), &status) != 0) return unread(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) return unread(std::strerror(EISDIR));
  std::string text;
  for (std::size_t length = 0;;) {
    text.resize(std::min(most + 1, length + kPieceBytes));
    const ssize_t got = ::read(fd.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EAGAIN) {
      if (await_data(fd.get())) continue;
      return unread(fmt::format("nothing has arrived for {} s", kPipeWaitMs / 1000));
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unread(std::strerror(errno));
    length += static_cast<std::size_t>(got);
    if (length > most) return std::unexpected(UnreadFile{.is_too_long = true, .why = "too long"});
    if (got != 0) continue;
    if (length == 0 && S_ISFIFO(status.st_mode)) return unread("nobody writes into this pipe");
    text.resize(length);
    return text;
  }
}

}  // namespace rkv
