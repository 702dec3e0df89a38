#include "common/auth/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/parse.h"

namespace rkv {

namespace {

class OpenFile {
 public:
  // Without waiting for the writer of a named pipe.
  explicit OpenFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool is_in_group(gid_t group) {
  if (group == getegid() || group == getgid()) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(getgroups(0, nullptr), 0)));
  groups.resize(static_cast<std::size_t>(
      std::max(getgroups(static_cast<int>(groups.size()), groups.data()), 0)));
  return std::ranges::find(groups, group) != groups.end();
}

// The file could be opened: if its mode gives this process no access, an access list does.
bool is_private(const struct stat& status) {
  if ((status.st_mode & (S_IRWXO | S_IWGRP | S_IXGRP)) != 0) return false;
  if ((status.st_mode & S_IRGRP) == 0) return true;
  return status.st_uid == 0 && (geteuid() != 0 || is_in_group(status.st_gid));
}

std::unexpected<Error> refuse(Code code, std::string text, std::string* problem, int error = 0) {
  *problem = std::move(text);
  return std::unexpected(Error{.code = code, .sys_errno = error});
}

std::unexpected<Error> call_failed(const std::string& path, std::string* problem) {
  const int error = errno;
  const bool denied = error == EACCES || error == EPERM;
  return refuse(denied ? Code::kPermission : Code::kIo,
                fmt::format("cannot read {}: {}", shown(path), strerror(error)), problem, error);
}

}  // namespace

Result<std::string> read_private_file(const std::string& path, std::size_t most,
                                      std::string* problem, FileOwner* owner) {
  const OpenFile file(path);
  struct stat status{};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return call_failed(path, problem);
  if (!S_ISREG(status.st_mode)) {
    return refuse(Code::kInvalidArgument, fmt::format("{} is not a regular file", shown(path)),
                  problem);
  }
  if (!is_private(status)) {
    return refuse(Code::kPermission,
                  fmt::format("users other than its owner have access to {}: run chmod 600 {} "
                              "(only a file of root may be readable by a group: 0440)",
                              shown(path), shown(path)),
                  problem);
  }
  const bool is_for_owner = owner != nullptr && geteuid() == 0;
  if (status.st_uid != geteuid() && status.st_uid != 0 && !is_for_owner) {
    return refuse(Code::kPermission,
                  fmt::format("{} belongs to another user (number {}): it must belong to the user "
                              "that reads it, or to root",
                              shown(path), status.st_uid),
                  problem);
  }
  std::string content(most + 1, '\0');
  std::size_t length = 0;
  while (length < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + length, content.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return call_failed(path, problem);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > most) {
    return refuse(
        Code::kTooLarge,
        fmt::format("{} is longer than {} bytes: is it the right file?", shown(path), most),
        problem);
  }
  content.resize(length);
  if (owner != nullptr) {
    *owner = {.user = status.st_uid, .group = status.st_gid, .mode = status.st_mode & 0777U};
  }
  return content;
}

}  // namespace rkv
