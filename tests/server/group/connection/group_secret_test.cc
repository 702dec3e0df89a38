// The file of a group's secret: what is read, what is refused and with which sentence.
#include "server/group/connection/group_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server::test {
namespace {

using ::testing::HasSubstr;

class GroupSecretFile : public ::testing::Test {
 protected:
  Result<GroupSecret> load(const std::string& text, mode_t mode = 0600) {
    ::rkv::testing::write_file(path_, text);
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    problem_.clear();
    return GroupSecret::load(path_, &problem_);
  }
  void expect_problem(const std::string& text, const char* sentence) {
    EXPECT_FALSE(load(text)) << text;
    EXPECT_THAT(problem_, HasSubstr(sentence));
    EXPECT_THAT(problem_, HasSubstr(path_));
  }
  const TempDir directory_;
  const std::string path_ = directory_.file("group.secret");
  std::string problem_;
};

TEST_F(GroupSecretFile, DigitsAreRead) {
  const std::string digits = "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff";
  for (const char* const end : {"", "\n", "\r\n"}) {
    const auto secret = load(digits + end);
    ASSERT_TRUE(secret) << problem_;
    EXPECT_EQ(secret->bytes().size(), 32U);
    EXPECT_EQ(secret->bytes()[1], std::byte{0x11});
    EXPECT_NE(secret->identity(), GroupSecret::well_known().identity());
  }
}

TEST_F(GroupSecretFile, OtherTextIsRefused) {
  const char* const sentence = "64 hexadecimal digits";
  expect_problem("", sentence);
  expect_problem(std::string(63, 'a'), sentence);
  expect_problem(std::string(65, 'a'), sentence);
  expect_problem(std::string(63, 'a') + "g", sentence);
  expect_problem(std::string(64, 'a') + "\n" + std::string(64, 'a'), sentence);
  expect_problem(std::string(10'000, 'a'), "");
}

TEST_F(GroupSecretFile, AFileForOthersIsRefused) {
  for (const mode_t mode : {0604, 0650, 0660}) {
    EXPECT_FALSE(load(std::string(64, 'a'), mode));
    EXPECT_THAT(problem_, HasSubstr("chmod 600"));
  }
}

TEST_F(GroupSecretFile, AMissingFileIsNamed) {
  std::string problem;
  EXPECT_FALSE(GroupSecret::load(path_, &problem));
  EXPECT_THAT(problem, HasSubstr(path_));
}

// A secret in the wrong place must not reach the log.
TEST_F(GroupSecretFile, ProblemsDoNotShowWhatTheFileHolds) {
  EXPECT_FALSE(load(std::string(63, 'c') + "x"));
  EXPECT_THAT(problem_, ::testing::Not(HasSubstr("cccc")));
}

}  // namespace
}  // namespace rkv::server::test
