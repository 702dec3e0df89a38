#include "server/program/log_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

namespace rkv::server {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMs = 60'000;

// A pipe of one page that nobody reads until drain().
class LogWriterTest : public ::testing::Test {
 protected:
  LogWriterTest() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  ~LogWriterTest() override {
    writer_.reset();
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  void make(std::size_t most_bytes) {
    writer_ = std::make_unique<LogWriter>(
        ends_[1], [](std::uint64_t lost) { return fmt::format("lost {}\n", lost); }, most_bytes);
  }
  void close_end(int end) {
    close(ends_[end]);
    ends_[end] = -1;
  }
  // Everything that arrives until the writer has nothing left. A thread reads meanwhile.
  std::string drain() {
    std::string text;
    std::jthread reader([&] {
      std::array<char, 4096> piece{};
      for (ssize_t got = 0; (got = read(ends_[0], piece.data(), piece.size())) > 0;)
        text.append(piece.data(), static_cast<std::size_t>(got));
    });
    EXPECT_TRUE(writer_->flush(kPatienceMs));
    writer_.reset();
    close_end(1);
    reader.join();
    return text;
  }

  std::array<int, 2> ends_{-1, -1};
  std::unique_ptr<LogWriter> writer_;
};

TEST_F(LogWriterTest, LinesArriveInOrder) {
  make(LogWriter::kMostBytes);
  std::string wanted;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = fmt::format("line {}\n", i);
    writer_->add(line);
    wanted += line;
  }
  EXPECT_EQ(drain(), wanted);
}

// LOG-1, LOG-2: this test would not end if add() waited.
TEST_F(LogWriterTest, AReaderThatStandsStillCostsLinesAndNoTime) {
  constexpr std::size_t kLineBytes = 100;
  constexpr std::uint64_t kLines = 10'000;
  constexpr std::size_t kMost = 16'384;
  make(kMost);
  const std::string line = std::string(kLineBytes - 1, 'x') + "\n";
  for (std::uint64_t i = 0; i < kLines; ++i)
    writer_->add(line);
  EXPECT_FALSE(writer_->flush(1)) << "nobody reads";
  // Room again: the next line is behind the number of those that are lost.
  std::string text;
  std::jthread reader([&] {
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = read(ends_[0], piece.data(), piece.size())) > 0;)
      text.append(piece.data(), static_cast<std::size_t>(got));
  });
  EXPECT_TRUE(writer_->flush(kPatienceMs));
  writer_->add("last\n");
  EXPECT_TRUE(writer_->flush(kPatienceMs));
  writer_.reset();
  close_end(1);
  reader.join();
  // The pipe takes some at first: a line that is lost meanwhile is counted in the text as well.
  std::uint64_t written = 0;
  std::uint64_t lost = 0;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one) && one != "last";) {
    if (one.starts_with("lost "))
      lost += std::stoull(one.substr(5));
    else
      ++written;
  }
  EXPECT_EQ(written + lost, kLines);
  EXPECT_LE(written, (kMost + 4096) / kLineBytes + 1);
  EXPECT_TRUE(text.ends_with("last\n")) << text.substr(text.size() - 100);
}

TEST_F(LogWriterTest, ALineThatCannotBeWrittenIsCounted) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  writer_ = std::make_unique<LogWriter>(
      full, [](std::uint64_t lost) { return fmt::format("lost {}\n", lost); });
  for (int i = 0; i < 3; ++i) {
    writer_->add("line\n");
    EXPECT_TRUE(writer_->flush(kPatienceMs));
  }
  ASSERT_GE(dup2(ends_[1], full), 0);  // there is room again
  close_end(1);
  ends_[1] = full;
  writer_->add("next\n");
  EXPECT_EQ(drain(), "lost 3\nnext\n");
}

TEST_F(LogWriterTest, ADescriptorThatAnotherProcessMadeNonBlockingIsAwaited) {
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  make(LogWriter::kMostBytes);
  for (int i = 0; i < 200; ++i)
    writer_->add(std::string(99, 'y') + "\n");
  EXPECT_EQ(drain().size(), 20'000U);
}

}  // namespace
}  // namespace rkv::server
