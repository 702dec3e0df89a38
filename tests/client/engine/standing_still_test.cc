// A primary that stands still while its clients wait for it: what was asked is asked of the next
// one within 3 s, whatever the deadline (LINK-6). One that lives is waited for.
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "rkv/cluster.h"
#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

constexpr Nanos kMilli = kNanosPerMs;
constexpr std::chrono::milliseconds kLongTimeout{20'000};
// The patience and what the last look before the stop may have shown. The attempts to connect take
// no time here.
constexpr Nanos kMostUntilServed = 1300 * kMilli;

// The behaviour of READs from a server while its processes stand still.
enum class WhileStill : std::uint8_t { kAtOnce, kLand, kHang };

class StandingStill : public ClientTest, public ::testing::WithParamInterface<WhileStill> {
 protected:
  StandingStill() {
    server_.in_group = true;
    server_.reads_at_once = GetParam() == WhileStill::kAtOnce;
    server_.remembers = true;
    options_.server = "a:1,b:2";
    server_.answer = [this](const Request& request) -> std::optional<Response> {
      if (stands_still_) return std::nullopt;
      ++answered_;
      if (request.opcode == Opcode::kGet)
        return Response{.code = static_cast<std::uint8_t>(Code::kNotFound)};
      return Response{.version = Version::of(1, 7), .value = value_};
    };
    server_.before_connect = [this] { stand_still(false); };  // the next one is well
  }
  void stand_still(bool stands) {
    stands_still_ = stands;
    server_.ticks = server_.answers_pings = !stands;
    server_.reads_hang = stands && GetParam() == WhileStill::kHang;
  }
  // Runs the operation on a server that stops as soon as it has begun.
  void expect_served(const std::string& what, const std::function<bool()>& operation) {
    client_.reset();
    server_.called.clear();
    stand_still(false);
    ASSERT_TRUE(client().put("key", "value")) << what;
    const Nanos before = server_.clock.now();
    stand_still(true);
    EXPECT_TRUE(operation()) << what;
    EXPECT_LE(server_.clock.now() - before, kMostUntilServed) << what;
    EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "b:2"})) << what;
  }

  bool stands_still_ = false;
  int answered_ = 0;
  std::array<std::byte, 8> number_{};
  Bytes value_{};
};

INSTANTIATE_TEST_SUITE_P(Reads, StandingStill,
                         ::testing::Values(WhileStill::kAtOnce, WhileStill::kLand,
                                           WhileStill::kHang),
                         [](const auto& of) {
                           return std::string(of.param == WhileStill::kAtOnce ? "AtOnce"
                                              : of.param == WhileStill::kLand ? "Land"
                                                                              : "Hang");
                         });

TEST_P(StandingStill, IsNotWaitedForByWrites) {
  const std::vector<KeyValue> items = {{.key = "a", .value = "v"}, {.key = "b", .value = "w"}};
  expect_served("put",
                [&] { return client().put_with("k", "v", {.timeout = kLongTimeout}).has_value(); });
  expect_served("remove",
                [&] { return client().remove("k", {.timeout = kLongTimeout}).has_value(); });
  expect_served("multi_put", [&] {
    const auto results = client().multi_put(items, {.timeout = kLongTimeout});
    return results[0].has_value() && results[1].has_value();
  });
  const std::string large(std::size_t{1} << 20, 'x');
  expect_served("a large put", [&] {
    return client().put_with("k", large, {.timeout = kLongTimeout}).has_value();
  });
  value_ = number_;
  expect_served("incr",
                [&] { return client().incr("n", 1, {.timeout = kLongTimeout}).has_value(); });
}

TEST_P(StandingStill, IsNotWaitedForByWhatChangesNothing) {
  store("key", "value");
  const auto is_missing = [](const auto& got) { return got.error().code == Code::kNotFound; };
  const std::vector<std::string_view> keys = {"missing", "too"};
  expect_served("get of a missing key",
                [&] { return is_missing(client().get("missing", {.timeout = kLongTimeout})); });
  expect_served("multi_get", [&] {
    const auto results = client().multi_get(keys, {.timeout = kLongTimeout});
    return is_missing(results[0]) && is_missing(results[1]);
  });
  expect_served("ping", [&] { return client().ping(kLongTimeout).has_value(); });
  expect_served("flush", [&] { return client().flush(kLongTimeout).has_value(); });
  auto cluster = Cluster::connect(*ShardMap::parse("a:1"), options_,
                                  std::make_shared<AnsweringTransport>(server_), &server_.clock);
  ASSERT_TRUE(cluster);
  const Nanos before = server_.clock.now();
  stand_still(true);
  EXPECT_TRUE(is_missing(cluster->multi_get(keys, {.timeout = kLongTimeout}).front()))
      << "several flows";
  EXPECT_LE(server_.clock.now() - before, kMostUntilServed);
}

class HangingReads : public StandingStill {};

INSTANTIATE_TEST_SUITE_P(Reads, HangingReads, ::testing::Values(WhileStill::kHang));

TEST_P(HangingReads, AreNotWaitedFor) {
  store("key", "value");
  expect_served("get", [&] { return client().get("key", {.timeout = kLongTimeout}).has_value(); });
  const std::vector<std::string_view> keys = {"key", "key"};
  expect_served("multi_get", [&] {
    return client().multi_get(keys, {.timeout = kLongTimeout}).front().has_value();
  });
}

// The outcome is asked for: the write is made once.
TEST_P(StandingStill, AWriteThatItHasMadeIsNotMadeAgain) {
  value_ = number_;
  ASSERT_TRUE(client().put("key", "value"));
  server_.latency = 60'000 * kMilli;  // made at once, and answered too late
  server_.answers_apart = true;
  server_.before_connect = [this] {
    server_.latency = 0;
    stand_still(false);
  };
  const auto made = [this] { return answered_; };
  const int before = made();
  server_.ticks = server_.answers_pings = false;
  ASSERT_TRUE(client().incr("n", 1, {.timeout = kLongTimeout}));
  EXPECT_EQ(made(), before + 1);
  EXPECT_EQ(server_.questions.size(), 1U);
  EXPECT_EQ(client().stats().outcomes_recovered, 1U);
}

// A flush of a minute by a primary that shows its tick: nothing is broken off, and nobody pings.
TEST_P(StandingStill, OneThatLivesIsWaitedForHoweverLongItTakes) {
  ASSERT_TRUE(client().put("key", "value"));
  server_.latency = 60'000 * kMilli;
  server_.answers_apart = true;
  const Nanos before = server_.clock.now();
  const int connects = server_.connects;
  ASSERT_TRUE(client().flush(std::chrono::milliseconds(90'000)));
  EXPECT_EQ(server_.clock.now() - before, 60'000 * kMilli);
  EXPECT_EQ(server_.connects, connects);
  const auto late = client().backup("name", std::chrono::milliseconds(5'000));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);
}

// Outside of a group nobody else could serve.
TEST_P(StandingStill, AServerOfNoGroupIsWaitedForUntilTheDeadline) {
  server_.in_group = false;
  options_.server = "a:1";
  ASSERT_TRUE(client().put("key", "value"));
  const int reads = server_.reads;
  stand_still(true);
  const Nanos before = server_.clock.now();
  const auto put = client().put_with("k", "v", {.timeout = kLongTimeout});
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTimeout);
  EXPECT_EQ(server_.clock.now() - before, kNanosPerMs * kLongTimeout.count());
  EXPECT_EQ(server_.reads, reads);
}

}  // namespace
}  // namespace rkv
