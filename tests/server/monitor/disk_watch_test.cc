#include "server/monitor/disk_watch.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "rkv/log.h"

namespace rkv::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DiskWatchTest : public ::testing::Test {
 protected:
  DiskWatchTest() {
    set_log_sink([this](LogLevel, std::string_view text) { lines_.emplace_back(text); });
  }
  ~DiskWatchTest() override { set_log_sink(nullptr); }

  DiskWatch watch_;
  LogFacts log_;
  std::vector<std::string> lines_;
};

TEST_F(DiskWatchTest, SaysNothingOfADiskThatAnswers) {
  watch_.look(log_);
  watch_.look(log_);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(DiskWatchTest, SaysOnceThatTheDiskHangsAndOnceThatItAnswers) {
  log_.disk_hangs = true;
  log_.disk_failed_ms = 5000;
  watch_.look(log_);
  watch_.look(log_);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("has taken 5000 ms so far")));
  log_.disk_hangs = false;
  watch_.look(log_);
  watch_.look(log_);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("ms so far"), HasSubstr("the disk answers again")));
}

}  // namespace
}  // namespace rkv::server
