#include "rkv/rdma/group/cluster_file.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>

#include "code_of.h"
#include "common/random.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

using rkv::rdma::testing::code_of;

using ::testing::HasSubstr;

TEST(ClusterFiles, AreReadInAnyOrderWithCommentsAndSpace) {
  std::string problem;
  const auto cluster = Cluster::parse(
      "# three\n2 [2001:db8::7]:7471\r\n\n  0\tnode-a:7471  \n   # and\n1 192.0.2.1:1", &problem);
  ASSERT_TRUE(cluster) << problem;
  ASSERT_EQ(cluster->size(), 3U);
  EXPECT_EQ((*cluster)[0].to_string(), "node-a:7471");
  EXPECT_EQ((*cluster)[1].to_string(), "192.0.2.1:1");
  EXPECT_EQ((*cluster)[2].to_string(), "[2001:db8::7]:7471");
}

TEST(ClusterFiles, WhatIsWrongIsToldWithItsLine) {
  const std::string longest(600, 'x');
  const std::pair<std::string, const char*> cases[] = {
      {"", "names no rank"},
      {"# nothing\n\n", "names no rank"},
      {"0 a:1\n0 b:1\n", "line 2: rank 0 is already in line 1"},
      {"0 a:1\n\n1 a:1\n", "line 3: a:1 is already in line 1"},
      {"0 a:1\n2 b:1\n", "line 2: rank 2, but rank 1 is missing"},
      {"1 a:1\n", "line 1: rank 1, but rank 0 is missing"},
      {"0 a:1\n1\n", "line 2: the address is missing"},
      {"a:1\n", "line 1: 'a:1' is not a rank"},
      {"-1 a:1\n", "line 1: '-1' is not a rank"},
      {"0x1 a:1\n", "is not a rank"},
      {"00 a:1\n", "leading zero"},
      {"4294967296 a:1\n", "is not a rank"},
      {"4096 a:1\n", "highest possible rank, 4095"},
      {"0 a:1 b:2\n", "something follows"},
      {"0 a:1 # comment\n", "something follows"},
      {"0 a\n", "line 1: 'a':"},
      {"0 a:65536\n", "line 1: 'a:65536':"},
      {"0 a:0\n", "port 0"},
      {"0 :1\n", "the host is missing"},
      {"0 2001:db8::7:1\n", "line 1: '2001:db8::7:1':"},
      {std::string("0 a\0:1\n", 7), "control character"},
      {"0 " + longest + ":1\n", "longer than 512"},
  };
  for (const auto& [text, expected] : cases) {
    std::string problem;
    const auto cluster = Cluster::parse(text, &problem);
    ASSERT_FALSE(cluster) << text;
    EXPECT_EQ(code_of(cluster), Code::kInvalidArgument);
    EXPECT_THAT(problem, HasSubstr(expected)) << text;
    EXPECT_FALSE(Cluster::parse(text));  // `problem` is optional
  }
  EXPECT_FALSE(Cluster::parse(std::string(Cluster::kMaxFileBytes + 1, '\n')));
}

TEST(ClusterFiles, KnowWhoMayTakePart) {
  const auto cluster = Cluster::parse("0 a:1\n1 b:1\n");
  EXPECT_TRUE(cluster->check_self(1));
  EXPECT_EQ(code_of(cluster->check_self(2)), Code::kInvalidArgument);
  EXPECT_DEATH(std::ignore = (*cluster)[2], "no such rank");
}

TEST(ClusterFiles, ComeBackFromTheirTextAndDigestsDiffer) {
  const auto a = Cluster::parse("1 b:1\n0 a:1\n");
  const auto b = Cluster::parse(a->to_text());
  EXPECT_EQ(a->digest(), b->digest());
  EXPECT_NE(a->digest(), Cluster::parse("0 b:1\n1 a:1\n")->digest());
  EXPECT_NE(a->digest(), Cluster::parse("0 a:1\n")->digest());
  const auto made = Cluster::of({{.host = "a", .port = 1}, {.host = "b", .port = 1}});
  EXPECT_EQ(made->digest(), a->digest());
  EXPECT_FALSE(Cluster::of({{.host = "a", .port = 0}}));
  EXPECT_FALSE(Cluster::of({{.host = "a", .port = 1}, {.host = "a", .port = 1}}));
  EXPECT_FALSE(Cluster::of({}));
}

TEST(ClusterFiles, AreReadFromDisk) {
  std::string problem;
  EXPECT_EQ(code_of(Cluster::load("/nonexistent/cluster", &problem)), code_of_errno(ENOENT));
  EXPECT_EQ(problem, "/nonexistent/cluster");
  const std::string path = ::testing::TempDir() + "rkv_cluster_file_test";
  std::ofstream(path) << "0 a:1\n";
  EXPECT_EQ(Cluster::load(path)->size(), 1U);
  std::ofstream(path) << std::string(Cluster::kMaxFileBytes + 1, '#');
  EXPECT_EQ(code_of(Cluster::load(path, &problem)), Code::kTooLarge);
  EXPECT_EQ(problem, path);
  EXPECT_EQ(code_of(Cluster::load("/", &problem)), code_of_errno(EISDIR));  // opens, cannot be read
  EXPECT_EQ(problem, "/");
  std::remove(path.c_str());
}

// Random texts, and valid ones with some characters changed. An accepted file comes back from its
// text.
TEST(ClusterFiles, AnyBytesAreAnAnswer) {
  Random random(1);
  int accepted = 0;
  const std::string_view alphabet("0123456789 \t\n\r:.[]#ab\0\x7f", 23);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    if (round % 2 == 0) {
      for (std::size_t i = random.below(40); i != 0; --i)
        text += alphabet[random.below(alphabet.size())];
    } else {
      text = "# two\n1 b.example:65535\n\n0 [2001:db8::7]:7471\n";
      for (std::size_t i = random.below(3); i != 0; --i)
        text[random.below(text.size())] = alphabet[random.below(alphabet.size())];
    }
    const auto cluster = Cluster::parse(text);
    if (!cluster) continue;
    ++accepted;
    for (std::uint32_t rank = 0; rank < cluster->size(); ++rank)
      EXPECT_NE((*cluster)[rank].port, 0);
    const auto again = Cluster::parse(cluster->to_text());
    ASSERT_TRUE(again) << text;
    ASSERT_EQ(again->digest(), cluster->digest()) << text;
  }
  EXPECT_GT(accepted, 500);
}

}  // namespace
}  // namespace rkv::rdma
