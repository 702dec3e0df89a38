// Files stop taking bytes at a random length, again and again, while writes go on: every file the
// database writes gets its turn to be the one that fails.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <map>

#include "common/log.h"
#include "server/persistence/applier.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

void limit_files(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
}

using Contents = std::map<std::string, std::string>;

Contents read_all(StorageEngine& engine) {
  Contents found;
  EXPECT_TRUE(engine.read_from({}, [&](const RecordFields& record) {
    found.emplace(as_text(record.key), as_text(record.value));
    return true;
  }));
  return found;
}

TEST(DiskFailure, NothingAcceptedIsLostWhereverItFails) {
  std::signal(SIGXFSZ, SIG_IGN);
  set_log_level(LogLevel::kOff);  // some hundred expected lines
  Random random(test::test_seed());
  const test::TempDir dir;
  auto engine = StorageEngine::open(dir.path());
  ASSERT_TRUE(engine);
  auto log = CommitLog::create(CommitLog::kMinCapacityBytes);
  ASSERT_TRUE(log);
  ManualClock clock;
  const ApplierOptions options;
  Applier applier(**log, **engine, clock, options, [] {});
  Contents expected;
  int failures = 0;
  for (int round = 0; round < 40; ++round) {
    limit_files(random.below(3) == 0 ? random.below(200) : random.below(150'000));
    for (int i = 0; i < 30; ++i) {
      const std::string key = "key-" + std::to_string(random.below(40));
      const std::string value(random.below(6000), static_cast<char>('a' + round % 26));
      const auto room = (*log)->try_reserve(key.size(), value.size());
      if (room) {
        const auto ticket = (*log)->begin(*room);
        (*log)->finish(ticket, CommitLog::Kind::kPut,
                       {.version = Version::of(1, ticket.sequence),
                        .key = as_bytes(key),
                        .value = as_bytes(value)});
        expected[key] = value;
      }
      if (random.below(4) == 0) applier.request_sync((*log)->last_begun());
      clock.advance(static_cast<Nanos>(random.below(500)) * kNanosPerMs);
      applier.step();
    }
    if ((*log)->failed()) ++failures;
    limit_files(RLIM_INFINITY);
    clock.advance(options.retry_ms_max * kNanosPerMs);
    applier.request_sync((*log)->last_begun());
    applier.step();
    ASSERT_FALSE((*log)->failed());
    ASSERT_EQ((*log)->sync_mark(), (*log)->last_begun());
    ASSERT_EQ(read_all(**engine), expected);
  }
  EXPECT_GT(failures, 5);
  ASSERT_TRUE((*engine)->close());
  const auto again = StorageEngine::open(dir.path());
  ASSERT_TRUE(again);
  EXPECT_EQ(read_all(**again), expected);
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace rkv::server
