// A server that drops the records used least recently is told which keys are READ.
#include <array>
#include <vector>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

class ReportTest : public ClientTest {
 protected:
  explicit ReportTest(bool wanted = true) {
    server_.memory->reports_reads = wanted;
    server_.memory->write_root();
    server_.answer = [this](const Request& request) -> std::optional<Response> {
      EXPECT_EQ(request.opcode, Opcode::kGet);
      reports_.push_back(request.value.size() / sizeof(std::uint64_t));
      for (std::size_t i = 0; i < reports_.back(); ++i)
        hashes_.push_back(load_le<std::uint64_t>(request.value.data() + i * sizeof(std::uint64_t)));
      Response found;
      found.opcode = Opcode::kGet;
      found.value = as_bytes("value");
      found.version = Version::of(1, 1);
      return found;
    };
    store("key", "value");
    store("other", "value");
  }
  void get(std::string_view key, int times) {
    for (int i = 0; i < times; ++i)
      ASSERT_TRUE(client().get(key));
  }

  std::vector<std::size_t> reports_;  // one for each request: how many hashes it had
  std::vector<std::uint64_t> hashes_;
};

class NoReportTest : public ReportTest {
 protected:
  NoReportTest() : ReportTest(false) {}
};

constexpr int kUntilDue = kMaxUsedHashes;

TEST_F(ReportTest, GoesWithTheGetAfterEach64Reads) {
  get("key", kUntilDue);
  EXPECT_EQ(client().stats().two_sided_gets, 0U);
  get("other", 1);
  EXPECT_EQ(reports_, std::vector<std::size_t>{kUntilDue});
  EXPECT_EQ(hashes_, std::vector<std::uint64_t>(kUntilDue, hashes_.front()));
  get("other", kUntilDue);
  EXPECT_EQ(reports_.size(), 1U);
  get("key", 1);
  EXPECT_EQ(reports_, std::vector<std::size_t>(2, kUntilDue));
  EXPECT_NE(hashes_.front(), hashes_.back());
  EXPECT_EQ(client().stats().gets, client().stats().one_sided_gets + 2);
}

TEST_F(ReportTest, GoesWithTheGetAfterEach64ReadsThatAreOverAtOnce) {
  server_.reads_at_once = true;
  get("key", 3 * (kUntilDue + 1));
  EXPECT_EQ(reports_, std::vector<std::size_t>(3, kUntilDue));
}

TEST_F(ReportTest, GoesWithOneGetOfABatch) {
  for (const bool at_once : {false, true}) {
    server_.reads_at_once = at_once;
    get("key", kUntilDue - static_cast<int>(client().stats().one_sided_gets % kUntilDue));
    reports_.clear();
    const std::vector<std::string_view> keys(100, "key");
    std::size_t found = 0;
    client().multi_get_into(keys, [&](std::size_t, const Result<ValueView>& got) {
      found += got && got->value == "value" ? 1 : 0;
    });
    EXPECT_EQ(found, keys.size());
    EXPECT_LE(reports_.size(), 2U);
    ASSERT_GE(reports_.size(), 1U);
    EXPECT_EQ(reports_.front(), std::size_t{kUntilDue});
  }
}

TEST_F(ReportTest, MissesAreNotReported) {
  for (int i = 0; i < 3 * kUntilDue; ++i)
    EXPECT_EQ(client().get("absent").error().code, Code::kNotFound);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(NoReportTest, NobodyIsToldWhatHeDoesNotWantToKnow) {
  get("key", 3 * kUntilDue);
  server_.reads_at_once = true;
  get("key", 3 * kUntilDue);
  EXPECT_TRUE(reports_.empty());
}

}  // namespace
}  // namespace rkv
