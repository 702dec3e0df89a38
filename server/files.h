// Files, as backups and their restoring need them. Calls block on the disk and answer an errno, 0
// when done.
//
// Thread safety: free functions.
#pragma once

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

namespace rkv::server {

// Closed at the end; -1: none.
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
  // It is the caller's to close.
  int release() { return std::exchange(fd_, -1); }
  // What was put off until now is told here.
  int close();

 private:
  int fd_;
};

// Whether `path` is `directory` or below it, by the names that they have without symbolic links.
// What is not there yet counts by the name that it would have.
bool is_within(const std::string& path, const std::string& directory);
// A sentence: why a data directory was not to be made.
std::string cannot_make(const std::string& directory, const std::error_code& error);
// The names in a directory survive the end of the machine.
int sync_directory(const std::string& path);
// Makes what is missing of a directory and of those above it, for its owner alone (0700). Each new
// name is synced.
int make_directory_synced(const std::string& path);
// A new file with the other's bytes, synced. What it has made by then is left when it fails.
int copy_file_synced(const std::string& from, const std::string& to);

}  // namespace rkv::server
