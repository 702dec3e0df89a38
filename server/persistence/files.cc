#include "server/persistence/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

namespace rkv::server {

namespace {

int write_all(int fd, const char* bytes, std::size_t length) {
  while (length != 0) {
    const ssize_t written = write(fd, bytes, length);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes += written;
    length -= static_cast<std::size_t>(written);
  }
  return 0;
}

}  // namespace

int Descriptor::close() {
  return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
}

bool is_within(const std::string& path, const std::string& directory) {
  std::error_code error;
  const auto canonical = [&](const std::string& name) {
    auto found = std::filesystem::weakly_canonical(std::filesystem::absolute(name, error), error);
    return found.has_filename() ? found : found.parent_path();  // removes a slash at the end
  };
  const auto inner = canonical(path);
  const auto outer = canonical(directory);
  const auto [differs, rest] =
      std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return differs == outer.end();
}

std::string cannot_make(const std::string& directory, const std::error_code& error) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(directory, ignored) &&
      !std::filesystem::exists(directory, ignored)) {
    return fmt::format(
        "cannot create the data directory {}: it is a dangling symbolic link: check --data-dir",
        directory);
  }
  return fmt::format("cannot create the data directory {}: {}: check --data-dir", directory,
                     error.message());
}

int sync_directory(const std::string& path) {
  const Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return errno;
  return fsync(directory.get()) == 0 ? 0 : errno;
}

int make_directory_synced(const std::string& path) {
  std::error_code error;
  std::filesystem::path whole = std::filesystem::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // removes a slash at the end
  if (std::filesystem::is_directory(whole, error)) return 0;
  const std::string above = whole.parent_path();
  if (const int failed = make_directory_synced(above); failed != 0) return failed;
  if (mkdir(whole.c_str(), 0700) != 0) {
    const int failed = errno;
    return std::filesystem::is_directory(whole, error) ? 0 : failed;
  }
  return sync_directory(above);
}

bool is_open_to_others(const std::string& directory) {
  using std::filesystem::perms;
  std::error_code error;
  const auto status = std::filesystem::status(directory, error);
  return std::filesystem::is_directory(status) &&
         (status.permissions() & (perms::group_all | perms::others_all)) != perms::none;
}

int copy_file_synced(const std::string& from, const std::string& to) {
  const Descriptor source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) return errno;
  Descriptor target(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (target.get() < 0) return errno;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (;;) {
    const ssize_t length = read(source.get(), buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return errno;
    if (length == 0) break;
    const int error = write_all(target.get(), buffer.data(), static_cast<std::size_t>(length));
    if (error != 0) return error;
  }
  if (fsync(target.get()) != 0) return errno;
  return target.close();
}

}  // namespace rkv::server
