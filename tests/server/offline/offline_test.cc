// The progress reports of --verify and --restore.
#include "server/offline/offline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/log.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::TempDir;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::uint64_t kRecords = 3000;

// Every look at it is a long time after the one before.
class SlowMachine final : public Clock {
 public:
  Nanos now() const override { return now_ += 6000 * kNanosPerMs; }

 private:
  mutable Nanos now_ = 1;
};

class OfflineProgress : public ::testing::Test {
 protected:
  OfflineProgress() {
    auto engine = *StorageEngine::open(data_.path());
    EXPECT_TRUE(engine->claim_boot());
    for (std::uint64_t i = 1; i <= kRecords; ++i) {
      const std::string key = fmt::format("key{}", i);
      engine->add_put(
          {.version = Version::of(1, i), .key = as_bytes(key), .value = as_bytes("value")});
    }
    EXPECT_TRUE(engine->write_batch());
    EXPECT_TRUE(engine->close());
    engine = *StorageEngine::open(data_.path());  // what is in the log goes to a table
    EXPECT_TRUE(engine->close());
    set_event_sink([this](const LogEvent& event) {
      if (event.name == "progress") said_.emplace_back(event.text);
    });
  }
  ~OfflineProgress() override {
    set_event_sink([](const LogEvent& event) {
      std::fprintf(stderr, "%s\n", std::string(event.text).c_str());
    });
  }
  void verify(const Clock& clock) {
    Options options;
    options.data_dir = data_.path();
    const auto failure = verify_data(options, print_, clock);
    EXPECT_FALSE(failure) << failure->sentence;
  }

  TempDir data_;
  TempDir target_;
  const Print print_ = [](const std::string& /*line*/) {};
  std::vector<std::string> said_;
};

TEST_F(OfflineProgress, OfAShortVerificationNothingIsSaid) {
  verify(SteadyClock());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(OfflineProgress, OfALongVerificationTablesAndRecordsAreTold) {
  verify(SlowMachine());
  EXPECT_THAT(said_, Contains(StartsWith("checking tables: ")));
  EXPECT_THAT(said_, Contains(HasSubstr(" MiB/s")));
  EXPECT_THAT(said_, Contains(StartsWith("checking records: 1024 of about 3000 records, ")));
  EXPECT_THAT(said_, Contains(StartsWith("checking records: 2048 of about 3000 records, ")));
}

// Both looks, at the backup and at the copy, and the copying between them.
TEST_F(OfflineProgress, ALongRestorationTellsOfCopyingToo) {
  Options options;
  options.restore = data_.path();
  options.data_dir = target_.path();
  const auto failure = restore_data(options, print_, SlowMachine());
  EXPECT_FALSE(failure) << failure->sentence;
  EXPECT_THAT(said_, Contains(StartsWith("copying: ")));
  EXPECT_THAT(said_, Contains(StartsWith("checking records: 1024 of")).Times(2));
}

// On a terminal one line that is rewritten, and that ends before anything else is printed.
TEST_F(OfflineProgress, OnATerminalItIsARewrittenLine) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal) | unlockpt(terminal), 0);
  const int side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(side, 0);
  const int before = dup(STDERR_FILENO);
  dup2(side, STDERR_FILENO);
  verify(SlowMachine());
  dup2(before, STDERR_FILENO);
  close(before);
  close(side);
  std::string shown;
  std::string part(4096, '\0');
  for (ssize_t length = 0; (length = read(terminal, part.data(), part.size())) > 0;)
    shown.append(part, 0, static_cast<std::size_t>(length));
  close(terminal);
  EXPECT_THAT(shown, HasSubstr("\rchecking records: 1024 of about 3000 records, "));
  EXPECT_THAT(shown, HasSubstr("\rchecking records: 2048 of about 3000 records, "));
  EXPECT_TRUE(shown.ends_with("\n")) << shown;
  EXPECT_THAT(said_, IsEmpty()) << "and in the log nothing";
}

}  // namespace
}  // namespace rkv::server
