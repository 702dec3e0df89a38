// Which server is next, whatever servers say.
#include "client/link/servers.h"

#include <gtest/gtest.h>

#include <set>

namespace rkv::client {
namespace {

TEST(Servers, AListNamesAddressesOnce) {
  for (const char* const good :
       {"a:1", "anything at all", "", "a:1,b:2", "[fe80::1]:1,10.0.0.1:7471"})
    EXPECT_TRUE(Servers::check(good)) << good;
  for (const char* const bad :
       {"a:1,", ",a:1", "a:1,b", "a:1,a:1", "a:1,b:0", "a:1, b:2", "a:1,b:2,a:1"})
    EXPECT_FALSE(Servers::check(bad)) << bad;
}

TEST(Servers, OneServerHasNoOther) {
  Servers servers("a:1");
  EXPECT_FALSE(servers.are_several());
  EXPECT_FALSE(servers.failed("unreachable", ""));
  EXPECT_EQ(servers.current(), "a:1");
}

// The last attempt before a deadline has 50 ms.
TEST(Servers, AnAttemptThatWasCutDoesNotHideWhatOneBeforeHasSaid) {
  Servers servers("a:1,b:2");
  (void)servers.failed("of another group", "");
  (void)servers.failed("no answer in time", "", true);
  (void)servers.failed("no answer in time", "", true);
  EXPECT_EQ(servers.tried(), "a:1: of another group; b:2: no answer in time");
  (void)servers.failed("unreachable", "");
  (void)servers.failed("no answer in time", "");
  EXPECT_EQ(servers.tried(), "a:1: no answer in time; b:2: unreachable");
}

TEST(Servers, AllAreTriedBeforeAWait) {
  Servers servers("a:1,b:2,c:3");
  EXPECT_TRUE(servers.failed("unreachable", ""));
  EXPECT_EQ(servers.current(), "b:2");
  EXPECT_TRUE(servers.failed("busy", ""));
  EXPECT_EQ(servers.current(), "c:3");
  EXPECT_FALSE(servers.failed("unreachable", "")) << "each has been tried";
  EXPECT_EQ(servers.current(), "a:1");
  EXPECT_EQ(servers.tried(), "a:1: unreachable; b:2: busy; c:3: unreachable");
  servers.waited();
  EXPECT_TRUE(servers.failed("unreachable", ""));
  servers.connected();
  EXPECT_EQ(servers.tried(), "");
}

TEST(Servers, ARedirectionIsFollowedAtOnceAlsoBeyondTheList) {
  Servers servers("a:1");
  EXPECT_TRUE(servers.failed("a backup of", "x:9"));
  EXPECT_EQ(servers.current(), "x:9");
  EXPECT_EQ(servers.tried(), "a:1: a backup of x:9");
  Servers three("a:1,b:2,c:3");
  EXPECT_TRUE(three.failed("a backup of", "c:3"));
  EXPECT_EQ(three.current(), "c:3");
}

TEST(Servers, ThoseThatDirectToEachOtherCostABoundedNumberOfAttempts) {
  Servers servers("a:1,b:2");
  int at_once = 0;
  while (servers.failed("a backup of", servers.current() == "a:1" ? "b:2" : "a:1")) {
    ASSERT_LT(++at_once, 10);
  }
  EXPECT_GE(at_once, 1);
  servers.waited();
  EXPECT_TRUE(servers.failed("a backup of", servers.current() == "a:1" ? "b:2" : "a:1"));
}

// A server that names itself is a backup that knows nothing.
TEST(Servers, OneThatNamesItselfIsLeft) {
  Servers servers("a:1,b:2");
  EXPECT_TRUE(servers.failed("a backup of", "a:1"));
  EXPECT_EQ(servers.current(), "b:2");
}

TEST(Servers, WhatIsLearnedIsBoundedAndTheListStays) {
  Servers servers("a:1,b:2");
  for (int i = 0; i < 1000; ++i) {
    (void)servers.failed("a backup of", "liar:" + std::to_string(i + 1));
    servers.waited();
  }
  std::set<std::string> known;
  for (int i = 0; i < 20; ++i) {
    known.insert(servers.current());
    (void)servers.failed("unreachable", "");
    servers.waited();
  }
  EXPECT_EQ(known.size(), 2 + Servers::kMostLearned);
  EXPECT_TRUE(known.contains("a:1") && known.contains("b:2"));
}

TEST(Servers, OneThatIsNotBelievedIsLeft) {
  Servers servers("a:1,b:2");
  servers.distrusted();
  EXPECT_EQ(servers.current(), "b:2");
}

}  // namespace
}  // namespace rkv::client
