#include "tests/history/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace rkv::history {

using std::chrono::milliseconds;

namespace {

constexpr std::size_t kMany = 8;  // keys per multi_get or multi_put

}  // namespace

bool Shared::explains(Code code) const {
  switch (code) {
    case Code::kNotFound:
    case Code::kConflict:
    case Code::kWrongType:
    case Code::kOutOfRange:
    case Code::kBusy:
    case Code::kDisconnected:
    case Code::kStale:
    case Code::kTimeout:
    case Code::kUnreachable:
      return true;
    case Code::kNotPrimary:
      return address.find(',') != std::string::npos;  // a group
    default:
      return false;
  }
}

namespace {

ClientOptions options_of(const Shared& shared, std::uint64_t seed,
                         std::uint16_t requests_in_flight) {
  ClientOptions options{.server = shared.address,
                        .name = fmt::format("history-{}", seed % 100),
                        .timeout = milliseconds(60'000),
                        // Little memory to register, so that creating a client is cheap.
                        .cache_bytes = std::size_t{1} << 20,
                        .reads_in_flight = 4,
                        .requests_in_flight = requests_in_flight,
                        .transport = shared.transport,
                        .repeat_connect = false};
  // Some clients find every key in their cache, others use only the directory.
  if (seed % 3 == 0) options.cache_bytes = 0;
  return options;
}

// Tries again until `is_enough` returns true: then there may be no client.
template <class IsEnough>
std::optional<Client> connect_until(IsEnough is_enough, Shared& shared,
                                    const ClientOptions& options) {
  for (;;) {
    auto client = Client::connect(options);
    if (client) return std::move(*client);
    if (is_enough()) return std::nullopt;
    shared.rest_if_held();
    std::this_thread::sleep_for(milliseconds(10));  // the server is suspended, or away
  }
}

}  // namespace

Client connect(Shared& shared, std::uint64_t seed, std::uint16_t requests_in_flight) {
  return *connect_until([] { return false; }, shared, options_of(shared, seed, requests_in_flight));
}

void Shared::rest_if_held() {
  if (!held) return;
  ++resting;
  while (held && !over)
    std::this_thread::sleep_for(milliseconds(1));
  --resting;
}

Worker::Worker(Shared& shared, int number)
    : shared_(shared),
      choices_(shared.options, number),
      recorder_(shared.clock, number, recorders_of(shared.options)) {}

void Worker::run() {
  client_.emplace(connect(shared_, random_()));
  for (std::size_t i = 0; i < shared_.options.operations && !shared_.over; ++i) {
    shared_.rest_if_held();
    if (random_.below(shared_.options.replace_in) == 0) replace_client();
    const std::size_t before = recorder_.unanswered();
    operate();
    shared_.unanswered += recorder_.unanswered() - before;
    ++shared_.done;
  }
  add_stats();
  client_.reset();
}

void Worker::look_at_everything() {
  client_.emplace(connect(shared_, random_()));
  for (std::size_t i = 0; i < shared_.options.hot_keys + shared_.options.cold_keys; ++i)
    get(choices_.key_at(i));
  add_stats();
  client_.reset();
}

void Worker::see_restart() {
  client_.emplace(connect(shared_, random_()));
  for (std::size_t i = 0; i < shared_.options.hot_keys + shared_.options.cold_keys; ++i) {
    const Key key = choices_.key_at(i);
    timeout_ = milliseconds(60'000);
    const std::size_t op = recorder_.begin({.f = Function::kRestart, .key = key.name});
    take(op, key.name, client_->get(key.name, timeout_));
  }
  add_stats();
  client_.reset();
}

// The server may never come back: then the worker ends with the client that it has.
void Worker::replace_client() {
  auto next = connect_until([this] { return shared_.over.load(); }, shared_,
                            options_of(shared_, random_(), kRequestsInFlight));
  if (!next) return;
  add_stats();
  handles_.clear();
  client_.emplace(std::move(*next));
  recorder_.client_replaced();
  ++replaced_;
}

void Worker::add_stats() {
  stats_ += client_->stats();
}

// ------------------------------------------------------------------------------- operations

Worker::Timeout Worker::any_timeout() {
  timeout_ = shared_.standing ? milliseconds(20) : choices_.any_timeout();
  return timeout_;
}

void Worker::operate() {
  const Key key = choices_.any_key();
  const std::uint64_t choice = random_.below(100);
  if (choice < 38) return get(key);
  if (choice < 45) return multi_get();
  if (choice < 48) return multi_put();
  if (choice < 55) return remove(key);
  if (choice < 57) return remove_if_version(key);
  if (choice < 59) return touch(key);
  const bool other = random_.below(50) == 0;  // an operation of the wrong type for the key
  if ((key.kind == Key::Kind::kCounter) != other) {
    return choice < 85 ? incr(key) : counter_cas(key);
  }
  if (choice < 75) return put(key);
  return choice < 87 ? put_if_absent(key) : put_if_version(key);
}

void Worker::note(const Error& error) {
  if (!shared_.explains(error.code)) ++errors_[to_string(error)];
}

void Worker::note_end(std::size_t op) {
  const Operation& ended = recorder_.history()[op];
  if (tells(ended.answer)) ++shared_.answered;
  lateness_.note(ended.returned - ended.invoked - timeout_.count() * kNanosPerMs,
                 [&] { return describe(ended); });
}

void Worker::take(std::size_t op, const std::string& key, const Result<Value>& got) {
  if (got) versions_[key] = got->version;
  if (!got) note(got.error());
  recorder_.end(op, got, got && !got->is_counter ? tag_of(got->value) : std::string());
  note_end(op);
}

template <class T>
void Worker::take(std::size_t op, const Result<T>& result) {
  if (!result) note(result.error());
  recorder_.end(op, result);
  note_end(op);
}

void Worker::get(const Key& key) {
  if (key.kind == Key::Kind::kCounter && random_.below(2) == 0) return get_counter(key);
  const Timeout timeout = any_timeout();
  const std::size_t op = recorder_.begin({.f = Function::kGet, .key = key.name});
  take(op, key.name, client_->get(key.name, timeout));
}

void Worker::put(const Key& key) {
  const std::string value = choices_.any_value();
  PutOptions options{.timeout = any_timeout()};
  if (key.kind == Key::Kind::kBrief) options.ttl = milliseconds(1 + random_.below(100));
  const std::size_t op = recorder_.begin(
      {.f = Function::kPut, .key = key.name, .text = tag_of(value), .ttl = options.ttl});
  take(op, client_->put_with(key.name, value, options));
}

void Worker::put_if_absent(const Key& key) {
  const std::string value = choices_.any_value();
  PutOptions options{.if_absent = true, .timeout = any_timeout()};
  if (key.kind == Key::Kind::kBrief) options.ttl = milliseconds(1 + random_.below(100));
  const std::size_t op = recorder_.begin(
      {.f = Function::kPutIfAbsent, .key = key.name, .text = tag_of(value), .ttl = options.ttl});
  take(op, client_->put_with(key.name, value, options));
}

void Worker::put_if_version(const Key& key) {
  const std::string value = choices_.any_value();
  const std::uint64_t version = std::max<std::uint64_t>(1, versions_[key.name]);
  const Timeout timeout = any_timeout();
  const std::size_t op = recorder_.begin({.f = Function::kPutIfVersion,
                                          .key = key.name,
                                          .text = tag_of(value),
                                          .if_version = version});
  const auto put = client_->put_if_version(key.name, value, version, timeout);
  if (put) versions_[key.name] = *put;
  take(op, put);
}

void Worker::remove(const Key& key) {
  const Timeout timeout = any_timeout();
  const std::size_t op = recorder_.begin({.f = Function::kRemove, .key = key.name});
  take(op, client_->remove(key.name, timeout));
}

// A key that expires gets another time; others stay without one, as their reads say.
void Worker::touch(const Key& key) {
  milliseconds ttl{0};
  if (key.kind == Key::Kind::kBrief && random_.below(4) != 0)
    ttl = milliseconds(1 + random_.below(100));
  const Timeout timeout = any_timeout();
  const std::size_t op = recorder_.begin({.f = Function::kTouch, .key = key.name, .ttl = ttl});
  take(op, client_->touch(key.name, ttl, timeout));
}

void Worker::remove_if_version(const Key& key) {
  const std::uint64_t version = std::max<std::uint64_t>(1, versions_[key.name]);
  const Timeout timeout = any_timeout();
  const std::size_t op =
      recorder_.begin({.f = Function::kRemoveIfVersion, .key = key.name, .if_version = version});
  take(op, client_->remove_if_version(key.name, version, timeout));
}

OneSidedCounter* Worker::any_handle(const Key& key) {
  if (key.kind != Key::Kind::kCounter || random_.below(2) == 0) return nullptr;
  const auto known = handles_.find(key.name);
  if (known != handles_.end()) return &known->second;
  const Timeout timeout = any_timeout();
  const std::uint64_t requests = client_->stats().two_sided_requests;
  const std::size_t op = recorder_.begin({.f = Function::kOpenCounter, .key = key.name});
  auto opened = client_->open_counter(key.name, timeout);
  take(op, opened);
  also_opened(op, key, requests + 1);
  if (!opened) return nullptr;
  return &handles_.emplace(key.name, std::move(*opened)).first->second;
}

// The handle of an ended counter reopens it by itself, and again if that counter has ended
// meanwhile. Only the number of requests sent is known, not when they were.
template <class Operation>
void Worker::count(const Key& key, Call call, Operation operation) {
  OneSidedCounter* const handle = any_handle(key);
  const std::uint64_t requests = client_->stats().two_sided_requests;
  call.key = key.name;
  const std::size_t op = recorder_.begin(std::move(call));
  const auto counted = operation(handle, any_timeout());
  if (counted) numbers_[key.name] = counted->number;
  take(op, counted);
  if (handle != nullptr) also_opened(op, key, requests);
}

// Each request of a handle, sent during `op` beyond the first `counted` of all, may have opened the
// counter: one whose answer was lost is sent again.
void Worker::also_opened(std::size_t op, const Key& key, std::uint64_t counted) {
  for (; counted < client_->stats().two_sided_requests; ++counted)
    recorder_.also_maybe(op, {.f = Function::kOpenCounter, .key = key.name});
}

void Worker::incr(const Key& key) {
  // Sometimes adds more than a cell can hold, so that the counter leaves its cell.
  const std::int64_t unit = random_.below(30) == 0 ? std::int64_t{1} << 33 : 1;
  const std::int64_t by = (static_cast<std::int64_t>(random_.below(4)) - 1) * unit;
  count(key, {.f = Function::kIncr, .number = by},
        [&](OneSidedCounter* handle, Timeout timeout) -> Result<Counter> {
          const WriteOptions options{.timeout = timeout};
          if (handle != nullptr && by < 0) return client_->decr(*handle, -by, options);
          if (handle != nullptr) return client_->incr(*handle, by, options);
          return by < 0 ? client_->decr(key.name, -by, options)
                        : client_->incr(key.name, by, options);
        });
}

void Worker::counter_cas(const Key& key) {
  const std::int64_t expected = numbers_[key.name];
  const std::int64_t desired = expected + 10;
  count(key, {.f = Function::kCounterCas, .number = desired, .expected = expected},
        [&](OneSidedCounter* handle, Timeout timeout) {
          const WriteOptions options{.timeout = timeout};
          return handle != nullptr ? client_->counter_cas(*handle, expected, desired, options)
                                   : client_->counter_cas(key.name, expected, desired, options);
        });
}

void Worker::get_counter(const Key& key) {
  count(key, {.f = Function::kGet}, [&](OneSidedCounter* handle, Timeout timeout) {
    return handle != nullptr ? client_->get_counter(*handle, timeout)
                             : client_->get_counter(key.name, timeout);
  });
}

void Worker::multi_get() {
  std::vector<Key> keys;
  std::vector<std::string_view> names;
  std::vector<std::size_t> ops;
  for (std::size_t n = 1 + random_.below(kMany); n > 0; --n)
    keys.push_back(choices_.any_key());
  const Timeout timeout = any_timeout();
  for (const Key& key : keys) {
    names.push_back(key.name);
    ops.push_back(recorder_.begin({.f = Function::kGet, .key = key.name}, ops.size()));
  }
  const auto got = client_->multi_get(names, timeout);
  for (std::size_t i = 0; i < got.size(); ++i)
    take(ops[i], keys[i].name, got[i]);
}

void Worker::multi_put() {
  std::vector<Key> keys;
  std::vector<std::string> values;
  for (std::size_t n = 1 + random_.below(kMany); n > 0; --n) {
    keys.push_back(choices_.any_key());
    values.push_back(choices_.any_value());
  }
  const Timeout timeout = any_timeout();
  std::vector<KeyValue> items;
  std::vector<std::size_t> ops;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    items.push_back({.key = keys[i].name, .value = values[i]});
    ops.push_back(
        recorder_.begin({.f = Function::kPut, .key = keys[i].name, .text = tag_of(values[i])}, i));
  }
  const auto written = client_->multi_put(items, timeout);
  for (std::size_t i = 0; i < written.size(); ++i)
    take(ops[i], written[i]);
}

}  // namespace rkv::history
