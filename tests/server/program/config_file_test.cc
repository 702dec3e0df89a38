#include "server/program/config_file.h"

#include <fmt/format.h>
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

TEST(ConfigFile, WhatCannotBeReadIsNamedWithTheReason) {
  const test::TempDir dir;
  const auto sentence = [](const std::string& path, const char* reason) {
    return fmt::format("cannot read the configuration file {}: {}", path, reason);
  };
  EXPECT_EQ(read_config_file("/nowhere").error, sentence("/nowhere", "No such file or directory"));
  EXPECT_EQ(read_config_file(dir.path()).error, sentence(dir.path(), "Is a directory"));
  EXPECT_EQ(read_config_file("/nowhere\n").error,
            sentence("/nowhere\\n", "No such file or directory"));
  EXPECT_EQ(read_config_file("/dev/zero").error,
            sentence("/dev/zero", "it is longer than 1 MiB, too long for a configuration"));
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
    EXPECT_EQ(file.error.find('\n'), std::string::npos) << file.error;
  }
}

}  // namespace
}  // namespace rkv::server
