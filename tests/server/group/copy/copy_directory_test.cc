// The way of a copy into the data directory, and each crash on it (COPY-1).
#include "server/group/copy/copy_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "server/persistence/files.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server::test {
namespace {

namespace fs = std::filesystem;
using ::rkv::testing::read_file;
using ::rkv::testing::write_file;
using ::testing::HasSubstr;

class CopyDirectory : public ::testing::Test {
 protected:
  void make(const std::string& name, const std::string& text) {
    ASSERT_TRUE(fs::create_directory(directory_.file(name)));
    write_file(directory_.file(name + "/CURRENT"), text);
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      found.insert(entry.path().filename());
    return found;
  }
  std::string database() const { return read_file(directory_.file("db/CURRENT")); }
  Status recover() { return recover_copy(directory_.path(), &problem_); }
  Status install(const std::function<bool()>& go_on = {}) {
    return install_copy(directory_.path(), &problem_, go_on);
  }
  const TempDir directory_;
  std::string problem_;
};

const std::set<std::string> kDatabaseAlone = {"db"};

TEST_F(CopyDirectory, ACopyReplacesTheDatabase) {
  make("db", "old");
  make("copied", "new");
  ASSERT_TRUE(install()) << problem_;
  EXPECT_EQ(database(), "new");
  EXPECT_EQ(names(), kDatabaseAlone);
}

TEST_F(CopyDirectory, ACopyIsTheFirstDatabase) {
  make("copied", "new");
  ASSERT_TRUE(install()) << problem_;
  EXPECT_EQ(database(), "new");
}

// COPY-1
TEST_F(CopyDirectory, ACrashBeforeEachStepLeavesOneWholeDatabase) {
  bool is_over = false;
  for (int steps = 0; !is_over; ++steps) {
    std::error_code error;
    for (const std::string& name : names())
      fs::remove_all(directory_.file(name), error);
    make("db", "old");
    make("copied", "new");
    int done = 0;
    is_over = install([&] { return done++ < steps; }).has_value();
    ASSERT_TRUE(recover()) << problem_;
    EXPECT_EQ(names(), kDatabaseAlone) << steps;
    EXPECT_EQ(database(), steps == 0 ? "old" : "new") << steps;
    EXPECT_TRUE(recover()) << "once more";
    ASSERT_LT(steps, 20);
    if (is_over) {
      EXPECT_GE(steps, 5) << "the checker saw each step";
    }
  }
}

// A removal that a crash ended leaves a part.
TEST_F(CopyDirectory, ThePartOfAReplacedDatabaseIsRemoved) {
  make("db", "new");
  ASSERT_TRUE(fs::create_directory(directory_.file("replaced")));
  ASSERT_TRUE(recover()) << problem_;
  EXPECT_EQ(names(), kDatabaseAlone);
  EXPECT_EQ(database(), "new");
}

TEST_F(CopyDirectory, WhatIsNotInstalledIsRemoved) {
  make("db", "old");
  make("copying", "half");
  make("copied", "whole, but of an earlier process");
  make("sending", "of another replica");
  ASSERT_TRUE(recover()) << problem_;
  EXPECT_EQ(names(), kDatabaseAlone);
  EXPECT_EQ(database(), "old");
}

TEST_F(CopyDirectory, AContradictionIsRefusedAndKept) {
  make("replaced", "old");
  const auto status = recover();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kConflict);
  EXPECT_THAT(problem_, HasSubstr(directory_.path()));
  EXPECT_EQ(names(), std::set<std::string>{"replaced"});
  make("db", "one");
  make("copied", "another");
  EXPECT_FALSE(recover());
  EXPECT_EQ(names(), (std::set<std::string>{"copied", "db", "replaced"}));
}

TEST_F(CopyDirectory, WithoutACopyNothingIsInstalled) {
  make("db", "old");
  make("copying", "half");
  EXPECT_FALSE(install());
  EXPECT_THAT(problem_, HasSubstr("no copy"));
  EXPECT_EQ(database(), "old");
}

TEST(DatabaseFile, NamesOfRocksDbAreTaken) {
  for (const char* const name : {"CURRENT", "IDENTITY", "MANIFEST-000005", "OPTIONS-000007",
                                 "000012.sst", "000009.log", "000031.blob"})
    EXPECT_TRUE(is_database_file(name)) << name;
}

TEST(DatabaseFile, PathsAndOtherNamesAreRefused) {
  for (const char* const name :
       {"", ".", "..", "../CURRENT", "/etc/passwd", "a/000012.sst", "000012.sst/", "../000012.sst",
        "MANIFEST-", "MANIFEST-../1", "MANIFEST-000001/2", ".sst", "LOCK", "LOG", "000012.sst.tmp",
        "current", "CURRENT ", "0x12.log"})
    EXPECT_FALSE(is_database_file(name)) << name;
  EXPECT_FALSE(is_database_file(std::string_view("CURRENT\0", 8)));
}

}  // namespace
}  // namespace rkv::server::test
