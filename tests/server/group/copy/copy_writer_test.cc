// The messages that a primary may send as a copy, and those that are refused (COPY-2).
#include "server/group/copy/copy_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <optional>

#include "server/group/copy/copy_directory.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server::test {
namespace {

namespace fs = std::filesystem;
using ::rkv::testing::read_file;
using ::rkv::testing::write_file;
using ::testing::HasSubstr;

CopyPiece piece_of(std::string_view text) {
  const Bytes bytes = as_bytes(text);
  return {.bytes = {bytes.begin(), bytes.end()}};
}

std::uint64_t digest_of_files() {
  CopyDigest digest;
  digest.file("CURRENT", 6);
  digest.piece(as_bytes("MANIFE"));
  digest.file("000001.log", 0);
  digest.file("000002.sst", 8);
  digest.piece(as_bytes("abcdefgh"));
  return digest.digest();
}

// A copy of three files; each test changes one message.
std::vector<ReplicationMessage> a_copy() {
  return {CopyWait{},
          CopyWait{},
          CopyBegin{.files = 3, .bytes = 14},
          CopyFile{.name = "CURRENT", .bytes = 6},
          piece_of("MANIFE"),
          CopyFile{.name = "000001.log", .bytes = 0},
          CopyFile{.name = "000002.sst", .bytes = 8},
          piece_of("abc"),
          piece_of("defgh"),
          CopyEnd{.files = 3, .bytes = 14, .digest = digest_of_files()}};
}

class CopyWriting : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fs::create_directory(directory_.file("db")));
    write_file(directory_.file("db/CURRENT"), "old");
    writer_.emplace(directory_.path());
    ASSERT_TRUE(writer_->start(&problem_)) << problem_;
  }
  // Takes messages up to the first failure or the end of the copy.
  Result<bool> take(const std::vector<ReplicationMessage>& messages) {
    Result<bool> taken = false;
    for (const auto& message : messages) {
      taken = writer_->take(message, &problem_);
      if (!taken) break;
    }
    return taken;
  }
  void expect_nothing_left() {
    writer_.reset();
    EXPECT_FALSE(fs::exists(directory_.file("copying")));
    EXPECT_FALSE(fs::exists(directory_.file("copied")));
    EXPECT_EQ(read_file(directory_.file("db/CURRENT")), "old");
  }
  void expect_refusal(const std::vector<ReplicationMessage>& messages, const char* why) {
    const auto taken = take(messages);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Code::kCorrupt);
    EXPECT_THAT(problem_, HasSubstr(why));
    expect_nothing_left();
  }
  const TempDir directory_;
  std::optional<CopyWriter> writer_;
  std::string problem_;
};

TEST_F(CopyWriting, AWholeCopyIsThere) {
  const auto taken = take(a_copy());
  ASSERT_TRUE(taken) << problem_;
  EXPECT_TRUE(*taken);
  EXPECT_EQ(writer_->bytes(), 14U);
  EXPECT_EQ(writer_->total_bytes(), 14U);
  writer_.reset();
  EXPECT_FALSE(fs::exists(directory_.file("copying")));
  EXPECT_EQ(read_file(directory_.file("copied/CURRENT")), "MANIFE");
  EXPECT_EQ(read_file(directory_.file("copied/000001.log")), "");
  EXPECT_EQ(read_file(directory_.file("copied/000002.sst")), "abcdefgh");
  EXPECT_EQ(read_file(directory_.file("db/CURRENT")), "old");
}

// The connection may be cut behind each message.
TEST_F(CopyWriting, ABeginningLeavesNothing) {
  const auto all = a_copy();
  for (std::size_t count = 0; count < all.size(); ++count) {
    writer_.emplace(directory_.path());
    ASSERT_TRUE(writer_->start(&problem_)) << problem_;
    const auto taken = take({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)});
    ASSERT_TRUE(taken) << problem_;
    EXPECT_FALSE(*taken);
    expect_nothing_left();
  }
}

TEST_F(CopyWriting, EachMessageThatIsMissingIsFound) {
  for (std::size_t i = 2; i < a_copy().size() - 1; ++i) {
    auto messages = a_copy();
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(i));
    writer_.emplace(directory_.path());
    ASSERT_TRUE(writer_->start(&problem_)) << problem_;
    EXPECT_FALSE(take(messages)) << i;
    expect_nothing_left();
  }
}

TEST_F(CopyWriting, EachMessageThatComesTwiceIsFound) {
  for (std::size_t i = 2; i < a_copy().size(); ++i) {
    auto messages = a_copy();
    messages.insert(messages.begin() + static_cast<std::ptrdiff_t>(i), a_copy()[i]);
    writer_.emplace(directory_.path());
    ASSERT_TRUE(writer_->start(&problem_)) << problem_;
    EXPECT_FALSE(take(messages)) << i;
    if (i != a_copy().size() - 1) expect_nothing_left();  // else the copy was whole before
  }
}

TEST_F(CopyWriting, OtherBytesAreFound) {
  auto messages = a_copy();
  messages[8] = piece_of("defgx");
  expect_refusal(messages, "digest");
}

TEST_F(CopyWriting, AnotherDigestIsRefused) {
  auto messages = a_copy();
  std::get<CopyEnd>(messages.back()).digest += 1;
  expect_refusal(messages, "digest");
}

TEST_F(CopyWriting, AShortFileIsRefused) {
  auto messages = a_copy();
  messages[7] = piece_of("ab");
  expect_refusal(messages, "shorter");
}

TEST_F(CopyWriting, ALongFileIsRefused) {
  auto messages = a_copy();
  messages[7] = piece_of("abcd");
  expect_refusal(messages, "longer");
}

TEST_F(CopyWriting, MoreThanAnnouncedIsRefused) {
  auto messages = a_copy();
  messages[2] = CopyBegin{.files = 3, .bytes = 13};
  expect_refusal(messages, "longer");
}

TEST_F(CopyWriting, MoreFilesThanAnnouncedAreRefused) {
  auto messages = a_copy();
  messages[2] = CopyBegin{.files = 2, .bytes = 14};
  expect_refusal(messages, "longer");
}

TEST_F(CopyWriting, LengthsThatOverflowAreRefused) {
  auto messages = a_copy();
  messages[6] = CopyFile{.name = "000002.sst", .bytes = ~std::uint64_t{0}};
  expect_refusal(messages, "longer");
}

TEST_F(CopyWriting, APathIsRefused) {
  for (const char* const name :
       {"../db/CURRENT", "/tmp/000001.sst", "a/000001.sst", "..", "LOCK"}) {
    writer_.emplace(directory_.path());
    ASSERT_TRUE(writer_->start(&problem_)) << problem_;
    auto messages = a_copy();
    messages[6] = CopyFile{.name = name, .bytes = 8};
    expect_refusal(messages, "no database has a file");
  }
}

TEST_F(CopyWriting, ANameThatComesTwiceIsRefused) {
  auto messages = a_copy();
  messages[5] = CopyFile{.name = "CURRENT", .bytes = 0};
  EXPECT_FALSE(take(messages));
  expect_nothing_left();
}

TEST_F(CopyWriting, ACopyWithoutCurrentIsRefused) {
  CopyDigest digest;
  digest.file("000001.sst", 0);
  expect_refusal({CopyBegin{.files = 1, .bytes = 0}, CopyFile{.name = "000001.sst", .bytes = 0},
                  CopyEnd{.files = 1, .bytes = 0, .digest = digest.digest()}},
                 "CURRENT");
}

TEST_F(CopyWriting, AnotherMessageIsRefused) {
  auto messages = a_copy();
  messages[7] = Answer{.number = 1, .last = {}};
  expect_refusal(messages, "does not belong");
}

// A limit of the process on the length of files stands in for a full disk: write() fails.
TEST_F(CopyWriting, AFullDiskIsNamed) {
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto taken = take({CopyBegin{.files = 1, .bytes = 1'000'000},
                           CopyFile{.name = "CURRENT", .bytes = 1'000'000},
                           CopyPiece{.bytes = std::vector<std::byte>(1'000'000)}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  (void)std::signal(SIGXFSZ, before);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::kIo);
  EXPECT_THAT(problem_, HasSubstr("copying/CURRENT"));
  EXPECT_THAT(problem_, HasSubstr("space"));
  expect_nothing_left();
}

// Files of an earlier process do not mix with the copy.
TEST_F(CopyWriting, AnEarlierCopyIsRemovedFirst) {
  writer_.reset();
  ASSERT_TRUE(fs::create_directory(directory_.file("copied")));
  ASSERT_TRUE(fs::create_directory(directory_.file("copying")));
  write_file(directory_.file("copying/000002.sst"), "other");
  writer_.emplace(directory_.path());
  ASSERT_TRUE(writer_->start(&problem_)) << problem_;
  EXPECT_FALSE(fs::exists(directory_.file("copied")));
  EXPECT_TRUE(take(a_copy())) << problem_;
  EXPECT_EQ(read_file(directory_.file("copied/000002.sst")), "abcdefgh");
}

}  // namespace
}  // namespace rkv::server::test
