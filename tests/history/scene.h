// Histories written by hand, for tests: caller, call time, return time and answer of each
// operation.
//
//   Scene scene;
//   scene.put(0, 10, "a", 1);
//   scene.get(20, 30, "a", 1);
//   EXPECT_EQ(check(scene.history()), ...)
//
// Times are microseconds. Every operation has a process of its own.
#pragma once

#include <string>
#include <utility>

#include "tests/history/history.h"

namespace rkv::history {

class Scene {
 public:
  static constexpr Nanos kUs = 1000;

  explicit Scene(std::string key = "k") : key_(std::move(key)) {}
  void on_key(std::string key) { key_ = std::move(key); }
  History history() const {
    const History* const part = &history_;
    return merge({&part, 1});
  }

  Operation& add(Nanos from_us, Nanos to_us, Call call, Answer answer) {
    call.key = key_;
    history_.push_back({.process = static_cast<int>(history_.size()),
                        .call = std::move(call),
                        .answer = std::move(answer),
                        .invoked = from_us * kUs,
                        .returned = to_us * kUs});
    return history_.back();
  }
  static Answer ok(std::uint64_t version) { return {.outcome = Outcome::kOk, .version = version}; }
  static Answer failed(Code error) { return {.outcome = Outcome::kFail, .error = error}; }
  static Answer info() { return {.outcome = Outcome::kInfo, .error = Code::kTimeout}; }
  static Answer number(std::int64_t number, std::uint64_t version) {
    return {.outcome = Outcome::kOk, .content = Content::of(number), .version = version};
  }

  void put(Nanos from, Nanos to, std::string text, std::uint64_t version, int ttl_ms = 0) {
    add(from, to,
        {.f = Function::kPut, .text = std::move(text), .ttl = std::chrono::milliseconds(ttl_ms)},
        ok(version));
  }
  Operation& put_info(Nanos from, Nanos to, std::string text) {
    return add(from, to, {.f = Function::kPut, .text = std::move(text)}, info());
  }
  void put_failed(Nanos from, Nanos to, std::string text, Code error) {
    add(from, to, {.f = Function::kPut, .text = std::move(text)}, failed(error));
  }
  void put_if_absent(Nanos from, Nanos to, std::string text, Answer answer) {
    add(from, to, {.f = Function::kPutIfAbsent, .text = std::move(text)}, std::move(answer));
  }
  void put_if_version(Nanos from, Nanos to, std::string text, std::uint64_t expected,
                      Answer answer) {
    add(from, to, {.f = Function::kPutIfVersion, .text = std::move(text), .if_version = expected},
        std::move(answer));
  }
  void touch(Nanos from, Nanos to, int ttl_ms, Answer answer) {
    add(from, to, {.f = Function::kTouch, .ttl = std::chrono::milliseconds(ttl_ms)},
        std::move(answer));
  }
  void get(Nanos from, Nanos to, std::string text, std::uint64_t version, bool expires = false) {
    add(from, to, {.f = Function::kGet},
        {.outcome = Outcome::kOk,
         .content = Content::of(std::move(text)),
         .version = version,
         .expires_at_ms = expires ? 1U : 0U});
  }
  void get_number(Nanos from, Nanos to, std::int64_t value, std::uint64_t version) {
    add(from, to, {.f = Function::kGet}, number(value, version));
  }
  void get_absent(Nanos from, Nanos to) { add(from, to, {.f = Function::kGet}, ok(0)); }
  Operation& remove(Nanos from, Nanos to, Answer answer) {
    return add(from, to, {.f = Function::kRemove}, std::move(answer));
  }
  void incr(Nanos from, Nanos to, std::int64_t by, Answer answer) {
    add(from, to, {.f = Function::kIncr, .number = by}, std::move(answer));
  }
  Operation& open_counter(Nanos from, Nanos to, Answer answer) {
    return add(from, to, {.f = Function::kOpenCounter}, std::move(answer));
  }
  void counter_cas(Nanos from, Nanos to, std::int64_t expected, std::int64_t desired,
                   Answer answer) {
    add(from, to, {.f = Function::kCounterCas, .number = desired, .expected = expected},
        std::move(answer));
  }

 private:
  std::string key_;
  History history_;
};

}  // namespace rkv::history
