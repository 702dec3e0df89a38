#include "tests/system/small_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

namespace rkv::testing_support {

namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// In a name space of our own: root's, or that of a user who is root in it.
bool enter_name_space() {
  const uid_t user = getuid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", fmt::format("0 {} 1", user));
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace

SmallDisk::SmallDisk(std::string path, int mebibytes) : path_(std::move(path)) {
  static const bool entered = enter_name_space();
  EXPECT_TRUE(entered) << "this test mounts file systems: run it as root, or where users may make "
                          "name spaces";
  std::filesystem::create_directories(path_);
  const std::string size = fmt::format("size={}m", mebibytes);
  EXPECT_EQ(mount("none", path_.c_str(), "tmpfs", 0, size.c_str()), 0) << errno;
}

SmallDisk::~SmallDisk() {
  EXPECT_EQ(umount2(path_.c_str(), MNT_DETACH), 0) << errno;
}

void SmallDisk::set_read_only() const {
  EXPECT_EQ(mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0) << errno;
}

void SmallDisk::fill() const {
  const int fd = open(file("filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  EXPECT_GE(fd, 0) << errno;
  static constexpr std::array<char, 65536> kBytes{};
  std::size_t length = kBytes.size();
  while (length != 0) {
    if (write(fd, kBytes.data(), length) < 0) length /= 2;
  }
  close(fd);
}

void SmallDisk::free_space() const {
  std::filesystem::remove(file("filler"));
}

}  // namespace rkv::testing_support
