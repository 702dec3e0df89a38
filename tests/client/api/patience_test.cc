// How long a client goes on: connecting, back-offs and deadlines, answers that say "later".
#include <gtest/gtest.h>

#include "tests/client/client_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv {
namespace {

using std::chrono::milliseconds;

class PatienceTest : public ClientTest {
 protected:
  // The server is away until then.
  void return_at(Nanos when) {
    fail_connects(Code::kUnreachable, 1000);
    server_.before_connect = [this, when] {
      if (server_.clock.now() >= when) server_.connect_errors.clear();
    };
  }
};

// ---- connecting

TEST_F(PatienceTest, ConnectIsRepeatedAsOperationsAre) {
  return_at(server_.clock.now() + 600 * kNanosPerMs);
  EXPECT_TRUE(connect());
  EXPECT_GT(server_.connects, 3);
  EXPECT_LT(server_.connects, 30) << "it backs off";
}

TEST_F(PatienceTest, ConnectEndsByItsTimeout) {
  return_at(server_.clock.now() + 3600 * kNanosPerSecond);
  const Nanos start = server_.clock.now();
  EXPECT_EQ(connect().error().code, Code::kUnreachable);
  EXPECT_LE(server_.clock.now() - start, 1000 * kNanosPerMs);
}

TEST_F(PatienceTest, ConnectIsNotRepeatedWhereThatWouldNotHelpOrIsNotWanted) {
  fail_connects(Code::kPermission, 1);
  EXPECT_EQ(connect().error().code, Code::kPermission);
  options_.repeat_connect = false;
  fail_connects(Code::kUnreachable, 1);
  EXPECT_EQ(connect().error().code, Code::kUnreachable);
  EXPECT_EQ(server_.connects, 2);
  EXPECT_EQ(server_.clock.now(), ManualClock{}.now());
}

// ---- deadlines

// Whatever the back-off has come to: an operation does not give up long before its deadline, so
// that a server which is back by then is not missed.
TEST_F(PatienceTest, TheLastAttemptIsMadeShortlyBeforeTheDeadline) {
  store("key", "value");
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(client().get("key"));
    return_at(server_.clock.now() + 600 * kNanosPerMs);
    server_.connection->abort();
    const auto got = client().get("key", milliseconds(700));
    ASSERT_TRUE(got) << "round " << round << ": " << to_string(got.error());
  }
}

TEST_F(PatienceTest, NoOperationEndsAfterItsDeadline) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  return_at(server_.clock.now() + 3600 * kNanosPerSecond);
  server_.connection->abort();
  for (int round = 0; round < 20; ++round) {
    const Nanos start = server_.clock.now();
    EXPECT_FALSE(client().get("key", milliseconds(700)));
    EXPECT_LE(server_.clock.now() - start, 700 * kNanosPerMs);
    EXPECT_GE(server_.clock.now() - start, 600 * kNanosPerMs);
  }
}

// READs that are over at once take their time too, where there are many or the machine is busy.
TEST_F(PatienceTest, ReadingTheMapEndsByTheDeadline) {
  server_.reads_at_once = true;
  server_.before_read = [&] { server_.clock.advance(400 * kNanosPerMs); };
  const Nanos start = server_.clock.now();
  EXPECT_EQ(connect().error().code, Code::kTimeout);
  EXPECT_LE(server_.clock.now() - start, 1200 * kNanosPerMs);
}

// Shorter deadlines than back-offs do not make a storm of attempts.
TEST_F(PatienceTest, ShortTimeoutsKeepToTheBackOff) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  return_at(server_.clock.now() + 3600 * kNanosPerSecond);
  server_.connection->abort();
  const int before = server_.connects;
  const Nanos start = server_.clock.now();
  while (server_.clock.now() - start < 10 * kNanosPerSecond) {
    EXPECT_FALSE(client().get("key", milliseconds(5)));
    server_.clock.advance(kNanosPerMs);
  }
  EXPECT_LE(server_.connects - before, 10 * 20 + 10);
}

// ---- answers that say "later"

// A server whose memory is full has no room for a large value that it is to read from its disk.
TEST_F(PatienceTest, AGetIsRepeatedWhileTheServerHasNoMemory) {
  spill("key");
  const Nanos room_at = server_.clock.now() + 300 * kNanosPerMs;
  server_.answer = [&](const Request&) {
    if (server_.clock.now() >= room_at) {
      return Response{.version = Version::of(1, 1), .value = as_bytes("value")};
    }
    return Response{.code = static_cast<std::uint8_t>(Code::kOutOfMemory),
                    .value = as_bytes("no room")};
  };
  const auto got = client().get("key");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "value");
  EXPECT_GT(client().stats().busy_answers, 2U);
}

TEST_F(PatienceTest, ManyGetsAreRepeatedWhileTheServerHasNoMemory) {
  spill("key");
  const Nanos room_at = server_.clock.now() + 300 * kNanosPerMs;
  server_.answer = [&](const Request&) {
    if (server_.clock.now() >= room_at) {
      return Response{.version = Version::of(1, 1), .value = as_bytes("value")};
    }
    return Response{.code = static_cast<std::uint8_t>(Code::kOutOfMemory)};
  };
  const std::string_view keys[] = {"key"};
  const auto got = client().multi_get(keys);
  ASSERT_TRUE(got.front()) << to_string(got.front().error());
}

// For a write it is the last word: the store is full.
TEST_F(PatienceTest, APutIsToldAtOnceThatTheStoreIsFull) {
  server_.answer = [](const Request&) {
    return Response{.code = static_cast<std::uint8_t>(Code::kOutOfMemory)};
  };
  client();
  const Nanos start = server_.clock.now();
  EXPECT_EQ(client().put("key", "value").error().code, Code::kOutOfMemory);
  EXPECT_EQ(server_.clock.now(), start);
}

TEST_F(PatienceTest, ABusyServerIsAskedOnceMoreShortlyBeforeTheDeadline) {
  const Nanos free_at = server_.clock.now() + 960 * kNanosPerMs;
  server_.answer = [&](const Request&) {
    if (server_.clock.now() >= free_at) return Response{.version = Version::of(1, 1)};
    Response later = busy();
    later.retry_after_ms = 400;
    return later;
  };
  EXPECT_TRUE(client().put("key", "value"));
}

}  // namespace
}  // namespace rkv
