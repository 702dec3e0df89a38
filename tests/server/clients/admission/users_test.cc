#include "server/clients/admission/users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey(64, 'a');
const std::string kOther(64, '0');

std::shared_ptr<const Users> parsed(const std::string& text) {
  std::string problem;
  auto users = Users::parse(text, "users", &problem);
  EXPECT_TRUE(users) << problem;
  return users ? *users : nullptr;
}

std::string refusal(const std::string& text) {
  std::string problem;
  EXPECT_FALSE(Users::parse(text, "users", &problem)) << text;
  return problem;
}

TEST(Users, AreReadFromLines) {
  const auto users = parsed("# people\n\n  anna\tadmin " + kKey + " " + kOther + " \r\nbob read " +
                            kOther + " " + kKey);
  ASSERT_EQ(users->count(), 2U);
  const auto anna = users->find(number_of_user("anna"));
  ASSERT_NE(anna, nullptr);
  EXPECT_EQ(anna->name, "anna");
  EXPECT_EQ(anna->role, Role::kAdmin);
  EXPECT_EQ(to_hex(anna->keys.stored_key), kKey);
  EXPECT_EQ(to_hex(anna->keys.server_key), kOther);
  EXPECT_EQ(users->find(number_of_user("bob"))->role, Role::kRead);
  EXPECT_EQ(users->find(number_of_user("carol")), nullptr);
}

TEST(Users, AreWrittenAsTheyAreRead) {
  const auto users = parsed("anna write " + kKey + " " + kOther);
  EXPECT_EQ(Users::line_of(*users->find(number_of_user("anna"))),
            "anna write " + kKey + " " + kOther);
}

TEST(Users, MayBeNone) {
  EXPECT_EQ(parsed("")->count(), 0U);
  EXPECT_EQ(parsed("# nobody\n")->count(), 0U);
}

TEST(Users, AUserThatChangedIsAnotherOne) {
  const auto users = parsed("anna write " + kKey + " " + kOther);
  const User anna = *users->find(number_of_user("anna"));
  EXPECT_TRUE(users->has(anna));
  EXPECT_FALSE(parsed("")->has(anna));
  EXPECT_FALSE(parsed("anna read " + kKey + " " + kOther)->has(anna));
  EXPECT_FALSE(parsed("anna write " + kOther + " " + kOther)->has(anna));
  EXPECT_FALSE(parsed("anna write " + kKey + " " + kKey)->has(anna));
}

// While its secret is exchanged.
TEST(Users, AUserMayHaveTwoLines) {
  const std::string older = "anna write " + kKey + " " + kKey + "\n";
  const std::string newer = "anna write " + kOther + " " + kKey + "\n";
  const auto both = parsed(older + "bob read " + kKey + " " + kKey + "\n" + newer);
  const std::uint32_t anna = number_of_user("anna");
  ASSERT_NE(both->find_newer(anna), nullptr);
  EXPECT_EQ(to_hex(both->find(anna)->keys.stored_key), kKey);
  EXPECT_EQ(to_hex(both->find_newer(anna)->keys.stored_key), kOther);
  EXPECT_EQ(both->find_newer(number_of_user("bob")), nullptr);
  EXPECT_EQ(both->count(), 2U);
  EXPECT_TRUE(both->has(*both->find(anna)));
  EXPECT_TRUE(both->has(*both->find_newer(anna)));
  EXPECT_FALSE(parsed(newer)->has(*both->find(anna))) << "its sessions end";
  EXPECT_TRUE(parsed(newer)->has(*both->find_newer(anna))) << "and these go on";
  EXPECT_EQ(both->without("anna")->count(), 1U);
  EXPECT_THAT(refusal(older + newer + "anna write " + kOther + " " + kOther),
              AllOf(HasSubstr("line 3"), HasSubstr("two lines above")));
  EXPECT_THAT(refusal(older + "anna read " + kOther + " " + kKey), HasSubstr("another role"));
}

TEST(Users, AWrongLineIsNamed) {
  const std::string good = "anna read " + kKey + " " + kKey + "\n";
  EXPECT_THAT(refusal(good + "bob read"), AllOf(HasSubstr("users: line 2"), HasSubstr("2 words")));
  EXPECT_THAT(refusal("anna read " + kKey + " " + kKey + " more"), HasSubstr("5 words"));
  EXPECT_THAT(refusal("an/na read " + kKey + " " + kKey), HasSubstr("the name must have"));
  EXPECT_THAT(refusal("anna reader " + kKey + " " + kKey), HasSubstr("read, write or admin"));
  EXPECT_THAT(refusal("anna read " + kKey.substr(1) + " " + kKey), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(refusal("anna read " + kKey + " " + kKey + "a"), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(refusal(good + "#\n" + good), AllOf(HasSubstr("line 3"), HasSubstr("two lines")));
}

// The refusal of a line goes to the log, and a word of the line may be a key in the wrong place.
TEST(Users, NoWordOfALineIsShown) {
  const std::string keys = kKey + " " + kKey;
  for (const std::string& text :
       {"anna " + keys + " read", "/" + kKey + " read " + keys, "anna read " + kKey + " /" + kKey,
        "anna read " + keys + " " + kKey, kKey + " read " + keys + "\n" + kKey + " read " + keys}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("users: line "), Not(HasSubstr("aaaa"))));
  }
}

// Found by trying names: their digests begin with the same four bytes.
TEST(Users, TwoNamesOfOneNumberAreRefused) {
  const std::string one = "user89362";
  const std::string other = "user93086";
  ASSERT_EQ(number_of_user(one), number_of_user(other));
  EXPECT_THAT(
      refusal(one + " read " + kKey + " " + kKey + "\n" + other + " read " + kKey + " " + kKey),
      AllOf(HasSubstr("line 2"), HasSubstr("choose another name")));
}

TEST(Users, FilesMustBePrivateAndShort) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/users";
  std::string problem;
  EXPECT_FALSE(Users::load(path, &problem));
  EXPECT_THAT(problem, AllOf(HasSubstr(path), HasSubstr("No such file")));
  testing::write_file(path, "anna read " + kKey + " " + kKey + "\n");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_FALSE(Users::load(path, &problem));
  EXPECT_THAT(problem, HasSubstr("chmod 600"));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ((*Users::load(path, &problem))->count(), 1U);
  testing::write_file(path, std::string(Users::kLongestFile + 1, '#'));
  EXPECT_FALSE(Users::load(path, &problem));
  EXPECT_THAT(problem, HasSubstr("longer than 1048576 bytes"));
}

}  // namespace
}  // namespace rkv::server
