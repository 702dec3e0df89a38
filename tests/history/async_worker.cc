#include "tests/history/async_worker.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace rkv::history {

using std::chrono::milliseconds;

AsyncWorker::AsyncWorker(Shared& shared, AsyncClient& client, int number)
    : shared_(shared),
      client_(client),
      choices_(shared.options, number),
      recorder_(shared.clock, number, recorders_of(shared.options), Recorder::Session::kStays) {}

void AsyncWorker::run() {
  const std::size_t total = shared_.options.threads * shared_.options.operations;
  const std::size_t own = shared_.options.operations / 2;
  for (std::size_t i = 0; i < own; ++i) {
    // Spread over the run. And while the server stands still, each deadline that passes would leave
    // a write that may happen at any later time.
    while (shared_.standing || shared_.done < total * i / own) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      client_.poll();
      finish_ready();
    }
    finish(lanes_.at(i % kLanes));
    begin(i % kLanes);
    if (random_.below(500) == 0) lanes_.at(random_.below(kLanes)).stop.request_stop();
    finish_ready();
  }
  for (Lane& lane : lanes_)
    finish(lane);
}

void AsyncWorker::begin(std::size_t number) {
  Lane& lane = lanes_.at(number);
  const Key key = choices_.any_key();
  const milliseconds timeout = choices_.any_timeout();
  const std::uint64_t version = std::max<std::uint64_t>(1, versions_[key.name]);
  lane.key = key.name;
  lane.stop = {};
  const auto record = [&](history::Call call) {
    call.key = key.name;
    lane.op = recorder_.begin(std::move(call), number);
  };
  const std::uint64_t choice = random_.below(100);
  if (choice < 45) {
    record({.f = Function::kGet});
    return start(lane, client_.get(key.name, {.timeout = timeout}));
  }
  if (choice < 53) {
    record({.f = Function::kRemove});
    return start(lane, client_.remove(key.name, {.timeout = timeout}));
  }
  if (choice < 55) {
    record({.f = Function::kRemoveIfVersion, .if_version = version});
    return start(lane, client_.remove_if_version(key.name, version, {.timeout = timeout}));
  }
  if (choice < 57) {
    const auto ttl = milliseconds(key.kind == Key::Kind::kBrief ? 1 + random_.below(100) : 0);
    record({.f = Function::kTouch, .ttl = ttl});
    return start(lane, client_.touch(key.name, ttl, {.timeout = timeout}));
  }
  if (key.kind == Key::Kind::kCounter && choice < 85) {
    const std::int64_t by = static_cast<std::int64_t>(random_.below(4)) - 1;
    record({.f = Function::kIncr, .number = by});
    return start(lane, client_.incr(key.name, by, {.timeout = timeout}));
  }
  if (key.kind == Key::Kind::kCounter) {
    const std::int64_t expected = numbers_[key.name];
    record({.f = Function::kCounterCas, .number = expected + 10, .expected = expected});
    return start(lane,
                 client_.counter_cas(key.name, expected, expected + 10, {.timeout = timeout}));
  }
  const std::string value = choices_.any_value();
  history::Call call{.f = Function::kPut, .text = tag_of(value)};
  PutOptions options{.timeout = timeout};
  if (choice >= 75 && choice < 87) {
    call.f = Function::kPutIfAbsent;
    options.if_absent = true;
  } else if (choice >= 87) {
    call.f = Function::kPutIfVersion;
    call.if_version = version;
    options.if_version = version;
  } else if (key.kind == Key::Kind::kBrief) {
    options.ttl = milliseconds(1 + random_.below(100));
    call.ttl = options.ttl;
  }
  record(std::move(call));
  start(lane, client_.put_with(key.name, value, options));
}

template <class T>
void AsyncWorker::start(Lane& lane, rkv::Call<T> call) {
  lane.pending.template emplace<Pending<T>>(std::move(call).until(lane.stop.get_token()).start());
}

// Records the ends of operations that other threads, or a wait for another one, have brought.
void AsyncWorker::finish_ready() {
  for (Lane& lane : lanes_) {
    const bool ready = std::visit(
        [](const auto& pending) {
          if constexpr (requires { pending.ready(); }) return pending.ready();
          return false;
        },
        lane.pending);
    if (ready) finish(lane);
  }
}

void AsyncWorker::finish(Lane& lane) {
  std::visit(
      [&](auto& pending) {
        if constexpr (requires { pending.wait(); }) take(lane, pending.wait());
      },
      lane.pending);
  lane.pending.emplace<std::monostate>();
}

template <class T>
void AsyncWorker::take(Lane& lane, const Result<T>& result) {
  if (!result) {
    const Code code = result.error().code;
    if (code == Code::kCancelled) {
      ++cancelled_;
    } else if (!shared_.explains(code)) {
      ++errors_[to_string(result.error())];
    }
  }
  if constexpr (std::is_same_v<T, Value>) {
    if (result) versions_[lane.key] = result->version;
    recorder_.end(lane.op, result,
                  result && !result->is_counter ? tag_of(result->value) : std::string());
  } else {
    if constexpr (requires { result->number; }) {
      if (result) numbers_[lane.key] = result->number;
    }
    recorder_.end(lane.op, result);
  }
}

}  // namespace rkv::history
