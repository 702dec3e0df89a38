#include "common/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "common/log.h"

namespace rkv {
namespace {

// Puts descriptor 2 of this process aside.
class Stderr : public ::testing::Test {
 protected:
  Stderr() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    fcntl(ends_[1], F_SETPIPE_SZ, 4096);
    dup2(ends_[1], STDERR_FILENO);
  }
  ~Stderr() override {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(ends_[1]);
    if (ends_[0] >= 0) close(ends_[0]);
  }
  void close_reader() {
    close(ends_[0]);
    ends_[0] = -1;
  }
  std::string read_some() {
    std::string text(8192, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(read(ends_[0], text.data(), 8192), 0)));
    return text;
  }

  std::array<int, 2> ends_{-1, -1};
  const int before_;
};

TEST_F(Stderr, TextForWhichThereIsNoRoomIsDropped) {
  const std::string page(4096, 'x');
  EXPECT_TRUE(write_to_stderr(page, 0));
  errno = ENOENT;
  EXPECT_FALSE(write_to_stderr("more", 0));
  EXPECT_FALSE(write_to_stderr("more", 10));
  EXPECT_EQ(errno, ENOENT) << "as it was";
  EXPECT_EQ(read_some(), page);
  EXPECT_TRUE(write_to_stderr("more", 0));
  EXPECT_EQ(read_some(), "more");
}

TEST_F(Stderr, AReaderThatLeftEndsNoProgram) {
  close_reader();
  EXPECT_FALSE(write_to_stderr("text", 0));  // SIGPIPE has its default action here
}

TEST_F(Stderr, ADescriptorThatIsClosedIsNoWait) {
  close(STDERR_FILENO);
  EXPECT_FALSE(write_to_stderr("text", kReaderWaitMs));
}

// The log of a program that has set no sink of its own.
TEST_F(Stderr, TheDefaultLogCountsWhatItCouldNotWrite) {
  set_log_sink({});
  const std::string page(4096, 'x');
  EXPECT_TRUE(write_to_stderr(page, 0));
  log_line(LogLevel::kWarn, "one");
  log_line(LogLevel::kWarn, "two");
  EXPECT_EQ(read_some(), page);
  log_line(LogLevel::kInfo, "three");
  EXPECT_EQ(read_some(), "warning: 2 log lines are lost\ninfo: three\n");
}

TEST(StandardDescriptors, ClosedOnesAreTakenByWhatCannotBeUsed) {
  const pid_t child = fork();
  if (child == 0) {
    for (int number = 0; number < 3; ++number)
      close(number);
    keep_standard_descriptors();
    char byte = 0;
    const int next = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const bool fails = read(STDIN_FILENO, &byte, 1) < 0 && write(STDOUT_FILENO, &byte, 1) < 0 &&
                       write(STDERR_FILENO, &byte, 1) < 0;
    _exit(next > STDERR_FILENO && fails ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace rkv
