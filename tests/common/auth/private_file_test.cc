#include "common/auth/private_file.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/files.h"

namespace rkv {
namespace {

using ::testing::HasSubstr;

class PrivateFile : public ::testing::Test {
 protected:
  PrivateFile() {
    std::string name = ::testing::TempDir() + "rkv-private-XXXXXX";
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/secret";
  }
  ~PrivateFile() override { std::filesystem::remove_all(directory_); }
  void make(const std::string& text, mode_t mode) {
    testing::write_file(path_, text);
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  // The sentence of a refusal.
  std::string refusal(Code code, std::size_t most = 100) {
    std::string problem;
    const auto read = read_private_file(path_, most, &problem);
    EXPECT_FALSE(read);
    if (!read) {
      EXPECT_EQ(read.error().code, code) << problem;
    }
    EXPECT_THAT(problem, HasSubstr(path_));
    return problem;
  }

  std::string directory_;
  std::string path_;
};

TEST_F(PrivateFile, IsReadWholeUpToTheLimit) {
  make("0123456789", 0600);
  std::string problem;
  EXPECT_EQ(*read_private_file(path_, 10, &problem), "0123456789");
  EXPECT_THAT(refusal(Code::kTooLarge, 9), HasSubstr("longer than 9 bytes"));
  make("", 0400);
  EXPECT_EQ(*read_private_file(path_, 10, &problem), "");
  EXPECT_EQ(problem, "");
}

TEST_F(PrivateFile, IsRefusedWhenOthersHaveAccess) {
  for (const mode_t mode : {0604U, 0620U, 0602U, 0610U, 0601U, 0644U, 0660U, 0650U, 0444U}) {
    make("secret", mode);
    EXPECT_THAT(refusal(Code::kPermission), HasSubstr("chmod 600")) << mode;
  }
}

TEST_F(PrivateFile, IsRefusedWhenItIsMissingOrNotAFile) {
  EXPECT_THAT(refusal(Code::kIo), HasSubstr("No such file"));
  std::filesystem::create_directory(path_);
  EXPECT_THAT(refusal(Code::kInvalidArgument), HasSubstr("not a regular file"));
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // has no writer, which open() would wait for
  EXPECT_THAT(refusal(Code::kInvalidArgument), HasSubstr("not a regular file"));
}

// As Kubernetes mounts a secret for a process with fsGroup, and systemd for a service with User=.
TEST_F(PrivateFile, OfRootMayBeReadableByOurGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr gid_t kGroup = 54003;
  constexpr uid_t kUser = 54001;
  const auto reads_as = [&](uid_t user, gid_t group) {
    const pid_t child = fork();
    if (child == 0) {
      const bool changed = setgroups(0, nullptr) == 0 && setgid(group) == 0 && setuid(user) == 0;
      std::string problem;
      _exit(!changed ? 64 : read_private_file(path_, 10, &problem) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  make("secret", 0440);
  ASSERT_EQ(chown(path_.c_str(), 0, kGroup), 0);
  EXPECT_EQ(reads_as(kUser, kGroup), 0);
  EXPECT_EQ(reads_as(kUser, kGroup + 1), 1);
  EXPECT_EQ(reads_as(0, kGroup), 0);
  EXPECT_EQ(reads_as(0, kGroup + 1), 1) << "a group of others";
  ASSERT_EQ(chown(path_.c_str(), kUser, kGroup), 0);
  EXPECT_EQ(reads_as(kUser, kGroup), 1) << "not of root";
  ASSERT_EQ(chown(path_.c_str(), 0, kGroup), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
  EXPECT_EQ(reads_as(kUser, kGroup), 1);
}

TEST_F(PrivateFile, IsRefusedWhenItBelongsToAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  make("secret", 0600);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(refusal(Code::kPermission), HasSubstr("12345"));
}

TEST_F(PrivateFile, IsReadByRootForItsOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  make("secret", 0600);
  ASSERT_EQ(chown(path_.c_str(), 12345, 23456), 0);
  std::string problem;
  FileOwner owner;
  const auto read = read_private_file(path_, 100, &problem, &owner);
  ASSERT_TRUE(read) << problem;
  EXPECT_EQ(*read, "secret");
  EXPECT_EQ(owner.user, 12345U);
  EXPECT_EQ(owner.group, 23456U);
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  EXPECT_FALSE(read_private_file(path_, 100, &problem, &owner));
}

}  // namespace
}  // namespace rkv
