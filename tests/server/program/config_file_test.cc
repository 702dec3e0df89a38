#include "server/config_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

TEST(ConfigFile, ValuesAreText) {
  const test::TempDir dir;
  std::ofstream(dir.file("c")) << "# comment\na = \"text\"\nb = 42\nc = true\n";
  const ConfigFile file = read_config_file(dir.file("c"));
  EXPECT_EQ(file.error, "");
  const std::map<std::string, std::string> want = {{"a", "text"}, {"b", "42"}, {"c", "true"}};
  EXPECT_EQ(file.values, want);
}

TEST(ConfigFile, AnEmptyFileIsFine) {
  const test::TempDir dir;
  std::ofstream(dir.file("c")) << "";
  EXPECT_EQ(read_config_file(dir.file("c")).error, "");
}

TEST(ConfigFile, ADirectoryThrowsNothingAtUs) {
  const test::TempDir dir;
  EXPECT_NO_THROW(EXPECT_TRUE(read_config_file(dir.path()).values.empty()));
}

TEST(ConfigFile, AMissingFileIsNamed) {
  EXPECT_EQ(read_config_file("/nowhere").error,
            "cannot read the configuration file /nowhere: check --config");
}

// Whatever the bytes, the answer is a file or a sentence.
TEST(ConfigFile, RandomBytesEndInASentence) {
  Random random(test::test_seed());
  const test::TempDir dir;
  const std::string letters = "ab=\"'[]{}#\n\r\t .0129-_\\u\xFF,";
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (std::uint64_t n = random.below(60); n > 0; --n)
      text += letters[random.below(letters.size())];
    std::ofstream(dir.file("c"), std::ios::trunc | std::ios::binary) << text;
    const ConfigFile file = read_config_file(dir.file("c"));
    EXPECT_TRUE(file.error.empty() || file.error.starts_with(dir.path())) << file.error;
  }
}

}  // namespace
}  // namespace rkv::server
