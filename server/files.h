// Files, as backups and their restoring need them. Calls block on the disk and answer an errno, 0
// when done.
//
// Thread safety: free functions.
#pragma once

#include <unistd.h>

#include <string>

namespace rkv::server {

// Closed at the end; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // What was put off until now is told here.
  int close();

 private:
  int fd_;
};

// Whether `path` is `directory` or below it, by the names that they have without symbolic links.
// What is not there yet counts by the name that it would have.
bool is_within(const std::string& path, const std::string& directory);
// The names in a directory survive the end of the machine.
int sync_directory(const std::string& path);
// A new file with the other's bytes, synced. What it has made by then is left when it fails.
int copy_file_synced(const std::string& from, const std::string& to);

}  // namespace rkv::server
