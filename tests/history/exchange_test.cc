// The exchange format: exported histories are imported unchanged; invalid input is refused with its
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/history/history.h"
#include "tests/history/scene.h"

namespace rkv::history {
namespace {

std::string exported(const History& history) {
  std::ostringstream out;
  export_history(out, history);
  return out.str();
}

Result<History> imported(const std::string& text, std::string* complaint) {
  std::istringstream in(text);
  return import_history(in, complaint);
}

History some_of_everything() {
  Scene scene("a key with \"quotes\"");
  scene.put(1, 3, "a", 9, 30);
  scene.get(2, 4, "a", 9, true);
  scene.get_absent(5, 6);
  scene.put_info(5, 7, "b").until = 40'000;
  scene.put_info(6, 8, "\n\\\xc3\xa9");
  scene.put_if_absent(7, 9, "c", Scene::failed(Code::kConflict));
  scene.put_if_version(8, 10, "d", 77, Scene::ok(78));
  scene.remove(11, 12, Scene::failed(Code::kNotFound));
  scene.add(12, 13, {.f = Function::kRemoveIfVersion, .if_version = 5}, Scene::ok(79));
  scene.incr(13, 15, -3, Scene::number(-3, 80));
  scene.incr(13, 15, 1, Scene::info());
  scene.counter_cas(14, 16, -3, 7, Scene::number(7, 81));
  Answer refused = Scene::failed(Code::kConflict);
  refused.content = Content::of(std::int64_t{6});
  scene.counter_cas(14, 16, 5, 7, refused);
  scene.add(20, 21, {.f = Function::kRestart},
            {.outcome = Outcome::kOk, .content = Content::of("z"), .version = 1});
  History history = scene.history();
  // An operation that was under way when the program ended.
  history.push_back({.process = 99, .call = {.f = Function::kGet, .key = "k"}, .invoked = 30'000});
  return history;
}

TEST(Exchange, WhatIsWrittenIsReadBack) {
  const History history = some_of_everything();
  std::string complaint;
  const auto read = imported(exported(history), &complaint);
  ASSERT_TRUE(read) << complaint;
  ASSERT_EQ(read->size(), history.size());
  for (std::size_t i = 0; i < history.size(); ++i) {
    EXPECT_EQ(describe((*read)[i]), describe(history[i]));
    EXPECT_EQ((*read)[i].process, history[i].process);
    EXPECT_EQ((*read)[i].invoked, history[i].invoked);
    EXPECT_EQ((*read)[i].returned, history[i].returned);
    EXPECT_EQ((*read)[i].until, history[i].until);
    EXPECT_EQ((*read)[i].call.ttl, history[i].call.ttl);
    EXPECT_EQ((*read)[i].call.expected, history[i].call.expected);
    EXPECT_EQ((*read)[i].answer.expires_at_ms, history[i].answer.expires_at_ms);
    EXPECT_EQ((*read)[i].answer.content, history[i].answer.content);
    EXPECT_EQ((*read)[i].answer.error, history[i].answer.error);
  }
  EXPECT_EQ(exported(*read), exported(history));
}

// README.md shows these lines.
TEST(Exchange, TheLinesAreAsDocumented) {
  Scene scene;
  scene.put(1, 3, "v", 9);
  scene.incr(4, 5, 2, Scene::info());
  EXPECT_EQ(exported(scene.history()),
            R"({"process":0,"type":"invoke","f":"put","key":"k","value":"v","version":null,)"
            R"("time":1000})"
            "\n"
            R"({"process":0,"type":"ok","f":"put","key":"k","value":"v","version":9,"time":3000})"
            "\n"
            R"({"process":1,"type":"invoke","f":"incr","key":"k","value":2,"version":null,)"
            R"("time":4000})"
            "\n"
            R"({"process":1,"type":"info","f":"incr","key":"k","value":2,"version":null,)"
            R"("time":5000,"error":"timed out"})"
            "\n");
}

TEST(Exchange, WhatIsNoHistoryIsRefusedByItsLine) {
  const std::string invoke =
      R"({"process":1,"type":"invoke","f":"get","key":"k","value":null,"time":5})";
  const auto refused = [](const std::string& text) {
    std::string complaint;
    const auto read = imported(text, &complaint);
    EXPECT_FALSE(read);
    return complaint;
  };
  EXPECT_THAT(refused("nonsense"), ::testing::StartsWith("line 1: "));
  EXPECT_THAT(refused(invoke + "\n" + invoke), ::testing::StartsWith("line 2: this process has"));
  const auto second = [&](const std::string& line) { return refused(invoke + "\n" + line); };
  EXPECT_THAT(second(R"({"process":2,"type":"ok","f":"get","key":"k","value":null,"time":6})"),
              ::testing::HasSubstr("invoked nothing"));
  EXPECT_THAT(second(R"({"process":1,"type":"ok","f":"get","key":"x","value":null,"time":6})"),
              ::testing::HasSubstr("something else"));
  EXPECT_THAT(second(R"({"process":1,"type":"ok","f":"get","key":"k","value":null,"time":4})"),
              ::testing::HasSubstr("backwards"));
  EXPECT_THAT(second(R"({"process":1,"type":"maybe","f":"get","key":"k","value":null,"time":6})"),
              ::testing::HasSubstr("no such type: maybe"));
  EXPECT_THAT(second(R"({"process":1,"type":"fail","f":"get","key":"k","value":null,"time":6,)"
                     R"("error":"bad luck"})"),
              ::testing::HasSubstr("no such error: bad luck"));
  EXPECT_THAT(second(R"({"process":3,"type":"invoke","f":"sort","key":"k","time":6})"),
              ::testing::HasSubstr("no such function: sort"));
}

}  // namespace
}  // namespace rkv::history
