// An engine has at most one pipeline of each kind at a time (FLOW-3), and gets its buffers back
// unused, however the calls end.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/engine/get_pipeline.h"
#include "client/engine/write_pipeline.h"
#include "tests/client/answering_transport.h"
#include "tests/client/client_fixture.h"

namespace rkv::client {
namespace {

class OnePipeline : public ::testing::Test {
 protected:
  GetPipeline get_pipeline() { return {*engine_, gets_, deadline_}; }
  WritePipeline write_pipeline() { return {*engine_, writes_, deadline_}; }

  static void visit_get(void*, std::size_t, const Result<ValueView>&) {}
  static void visit_put(void*, std::size_t, const Result<std::uint64_t>&) {}

  testing::FakeServer server_;
  const Deadline deadline_ = Deadline::after_ms(server_.clock, 1000);
  std::unique_ptr<Engine> engine_ = std::move(*Engine::create_unconnected(
      {}, nullptr, std::make_shared<testing::AnsweringTransport>(server_), &server_.clock,
      nullptr));
  KeysFeed gets_{{}, Durability::kMemory, visit_get, nullptr};
  ItemsFeed writes_{{}, Durability::kDefault, deadline_, visit_put, nullptr};
};

constexpr const char* kSecond = "two pipelines of one kind on an engine";

TEST_F(OnePipeline, ASecondOfItsKindEndsTheProcess) {
  const GetPipeline gets = get_pipeline();
  EXPECT_DEATH((void)get_pipeline(), kSecond);
  const WritePipeline writes = write_pipeline();
  EXPECT_DEATH((void)write_pipeline(), kSecond);
}

TEST_F(OnePipeline, AnotherOneFollowsIt) {
  for (int i = 0; i < 3; ++i) {
    get_pipeline().run();
    write_pipeline().run();
  }
}

TEST_F(OnePipeline, ItIsOneWhereverItIsMoved) {
  {
    GetPipeline gets = get_pipeline();
    const GetPipeline moved = std::move(gets);
    EXPECT_DEATH((void)get_pipeline(), kSecond);
  }
  get_pipeline().run();
}

// ---- calls that follow failed ones

class ReturnedBuffers : public ClientTest, public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr int kInFlight = 4;
  static constexpr auto kTime = std::chrono::milliseconds(20);

  ReturnedBuffers() {
    options_.reads_in_flight = options_.requests_in_flight = kInFlight;
    server_.credits = kInFlight;
    for (int i = 0; i < 40; ++i)
      keys_.push_back("key " + std::to_string(i));
    for (const std::string& key : keys_) {
      store(key, key);
      views_.push_back(key);
      items_.push_back({.key = key, .value = items_.size() % 4 == 0 ? large_ : key});
    }
    answer();
  }
  void answer() {
    server_.max_packed = GetParam() ? kMaxPacked : 0;
    server_.answer = [this](const Request&) {
      return Response{.version = Version::of(1, ++sequence_)};
    };
  }
  // To packs, the fake server answers that each write must be sent alone.
  void say_nothing() {
    server_.answer = [](const Request&) { return std::nullopt; };
  }
  // Puts all items. Each has one result.
  std::vector<Result<std::uint64_t>> put_all(std::chrono::milliseconds timeout = {}) {
    std::vector<Result<std::uint64_t>> results(items_.size());
    std::vector<int> visits(items_.size());
    client().multi_put_each(
        items_,
        [&](std::size_t i, const Result<std::uint64_t>& result) {
          results[i] = result;
          ++visits[i];
        },
        timeout);
    EXPECT_EQ(visits, std::vector<int>(items_.size(), 1));
    return results;
  }
  void expect_all_put() {
    for (const auto& put : put_all())
      EXPECT_TRUE(put) << to_string(put.error());
  }
  void expect_all_got() {
    for (const auto& got : client().multi_get(views_))
      EXPECT_TRUE(got) << to_string(got.error());
  }
  // Puts all items, of which none succeeds. Returns how many may have happened.
  int unknown_puts() {
    int unknown = 0;
    for (const auto& put : put_all(kTime)) {
      EXPECT_FALSE(put);
      if (!put && put.error().write == WriteOutcome::kMayHaveHappened) ++unknown;
    }
    return unknown;
  }

  std::vector<std::string> keys_;
  std::vector<std::string_view> views_;
  std::vector<KeyValue> items_;
  const std::string large_ = std::string(kMaxInlineBytes + 1, 'v');
  std::uint64_t sequence_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Packs, ReturnedBuffers, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "InPacks" : "Alone"; });

TEST_P(ReturnedBuffers, NoSlotIsInUseAfterPutsThatTimedOut) {
  expect_all_put();
  for (int i = 0; i < 3; ++i) {
    say_nothing();
    EXPECT_GE(unknown_puts(), kInFlight) << "each slot was used";
    answer();
    expect_all_put();
  }
}

TEST_P(ReturnedBuffers, NoSlotIsInUseAfterALossWithoutAReconnection) {
  for (int i = 0; i < 3; ++i) {
    expect_all_put();
    server_.die_at_send = 1;
    fail_connects(Code::kUnreachable, 1000);
    (void)put_all(kTime);
    server_.connect_errors.clear();
  }
  expect_all_put();
  say_nothing();
  EXPECT_GE(unknown_puts(), kInFlight) << "each slot was used";
}

TEST_P(ReturnedBuffers, NoLaneIsInUseAfterGetsThatFailed) {
  for (int i = 0; i < 3; ++i) {
    expect_all_got();
    if (GetParam()) {
      server_.reads_hang = true;
    } else {
      server_.die_at_read = 3;
      fail_connects(Code::kUnreachable, 1000);
    }
    const auto results = client().multi_get(views_, kTime);
    ASSERT_FALSE(results.back());
    server_.reads_hang = false;
    server_.connect_errors.clear();
  }
  expect_all_got();
  server_.reads = 0;
  server_.reads_hang = true;
  (void)client().multi_get(views_, kTime);
  EXPECT_GE(server_.reads, kInFlight) << "each lane was used";
}

}  // namespace
}  // namespace rkv::client
