#include "server/program/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "server/program/log_limiter.h"

namespace rkv::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The parts of a log call that reach the sink.
struct Caught {
  std::string name;
  std::string text;
  std::string as_json;
};

class LogLines : public ::testing::Test {
 protected:
  LogLines() {
    set_event_sink([this](const LogEvent& event) {
      caught_.push_back({.name = std::string(event.name),
                         .text = std::string(event.text),
                         .as_json = json_line(event, 1'769'860'800'250)});
    });
  }
  ~LogLines() override {
    set_log_level(LogLevel::kInfo);
    set_event_sink([](const LogEvent& event) {
      std::fprintf(stderr, "%s\n", std::string(event.text).c_str());
    });
  }
  std::vector<Caught> caught_;
};

TEST_F(LogLines, FieldsReadAsTheirValuesAndAreThereByName) {
  log_warn(EventName("client_dropped"), "client {} \"{}\" after {} s, session {:04x}: {}",
           field("peer", "shm:7"), field("name", std::string("x\ny")), field("seconds", 1.5),
           field("session", std::uint64_t{255}), "why");
  ASSERT_EQ(caught_.size(), 1U);
  EXPECT_EQ(caught_[0].text, "client shm:7 \"x\ny\" after 1.5 s, session 00ff: why");
  const json line = json::parse(caught_[0].as_json);
  EXPECT_EQ(caught_[0].as_json.find('\n'), std::string::npos) << "one line";
  EXPECT_EQ(line.at("time"), "2026-01-31T12:00:00.250Z");
  EXPECT_EQ(line.at("level"), "warning");
  EXPECT_EQ(line.at("event"), "client_dropped");
  EXPECT_EQ(line.at("message"), caught_[0].text);
  EXPECT_EQ(line.at("peer"), "shm:7");
  EXPECT_EQ(line.at("name"), "x\ny");
  EXPECT_EQ(line.at("seconds"), 1.5);
  EXPECT_EQ(line.at("session"), 255);
}

TEST_F(LogLines, WhateverBytesThereAreTheLineParses) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all += static_cast<char>(byte);
  log_info(EventName("bytes"), "{}", field("bytes", all));
  ASSERT_EQ(caught_.size(), 1U);
  EXPECT_TRUE(json::parse(caught_[0].as_json, nullptr, false).is_object());
  EXPECT_EQ(caught_[0].as_json.find('\n'), std::string::npos);
}

TEST_F(LogLines, TheLevelChangesAtRunTime) {
  log_debug(EventName("d"), "left out");
  set_log_level(LogLevel::kDebug);
  log_debug(EventName("d"), "taken");
  set_log_level(LogLevel::kError);
  log_warn(EventName("w"), "left out");
  ASSERT_EQ(caught_.size(), 1U);
  EXPECT_EQ(caught_[0].text, "taken");
}

TEST(LogLimiter, AFloodIsCutShortCountedAndToldOnce) {
  LogLimiter limiter;
  std::uint64_t admitted = 0;
  for (int i = 0; i < 1000; ++i)
    admitted += limiter.admit("flood", i) ? 1 : 0;
  EXPECT_EQ(admitted, LogLimiter::kLines);
  EXPECT_TRUE(limiter.admit("other", 1000)) << "other events are not touched";
  EXPECT_TRUE(limiter.take_over(LogLimiter::kWhile - 1).empty()) << "it goes on";
  const auto floods = limiter.take_over(LogLimiter::kWhile);
  ASSERT_EQ(floods.size(), 1U);
  EXPECT_EQ(floods[0].name, "flood");
  EXPECT_EQ(floods[0].left_out, 1000 - LogLimiter::kLines);
  EXPECT_TRUE(limiter.take_over(LogLimiter::kWhile).empty()) << "once";
  EXPECT_TRUE(limiter.admit("flood", LogLimiter::kWhile)) << "and it may begin again";
}

TEST(LogLimiter, RareLinesAreNeverLeftOut) {
  LogLimiter limiter;
  for (Nanos i = 0; i < 1000; ++i)
    ASSERT_TRUE(limiter.admit("rare", i * kNanosPerSecond));
}

}  // namespace
}  // namespace rkv::server
