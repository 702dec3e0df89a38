// A file system of a few mebibytes in memory, for tests of what a server does on a full or
// read-only disk. Mounted in a name space that this program and its children alone are in, so that
// nothing is left of it when they have ended.
//
//   const SmallDisk disk(scratch.path("disk"), 8);
//   Server server({"--data-dir", disk.file("data")});
//   disk.fill();
//
// Needs root, or a system where users may make name spaces; else the test fails and says so. The
// first is made before the process has a second thread.
#pragma once

#include <string>

namespace rkv::testing_support {

class SmallDisk {
 public:
  SmallDisk(std::string path, int mebibytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void fill() const;  // to the last byte
  void free_space() const;
  void set_read_only() const;  // REQUIRES: nobody writes to it

 private:
  const std::string path_;
};

}  // namespace rkv::testing_support
