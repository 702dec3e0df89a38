// A client whose awaited version the marks do not cover yet: it looks again, then asks.
#include <gtest/gtest.h>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

using std::chrono::milliseconds;

constexpr GetOptions kSynced{.at_least = Durability::kSync};
constexpr GetOptions kLogged{.at_least = Durability::kWal};

class MarkWaitTest : public ClientTest {
 protected:
  // Versions of the scripted memory count from 1.1.
  void marks(std::uint64_t wal, std::uint64_t sync) {
    server_.memory->set_marks(Version::of(1, wal), Version::of(1, sync));
  }
};

// The thread that writes the marks is stopped between body and checksum, for as long as the
// operating system likes: no verdict on the server.
TEST_F(MarkWaitTest, AStoppedWriterOfTheMarksIsWaitedFor) {
  store("key", "value");
  marks(0, 0);
  ASSERT_TRUE(client().get("key"));
  server_.answer = [](const Request&) { return std::nullopt; };
  marks(1, 1);
  server_.memory->tear_marks();
  const Nanos goes_on_at = server_.clock.now() + 700 * kNanosPerMs;
  server_.before_read = [&] {
    if (server_.clock.now() >= goes_on_at) marks(1, 1);
  };
  const Status proved = client().ping_one_sided();
  ASSERT_TRUE(proved) << to_string(proved.error());
  EXPECT_GE(server_.clock.now(), goes_on_at);
  EXPECT_LT(server_.reads, 1000) << "it does not spin";
  EXPECT_EQ(server_.connects, 1);

  server_.before_read = nullptr;
  server_.memory->tear_marks();
  const Nanos start = server_.clock.now();
  const Status stopped = client().ping_one_sided(milliseconds(300));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kTimeout);
  EXPECT_EQ(server_.clock.now() - start, 300 * kNanosPerMs);
  EXPECT_EQ(server_.connects, 1) << "the connection is as good as before";
}

TEST_F(MarkWaitTest, WhereTheMarksStayTornTheServerIsAskedForThem) {
  store("key", "value");
  store("other", "value");
  marks(0, 0);
  ASSERT_TRUE(client().get("key"));
  server_.memory->tear_marks();
  server_.answer = [&](const Request& request) {
    EXPECT_EQ(request.opcode, Opcode::kFlush);
    const Version all = Version::of(1, server_.memory->sequence);
    return Response{.version = all, .wal_mark = all, .sync_mark = all};
  };
  const Nanos start = server_.clock.now();
  const auto got = client().get("key", kSynced);
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(server_.requests, 1);
  EXPECT_LT(server_.clock.now() - start, 100 * kNanosPerMs);
}

// A server that syncs by its timer: who insists on it makes it sync now.
TEST_F(MarkWaitTest, ASyncIsAskedForWhenNoneComes) {
  for (const bool many : {false, true}) {
    const std::string key = many ? "many" : "one";
    store(key, "value");
    const Version all = Version::of(1, server_.memory->sequence);
    marks(server_.memory->sequence, 0);
    server_.answer = [&](const Request& request) {
      EXPECT_EQ(request.opcode, Opcode::kFlush);
      return Response{.version = all, .wal_mark = all, .sync_mark = all};
    };
    const int requests = server_.requests;
    const Nanos start = server_.clock.now();
    const std::string_view keys[] = {key};
    const auto got = many ? client().multi_get(keys, kSynced).front() : client().get(key, kSynced);
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->durability, Durability::kSync);
    EXPECT_EQ(server_.requests, requests + 1);
    EXPECT_LT(server_.clock.now() - start, 50 * kNanosPerMs);
  }
}

// A disk in trouble: the refusal is not the answer to the GET.
TEST_F(MarkWaitTest, ARefusedSyncIsAskedForAgain) {
  store("key", "value");
  marks(1, 0);
  server_.answer = [&](const Request&) {
    if (server_.requests < 3) return Response{.code = static_cast<std::uint8_t>(Code::kIo)};
    const Version all = Version::of(1, 1);
    return Response{.version = all, .wal_mark = all, .sync_mark = all};
  };
  const auto got = client().get("key", kSynced);
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(server_.requests, 3);
}

// For the write-ahead log, which is written without being asked, a sync would be too much.
TEST_F(MarkWaitTest, OfTheLogOnlyTheMarkIsAskedFor) {
  store("key", "value");
  marks(0, 0);
  ASSERT_TRUE(client().ping());
  server_.memory->tear_marks();
  server_.answer = [&](const Request& request) {
    EXPECT_EQ(request.opcode, Opcode::kPing);
    return Response{.wal_mark = Version::of(1, 1)};
  };
  const auto got = client().get("key", kLogged);
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->durability, Durability::kWal);
}

}  // namespace
}  // namespace rkv
