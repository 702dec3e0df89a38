#include "server/offline/user_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "server/clients/admission/users.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class UserCommandTest : public ::testing::Test {
 protected:
  static UserCommand add(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "add");
    return run_user_command(arguments);
  }
  static unsigned mode_of(const std::string& path) {
    struct stat status{};
    EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777U;
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      lines.push_back(line);
    return lines;
  }
  // The user of this name in the users file.
  User user(const std::string& name) const {
    std::string problem;
    const auto users = Users::load(users_, &problem);
    EXPECT_TRUE(users) << problem;
    const auto found = users ? (*users)->find(number_of_user(name)) : nullptr;
    EXPECT_NE(found, nullptr) << name;
    return found != nullptr ? *found : User{};
  }

  const test::TempDir directory_;
  const std::string users_ = directory_.path() + "/users";
  const std::string secret_ = directory_.path() + "/secret";
};

TEST_F(UserCommandTest, WritesBothFilesForTheirOwnerAlone) {
  const auto done = add({"anna", "--role", "write", "--users", users_, "--secret-file", secret_});
  EXPECT_EQ(done.exit_code, kExitClean) << done.error;
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(mode_of(users_), 0600U);
  EXPECT_EQ(mode_of(secret_), 0600U);
  const std::string text = testing::read_file(secret_);
  ASSERT_THAT(text, SizeIs(65));
  const auto secret = Secret::parse(text.substr(0, 64));
  ASSERT_TRUE(secret);
  EXPECT_EQ(user("anna").role, Role::kWrite);
  EXPECT_EQ(user("anna").keys, ClientKeys::of(*secret).stored);
  EXPECT_THAT(testing::read_file(users_), ::testing::Not(HasSubstr(text.substr(0, 64))));
}

TEST_F(UserCommandTest, PrintsWhatHasNoFile) {
  const auto both = add({"--role=admin", "anna"});
  EXPECT_EQ(both.exit_code, kExitClean) << both.error;
  const auto lines = lines_of(both.out);
  ASSERT_THAT(lines, SizeIs(2));
  std::string problem;
  const auto users = Users::parse(lines[1], "stdout", &problem);
  ASSERT_TRUE(users) << problem;
  EXPECT_EQ((*users)->find(number_of_user("anna"))->keys,
            ClientKeys::of(*Secret::parse(lines[0])).stored);
  EXPECT_THAT(lines_of(add({"anna", "--role", "read", "--users", users_}).out), SizeIs(1));
  EXPECT_THAT(lines_of(add({"anna", "--role", "read", "--secret-file", secret_}).out), SizeIs(1));
}

TEST_F(UserCommandTest, KeepsWhatIsInTheFile) {
  testing::write_file(users_, "# people");  // without an end of line
  ASSERT_EQ(chmod(users_.c_str(), 0600), 0);
  EXPECT_EQ(add({"anna", "--role", "read", "--users", users_}).exit_code, kExitClean);
  EXPECT_EQ(add({"bob", "--role", "admin", "--users", users_}).exit_code, kExitClean);
  EXPECT_THAT(lines_of(testing::read_file(users_)), SizeIs(3));
  EXPECT_EQ(lines_of(testing::read_file(users_)).front(), "# people");
  EXPECT_EQ(user("anna").role, Role::kRead);
  EXPECT_EQ(user("bob").role, Role::kAdmin);
}

TEST_F(UserCommandTest, ASecretIsExchangedInTwoSteps) {
  ASSERT_EQ(add({"anna", "--role", "write", "--users", users_}).exit_code, kExitClean);
  ASSERT_EQ(add({"bob", "--role", "read", "--users", users_}).exit_code, kExitClean);
  const User before = user("anna");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--users", users_});
    return run_user_command(arguments);
  };
  EXPECT_THAT(run({"retire", "anna"}).error, HasSubstr("no user anna with two lines"));
  EXPECT_THAT(run({"renew", "carol"}).error, HasSubstr("no user carol"));
  EXPECT_THAT(run({"renew", "anna", "--role", "read"}).error, HasSubstr("takes only a name"));
  const auto renewed = run({"renew", "anna", "--secret-file", secret_});
  ASSERT_EQ(renewed.exit_code, kExitClean) << renewed.error;
  const auto secret = Secret::parse(testing::read_file(secret_).substr(0, 64));
  ASSERT_TRUE(secret);
  EXPECT_EQ(user("anna"), before) << "the older is still there";
  EXPECT_THAT(run({"renew", "anna"}).error, HasSubstr("two lines"));
  ASSERT_EQ(run({"retire", "anna"}).exit_code, kExitClean);
  EXPECT_EQ(user("anna").keys, ClientKeys::of(*secret).stored);
  EXPECT_EQ(user("anna").role, Role::kWrite);
  EXPECT_EQ(user("bob").role, Role::kRead);
  ASSERT_EQ(run({"renew", "anna"}).exit_code, kExitClean);
  ASSERT_EQ(run({"remove", "anna"}).exit_code, kExitClean);
  EXPECT_THAT(lines_of(testing::read_file(users_)), SizeIs(1));
}

TEST_F(UserCommandTest, KeepsTheModeOfAFileThatItsGroupReads) {
  if (geteuid() != 0) GTEST_SKIP() << "the file must be root's";
  testing::write_file(users_, "");
  ASSERT_EQ(chmod(users_.c_str(), 0640), 0);
  EXPECT_EQ(add({"anna", "--role", "read", "--users", users_}).exit_code, kExitClean);
  EXPECT_EQ(mode_of(users_), 0640U);
}

TEST_F(UserCommandTest, KeepsTheOwnerOfTheFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  testing::write_file(users_, "");
  ASSERT_EQ(chmod(users_.c_str(), 0600), 0);
  ASSERT_EQ(chown(users_.c_str(), 12345, 23456), 0);
  const auto done = add({"anna", "--role", "read", "--users", users_, "--secret-file", secret_});
  EXPECT_EQ(done.exit_code, kExitClean) << done.error;
  struct stat status{};
  ASSERT_EQ(stat(users_.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345U);
  EXPECT_EQ(status.st_gid, 23456U);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  ASSERT_EQ(stat(secret_.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0U) << "the secret is not the server's";
}

TEST_F(UserCommandTest, FollowsALinkToTheFile) {
  ASSERT_EQ(add({"anna", "--role", "read", "--users", users_}).exit_code, kExitClean);
  const std::string link = directory_.path() + "/link";
  ASSERT_EQ(symlink("users", link.c_str()), 0);
  const auto done = add({"bob", "--role", "read", "--users", link});
  EXPECT_EQ(done.exit_code, kExitClean) << done.error;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(user("bob").role, Role::kRead);
}

TEST_F(UserCommandTest, RefusesALinkToNothing) {
  ASSERT_EQ(symlink("nothing", users_.c_str()), 0);
  const auto done = add({"anna", "--role", "read", "--users", users_, "--secret-file", secret_});
  EXPECT_EQ(done.exit_code, kExitUsage);
  EXPECT_THAT(done.error, AllOf(HasSubstr(users_), HasSubstr("symbolic link")));
  EXPECT_TRUE(std::filesystem::is_symlink(users_));
  EXPECT_FALSE(std::filesystem::exists(secret_));
}

// Otherwise the users file takes the place of the secret, which is lost.
TEST_F(UserCommandTest, RefusesOneFileForBoth) {
  std::filesystem::create_directory_symlink(directory_.path(), directory_.path() + "/here");
  for (const std::string& same :
       {users_, directory_.path() + "/./users", directory_.path() + "/here/users"}) {
    const auto done = add({"anna", "--role", "read", "--users", users_, "--secret-file", same});
    EXPECT_EQ(done.exit_code, kExitUsage) << same;
    EXPECT_THAT(done.error, AllOf(HasSubstr(users_), HasSubstr("give two files")));
    EXPECT_FALSE(std::filesystem::exists(users_)) << same;
  }
}

// Returns what is in the directory, with its contents.
std::string all_of(const std::string& directory) {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    all += entry.path().string() + ": " + testing::read_file(entry.path()) + "\n";
  return all;
}

TEST_F(UserCommandTest, AFailureChangesNothing) {
  ASSERT_EQ(add({"anna", "--role", "read", "--users", users_}).exit_code, kExitClean);
  const std::string before = all_of(directory_.path());
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const auto done = add(arguments);
    EXPECT_EQ(done.exit_code, kExitOther);
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.error, HasSubstr(why));
    EXPECT_EQ(all_of(directory_.path()), before);
  };
  refused({"anna", "--role", "read", "--users", users_, "--secret-file", secret_}, "already");
  refused({"bob", "--role", "read", "--secret-file", users_}, "File exists");
  refused({"bob", "--role", "read", "--users", users_ + "/no"}, "Not a directory");
  refused({"bob", "--role", "read", "--secret-file", directory_.path() + "/no/secret"},
          "No such file");
  ASSERT_EQ(chmod(users_.c_str(), 0644), 0);
  refused({"bob", "--role", "read", "--users", users_}, "chmod 600");
  ASSERT_EQ(chmod(users_.c_str(), 0600), 0);
}

TEST_F(UserCommandTest, TwoAtOnceAreRefused) {
  testing::write_file(users_ + ".new", "of another one");
  const auto done = add({"anna", "--role", "read", "--users", users_, "--secret-file", secret_});
  EXPECT_EQ(done.exit_code, kExitOther);
  EXPECT_THAT(done.error, AllOf(HasSubstr(users_ + ".new"), HasSubstr("at work")));
  EXPECT_EQ(testing::read_file(users_ + ".new"), "of another one");
  EXPECT_FALSE(std::filesystem::exists(secret_));
}

TEST_F(UserCommandTest, RemovesOneLineAndNothingElse) {
  for (const char* const name : {"anna", "ann", "bob"})
    ASSERT_EQ(add({name, "--role", "read", "--users", users_}).exit_code, kExitClean);
  const auto lines = lines_of(testing::read_file(users_));
  ASSERT_THAT(lines, SizeIs(3));
  const std::string head = "# anna is on leave\n\n";
  testing::write_file(users_, head + "  " + lines[0] + "\n" + lines[1] + "\n" + lines[2]);
  const auto remove = [&](const std::string& name) {
    return run_user_command({"remove", name, "--users", users_});
  };
  const auto done = remove("anna");
  EXPECT_EQ(done.exit_code, kExitClean) << done.error;
  EXPECT_EQ(testing::read_file(users_), head + lines[1] + "\n" + lines[2]);
  EXPECT_EQ(mode_of(users_), 0600U);
  EXPECT_EQ(remove("bob").exit_code, kExitClean) << "the last line, which has no end";
  EXPECT_EQ(testing::read_file(users_), head + lines[1] + "\n");
}

TEST_F(UserCommandTest, WhatCannotBeRemovedChangesNothing) {
  ASSERT_EQ(add({"anna", "--role", "read", "--users", users_}).exit_code, kExitClean);
  const std::string before = all_of(directory_.path());
  const auto refused = [&](const std::string& name, const std::string& users, ExitCode code) {
    const auto done = run_user_command({"remove", name, "--users", users});
    EXPECT_EQ(done.exit_code, code);
    EXPECT_EQ(all_of(directory_.path()), before);
    return done.error;
  };
  EXPECT_THAT(refused("bob", users_, kExitUsage), HasSubstr("has no user bob"));
  EXPECT_THAT(refused("anna", directory_.path() + "/absent", kExitOther),
              HasSubstr("No such file"));
}

TEST_F(UserCommandTest, WrongWordsAreNamed) {
  const auto wrong = [](const std::vector<std::string>& arguments) {
    const auto done = run_user_command(arguments);
    EXPECT_EQ(done.exit_code, kExitUsage);
    EXPECT_EQ(done.out, "");
    return done.error;
  };
  EXPECT_THAT(wrong({}), HasSubstr("add"));
  EXPECT_THAT(wrong({"rename", "anna"}), HasSubstr("add, renew, retire or remove"));
  EXPECT_THAT(wrong({"remove"}), HasSubstr("name is missing"));
  EXPECT_THAT(wrong({"remove", "anna"}), HasSubstr("--users is missing"));
  EXPECT_THAT(wrong({"remove", "anna", "--users", "f", "--role", "read"}),
              HasSubstr("only a name"));
  EXPECT_THAT(wrong({"remove", "anna", "--users", "f", "--secret-file", "s"}),
              HasSubstr("only a name"));
  EXPECT_THAT(wrong({"add"}), HasSubstr("name is missing"));
  EXPECT_THAT(wrong({"add", "anna"}), HasSubstr("--role is missing"));
  EXPECT_THAT(wrong({"add", "anna", "--role"}), HasSubstr("--role"));
  EXPECT_THAT(wrong({"add", "anna", "--role", "owner"}), HasSubstr("owner"));
  EXPECT_THAT(wrong({"add", "an na", "--role", "read"}), HasSubstr("an na"));
  EXPECT_THAT(wrong({"add", "anna", "bob", "--role", "read"}), HasSubstr("bob"));
  EXPECT_THAT(wrong({"add", "anna", "--role", "read", "--user", "f"}), HasSubstr("--user"));
  EXPECT_THAT(wrong({"add", "anna", "--role", "read", "--users="}), HasSubstr("--users"));
  EXPECT_THAT(run_user_command({"--help"}).out, HasSubstr("usage: kvserver user add"));
}

}  // namespace
}  // namespace rkv::server
