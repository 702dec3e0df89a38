#include "server/persistence/lock_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using ::testing::HasSubstr;

// A process that takes the lock, says so, and then does `then`.
class Holder {
 public:
  enum Then { kKeep, kReleaseAndStay };
  Holder(const std::string& directory, Then then) {
    int said[2];
    EXPECT_EQ(pipe2(said, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      std::string sentence;
      {
        const auto lock = LockFile::acquire(directory, &sentence);
        if (!lock) _exit(1);
        if (then == kKeep) {
          (void)!write(said[1], "x", 1);
          pause();
        }
      }
      (void)!write(said[1], "x", 1);
      pause();
    }
    close(said[1]);
    char byte = 0;
    EXPECT_EQ(read(said[0], &byte, 1), 1) << "the child could not take the lock";
    close(said[0]);
  }
  ~Holder() { kill_now(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  pid_t pid() const { return pid_; }
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

TEST(LockFile, IsTakenAndReleased) {
  const test::TempDir dir;
  std::string sentence;
  for (int i = 0; i < 3; ++i) {
    const auto lock = LockFile::acquire(dir.path(), &sentence);
    ASSERT_TRUE(lock) << sentence;
  }
  std::ifstream file(dir.file("LOCK"));
  pid_t pid = 0;
  file >> pid;
  EXPECT_EQ(pid, getpid());
}

TEST(LockFile, ASecondHolderIsToldWhoHasIt) {
  const test::TempDir dir;
  const Holder holder(dir.path(), Holder::kKeep);
  std::string sentence;
  const auto lock = LockFile::acquire(dir.path(), &sentence);
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, Code::kConflict);
  EXPECT_EQ(sentence, "the data directory " + dir.path() + " is in use by process " +
                          std::to_string(holder.pid()) +
                          ": stop that server, or choose another --data-dir");
}

TEST(LockFile, TheLockBelongsToTheDescriptorNotTheProcess) {
  const test::TempDir dir;
  std::string sentence;
  const auto lock = LockFile::acquire(dir.path(), &sentence);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(LockFile::acquire(dir.path(), &sentence)) << "the same process, another descriptor";
}

TEST(LockFile, AKilledHolderIsReplacedAtOnce) {
  const test::TempDir dir;
  Holder holder(dir.path(), Holder::kKeep);
  holder.kill_now();
  std::string sentence;
  EXPECT_TRUE(LockFile::acquire(dir.path(), &sentence)) << sentence;
}

TEST(LockFile, WaitsUntilThePredecessorIsGone) {
  const test::TempDir dir;
  Holder holder(dir.path(), Holder::kReleaseAndStay);
  std::string sentence;
  const auto refused = LockFile::acquire(dir.path(), &sentence, 30);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBusy);
  EXPECT_THAT(sentence, HasSubstr(std::to_string(holder.pid())));
  EXPECT_THAT(sentence, HasSubstr("still running"));

  std::jthread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    holder.kill_now();
  });
  EXPECT_TRUE(LockFile::acquire(dir.path(), &sentence)) << sentence;
}

TEST(LockFile, AnotherProcessWithTheSamePidIsNoPredecessor) {
  const test::TempDir dir;
  // Our parent lives, but did not start at tick 1, and not after that boot.
  std::ofstream(dir.file("LOCK")) << getppid() << " 1 some-other-boot\n";
  std::string sentence;
  EXPECT_TRUE(LockFile::acquire(dir.path(), &sentence, 0)) << sentence;
}

TEST(LockFile, RubbishInTheFileIsNoHolder) {
  const test::TempDir dir;
  for (const char* text : {"", "\n", "-5 -5 x", "rubbish", "99999999999999999999 1 x"}) {
    std::ofstream(dir.file("LOCK"), std::ios::trunc) << text;
    std::string sentence;
    EXPECT_TRUE(LockFile::acquire(dir.path(), &sentence, 0)) << sentence;
  }
}

TEST(LockFile, AMissingDirectoryIsNamed) {
  std::string sentence;
  const auto lock = LockFile::acquire("/nowhere/at/all", &sentence);
  ASSERT_FALSE(lock);
  EXPECT_THAT(sentence, HasSubstr("/nowhere/at/all/LOCK"));
}

TEST(LockFile, IsClosedOnExec) {
  const test::TempDir dir;
  std::string sentence;
  const auto lock = LockFile::acquire(dir.path(), &sentence);
  ASSERT_TRUE(lock);
  bool seen = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) != dir.file("LOCK")) continue;
    seen = true;
    EXPECT_NE(fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_TRUE(seen);
}

// Whether all that have used the directory before have ended for certain.
TEST(LockFile, KnowsThatTheOthersHaveEndedUnlessItWasCopied) {
  const test::TempDir directory;
  const test::TempDir other;
  const auto others_have_ended = [](const std::string& path, bool settles = false) {
    std::string sentence;
    auto lock = LockFile::acquire(path, &sentence);
    EXPECT_TRUE(lock) << sentence;
    if (!lock) return false;
    const bool have_ended = lock->others_have_ended();
    if (settles) lock->settle();
    EXPECT_EQ(lock->others_have_ended(), have_ended || settles);
    return have_ended;
  };
  EXPECT_FALSE(others_have_ended(directory.path())) << "nothing is known of a new one";
  EXPECT_FALSE(others_have_ended(directory.path())) << "nobody has settled it";
  EXPECT_FALSE(others_have_ended(directory.path(), true));
  EXPECT_TRUE(others_have_ended(directory.path()));
  EXPECT_TRUE(others_have_ended(directory.path())) << "it stays so";
  std::filesystem::copy_file(directory.path() + "/LOCK", other.path() + "/LOCK");
  EXPECT_FALSE(others_have_ended(other.path())) << "the process of the first may live";
  EXPECT_FALSE(others_have_ended(other.path())) << "as before";
  // The lock of another machine, or from before a boot.
  std::string line;
  std::getline(std::ifstream(directory.path() + "/LOCK"), line);
  line.replace(line.find('-'), 1, "x");
  std::ofstream(directory.path() + "/LOCK") << line << "\n";
  EXPECT_FALSE(others_have_ended(directory.path()));
}

}  // namespace
}  // namespace rkv::server
