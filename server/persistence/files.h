// File operations for backups and restores. Calls block on the disk. They return an errno, or 0 on
// success.
//
// Thread safety: free functions.
#pragma once

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

namespace rkv::server {

// Owns a file descriptor and closes it in the destructor; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  // Gives up the descriptor; the caller must close it.
  int release() { return std::exchange(fd_, -1); }
  // Closes now, and returns an error of earlier writes that the system reports only at close().
  int close();

 private:
  int fd_;
};

// Whether `path` is `directory` or below it, after symbolic links are resolved. A path that does
// not exist yet counts with the name that it would have.
bool is_within(const std::string& path, const std::string& directory);
// A sentence: why a data directory could not be created.
std::string cannot_make(const std::string& directory, const std::error_code& error);
// Makes the directory's entries survive the loss of the machine.
int sync_directory(const std::string& path);
// Creates a directory and its missing parents, for their owner only (0700). Syncs each new name.
int make_directory_synced(const std::string& path);
// Whether users other than the owner may list or search the directory. False if it does not exist.
bool is_open_to_others(const std::string& directory);
// Copies `from` to the new file `to` and syncs it. On failure a partial copy remains.
int copy_file_synced(const std::string& from, const std::string& to);

// Subdirectory of a data directory during a restore; a server does not start while it exists.
inline constexpr const char* kRestoring = "/restoring";

}  // namespace rkv::server
