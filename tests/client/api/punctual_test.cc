// The deadlines that a client sends to a server that begins no request late.
#include <chrono>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

// A server that begins no write after its time, by its clock.
class PunctualServer : public ClientTest {
 protected:
  PunctualServer() {
    server_.answer = [this](const Request& request) {
      const std::uint64_t now_us = us();
      by_us_.push_back(request.begin_by_us);
      server_.clock.advance(slowness_);
      Response response{.server_us = now_us};
      if (request.begin_by_us < us()) response.code = static_cast<std::uint8_t>(Code::kTimeout);
      return response;
    };
  }
  std::uint64_t us() const { return static_cast<std::uint64_t>(server_.clock.now() / kNanosPerUs); }

  std::vector<std::uint64_t> by_us_;  // of each request
  Nanos slowness_ = 0;
};

TEST_F(PunctualServer, AWriteSaysUntilWhenItMayBegin) {
  client();
  ASSERT_TRUE(client().put("key", "value", std::chrono::milliseconds(500)));
  EXPECT_GE(by_us_.at(0), us() + 490'000U);
  EXPECT_LE(by_us_.at(0), us() + 500'000U);
  // For so long that the field cannot say it.
  ASSERT_TRUE(client().put("key", "value", std::chrono::milliseconds::max()));
  EXPECT_EQ(by_us_.at(1), 0U);
}

// The server's clock was learnt so long ago that its possible drift is longer than the time-out.
TEST_F(PunctualServer, AfterALongSilenceItIsAskedTwice) {
  client();
  server_.clock.advance(1000 * kNanosPerSecond);
  EXPECT_TRUE(client().put("key", "value"));
  EXPECT_EQ(by_us_.size(), 2U);
  EXPECT_TRUE(client().put("key", "value"));
  EXPECT_EQ(by_us_.size(), 3U) << "the answer has reported the time";
  server_.clock.advance(1000 * kNanosPerSecond);
  const KeyValue items[] = {{"a", "1"}, {"b", "2"}};
  for (const auto& put : client().multi_put(items))
    EXPECT_TRUE(put);
}

// Refused for being late, with no time left: it was not made, and never will be.
TEST_F(PunctualServer, ALateWriteCertainlyDidNotHappen) {
  client();
  slowness_ = 600 * kNanosPerMs;
  const auto put = client().put("key", "value", std::chrono::milliseconds(500));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTimeout);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(by_us_.size(), 1U);
}

}  // namespace
}  // namespace rkv
