#include "tests/sim/client_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/bytes.h"
#include "tests/sim/network/fabric.h"

namespace rkv::sim {

using Kind = Op::Kind;
using Outcome = Op::Outcome;

namespace {
constexpr Nanos kLongestNap = 15 * kNanosPerMs;
constexpr std::size_t kMoreBytes = 20'000;  // more than a message holds; memory has space for some
                                            // of these
constexpr std::uint64_t kStepLifeMs = 600;
constexpr std::int64_t kLongLifeMs = 1'000'000;
// In less time a client may not get to an attempt to connect (Connector::next_attempt).
constexpr Client::Timeout kEnoughToReconnect{500};
// A client may send a write to a server that has ended and not know it yet (Faults::notice).
constexpr Nanos kLongestNotice = 4000 * kNanosPerMs;
}  // namespace

ClientActor::ClientActor(Story& story, int number)
    : story_(story),
      number_(number),
      options_(story.plan.client_options[static_cast<std::size_t>(number)]),
      seen_(story.keys.size()),
      counters_(story.keys.size()),
      numbers_(story.keys.size()) {}

void ClientActor::run() {
  if (connect()) {
    for (std::size_t i = 0; i < story_.plan.operations; ++i) {
      const bool nap = story_.scheduler.chance(story_.plan.nap_in);
      story_.scheduler.sleep(story_.scheduler.up_to(nap ? kLongestNap : story_.plan.think));
      operate();
      ++story_.operations_done;
      story_.scheduler.notify(story_.progress);
    }
  }
  --story_.clients_working;
  story_.scheduler.notify(story_.progress);
  const Nanos look = (story_.plan.clock_stands ? 1000 : 1) * kNanosPerMs;
  while (!story_.calm)
    story_.scheduler.sleep(look);
  look_at_everything();
  if (client_) stats_ = client_->stats();
  client_.reset();
}

bool ClientActor::connect() {
  const std::shared_ptr<rdma::Transport> host =
      rdma::sim::open_sim(story_.fabric, fmt::format("client{}", number_));
  for (int tries = 0; tries < 1000; ++tries) {
    auto made = Client::connect(options_, host, &story_.scheduler);
    if (made) {
      client_.emplace(std::move(*made));
      return true;
    }
    story_.scheduler.sleep(kNanosPerMs);
  }
  story_.history.note({.what = fmt::format("client {} never came in", number_), .key = {}});
  return false;
}

void ClientActor::operate() {
  if (story_.plan.cell_keys != 0 && story_.random.below(4) == 0) return count_in_cell();
  const std::uint64_t choice = story_.random.below(100);
  if (story_.plan.counters != 0 && choice < 14) {
    return choice < 4 ? get(any_counter()) : add(any_counter());
  }
  if (choice < 38) return get(any_key());
  if (choice < 40) return story_.plan.scans ? scan() : get(any_key());
  if (choice < 65) return put(any_key());
  if (choice < 75) return remove(any_key());
  if (choice < 85) return multi_get();
  if (choice < 95) return multi_put();
  flush();
}

std::size_t ClientActor::any_key() {
  const bool hot = story_.plan.fillers == 0 || story_.random.below(4) != 0;
  return story_.random.below(hot ? story_.plan.hot_keys
                                 : story_.plan.hot_keys + story_.plan.fillers);
}

std::size_t ClientActor::any_counter() {
  return story_.keys.size() - 1 - story_.plan.cell_keys - story_.random.below(story_.plan.counters);
}

std::size_t ClientActor::any_length() {
  static constexpr std::array<std::size_t, 8> kLengths = {7, 8, 20, 20, 21, 60, 100, 400};
  static constexpr std::array<std::size_t, 4> kLong = {2900, 3000, 5000, 9000};
  const auto one_in = [&](std::uint64_t many) {
    return many != 0 && story_.random.below(many) == 0;
  };
  // The server READs values that are too long for a message.
  if (one_in(story_.plan.large_in)) return kMaxInlineBytes + 1 + story_.random.below(kMoreBytes);
  if (story_.plan.two_lengths) return story_.random.below(2) == 0 ? 20 : 60;
  if (one_in(story_.plan.huge_in)) return kMaxInlineBytes + 100 - story_.random.below(200);
  if (one_in(story_.plan.long_in)) return kLong[story_.random.below(kLong.size())];
  return kLengths[story_.random.below(kLengths.size())];
}

Durability ClientActor::any_durability() {
  const std::uint64_t choice = story_.random.below(10);
  return choice < 6 ? Durability::kDefault : choice < 8 ? Durability::kWal : Durability::kSync;
}

// ------------------------------------------------------------------------------ operations

std::size_t ClientActor::begin(Kind kind, std::size_t key) {
  return story_.history.begin(
      {.client = number_, .kind = kind, .key = key, .called = story_.scheduler.now()});
}

std::size_t ClientActor::begin_put(std::size_t key) {
  const std::size_t number = begin(Kind::kPut, key);
  story_.history[number].length = any_length();
  return number;
}

void ClientActor::end(std::size_t number) {
  const Op& op = story_.history[number];
  story_.history[number].returned = story_.scheduler.now();
  story_.scheduler.trace(30 + static_cast<std::uint64_t>(op.outcome), op.version.bits);
}

// True if a full disk explains the error. Then writes, flushes and scans are refused; scans because
// they would miss the latest writes. Gets continue, except for keys that are not in memory and
// whose last change is not on the disk: removed or expired keys.
bool ClientActor::excused(const Op& op, const Error& error, bool reads_disk) {
  if (op.kind == Kind::kGet && !reads_disk && !story_.history.may_have_left(op.key)) return false;
  if (error.code != Code::kIo || (!story_.disk_is_full && op.called > story_.was_full))
    return false;
  ++story_.full_refusals;
  return true;
}

// A client learns what has become of a write as long as the server lives and there is time. Atomics
// on cells are the exception.
bool ClientActor::is_lost_without_cause(const Op& op, const Error& error) const {
  if (error.write != WriteOutcome::kMayHaveHappened || error.code != Code::kDisconnected ||
      story_.history.in_cell(op.key) ||
      story_.history.restarted_since(op.called - kLongestNotice)) {
    return false;
  }
  const auto timeout = timeout_.count() != 0 ? timeout_ : options_.timeout;
  if (timeout < kEnoughToReconnect) return false;
  return story_.scheduler.now() - op.called < timeout.count() * kNanosPerMs / 2;
}

void ClientActor::failed(std::size_t number, const Error& error, bool reads_disk) {
  Op& op = story_.history[number];
  op.error = error.code;
  op.outcome = error.write == WriteOutcome::kMayHaveHappened ? Outcome::kUnknown : Outcome::kFailed;
  if (excused(op, error, reads_disk)) return;
  if (is_lost_without_cause(op, error)) {
    story_.history.note(
        {.what = fmt::format("nobody knows what has become of #{}, and the server did not restart",
                             number),
         .key = op.key});
  }
  if (!story_.plan.may_fail || story_.calm) {
    story_.history.note(
        {.what = fmt::format("#{} failed without a cause: {}", number, to_string(error)),
         .key = op.key});
  }
}

void ClientActor::take_value(std::size_t number, std::string_view value, bool is_counter,
                             Version version) {
  if (is_counter) {
    const std::int64_t sum = load_le<std::int64_t>(as_bytes(value).data());
    const bool told = !story_.history.in_cell(story_.history[number].key);
    story_.history.answered_number(number, sum, told ? version : Version{});
  } else {
    story_.history.answered(number, value, version);
  }
  seen_[story_.history[number].key] = version;
}

void ClientActor::take(std::size_t number, const Result<Value>& result) {
  if (result) {
    take_value(number, result->value, result->is_counter, {result->version});
    story_.history[number].durability = result->durability;
    story_.history[number].expires = result->expires_at_ms != 0;
  } else if (result.error().code == Code::kNotFound) {
    story_.history[number].outcome = Outcome::kMissing;
  } else {
    failed(number, result.error());
  }
  end(number);
}

void ClientActor::take_write(std::size_t number, const Result<std::uint64_t>& result) {
  Op& op = story_.history[number];
  if (result) {
    op.outcome = Outcome::kDone;
    op.version = {*result};
    if (op.kind == Kind::kPut) seen_[op.key] = op.version;
  } else if (op.kind != Kind::kFlush && result.error().code == Code::kNotFound) {
    op.outcome = Outcome::kMissing;
  } else if (op.kind == Kind::kPut && result.error().code == Code::kConflict) {
    op.outcome = Outcome::kConflict;
  } else {
    failed(number, result.error());
  }
  end(number);
}

void ClientActor::get(std::size_t key) {
  const std::size_t number = begin(Kind::kGet, key);
  const Durability at_least = any_durability();
  const auto result = client_->get(story_.keys[key], {.at_least = at_least, .timeout = timeout_});
  if (result && result->durability < at_least) {
    story_.history.note({.what = fmt::format("get #{} asked for {} and got a value that is not",
                                             number, to_string(at_least)),
                         .key = key});
  }
  take(number, result);
}

void ClientActor::put(std::size_t key) {
  const std::size_t number = begin_put(key);
  const std::string value = History::value_of(number, story_.history[number].length);
  const PutOptions options = any_put_options(story_.history[number]);
  take_write(number, client_->put_with(story_.keys[key], value, options));
}

PutOptions ClientActor::any_put_options(Op& op) {
  PutOptions options{.timeout = timeout_, .durability = any_durability()};
  op.durability = options.durability;
  if (story_.random.below(4) == 0) {
    if (seen_[op.key].bits != 0 && story_.random.below(2) == 0) {
      op.condition = Op::Condition::kIfVersion;
      op.expected = seen_[op.key];
      options.if_version = op.expected.bits;
    } else {
      op.condition = Op::Condition::kIfAbsent;
      options.if_absent = true;
    }
  }
  if (story_.scheduler.chance(story_.plan.brief_in)) {
    op.ttl_ms = any_life_ms();
    options.ttl = std::chrono::milliseconds(op.ttl_ms);
  }
  return options;
}

std::int64_t ClientActor::any_life_ms() {
  const std::uint64_t choice = story_.random.below(4);
  if (story_.plan.clock_stands && choice == 0) return kLongLifeMs;
  const bool steps = story_.plan.clock_steps != 0 && choice != 1;
  return 1 + static_cast<std::int64_t>(story_.random.below(steps ? kStepLifeMs : 20));
}

void ClientActor::add(std::size_t key) {
  const std::size_t number = begin(Kind::kAdd, key);
  const std::int64_t summand = static_cast<std::int64_t>(story_.random.below(100)) - 30;
  const Durability durability = any_durability();
  story_.history[number].number = summand;
  story_.history[number].durability = durability;
  const auto result =
      client_->incr(story_.keys[key], summand, {.durability = durability, .timeout = timeout_});
  if (result) story_.history[number].sum = result->number;
  take_write(number, result ? Result<std::uint64_t>(result->version)
                            : Result<std::uint64_t>(std::unexpected(result.error())));
}

// A page shows each key of its range as a get would at one instant of the call. An expired key may
// be missing from a page earlier than from a get, so its absence proves nothing.
void ClientActor::scan() {
  const Nanos called = story_.scheduler.now();
  const auto page = client_->scan({.timeout = timeout_});
  const auto begin_get = [&](std::size_t key) {
    const std::size_t number = begin(Kind::kGet, key);
    story_.history[number].called = called;
    return number;
  };
  if (!page) {
    const std::size_t number = begin_get(0);
    failed(number, page.error(), true);
    return end(number);
  }
  const bool whole = page->token().empty();
  for (std::size_t key = 0; key < story_.keys.size(); ++key) {
    const auto found = std::ranges::find(page->entries(), story_.keys[key], &ScanEntry::key);
    if (found == page->entries().end()) {
      const bool beyond =
          !whole && (page->entries().empty() || story_.keys[key] > page->entries().back().key);
      if (beyond || story_.plan.brief_in != 0) continue;
      const std::size_t number = begin_get(key);
      story_.history[number].outcome = Outcome::kMissing;
      end(number);
      continue;
    }
    const std::size_t number = begin_get(key);
    take_value(number, found->value, found->is_counter, {found->version});
    story_.history[number].expires = found->expires_at_ms != 0;
    end(number);
  }
}

void ClientActor::remove(std::size_t key) {
  const std::size_t number = begin(Kind::kRemove, key);
  const Durability durability = story_.history[number].durability = any_durability();
  take_write(number,
             client_->remove(story_.keys[key], {.durability = durability, .timeout = timeout_}));
}

void ClientActor::flush() {
  const std::size_t number = begin(Kind::kFlush, 0);
  const auto flushed = client_->flush(timeout_);
  if (flushed || flushed.error().code != Code::kStale) return take_write(number, flushed);
  story_.history[number].outcome = Outcome::kStale;
  end(number);
}

void ClientActor::multi_get() {
  std::vector<std::string_view> keys;
  std::vector<std::size_t> numbers;
  for (std::size_t n = 1 + story_.random.below(kManyKeys); n > 0; --n) {
    const std::size_t key = any_key();
    keys.push_back(story_.keys[key]);
    numbers.push_back(begin(Kind::kGet, key));
  }
  const auto results = client_->multi_get(keys, timeout_);
  for (std::size_t i = 0; i < results.size(); ++i)
    take(numbers[i], results[i]);
}

void ClientActor::multi_put() {
  std::vector<std::string> values;
  std::vector<std::size_t> numbers;
  std::vector<KeyValue> items;
  const Durability durability = any_durability();
  const std::size_t most = story_.random.below(8) == 0 ? kFullPacks : kManyKeys;
  for (std::size_t n = 1 + story_.random.below(most); n > 0; --n) {
    numbers.push_back(begin_put(any_key()));
    story_.history[numbers.back()].durability = durability;
    values.push_back(History::value_of(numbers.back(), story_.history[numbers.back()].length));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    items.push_back({.key = story_.keys[story_.history[numbers[i]].key], .value = values[i]});
  }
  const auto results = client_->multi_put(items, {.durability = durability, .timeout = timeout_});
  for (std::size_t i = 0; i < results.size(); ++i)
    take_write(numbers[i], results[i]);
}

// ---------------------------------------------------------------------- one-sided counters

// Changes a counter mostly by atomics, sometimes by requests.
void ClientActor::count_in_cell() {
  const std::size_t key = story_.keys.size() - 1 - story_.random.below(story_.plan.cell_keys);
  const std::uint64_t choice = story_.random.below(16);
  if (choice < 3) return look_at_cell(key);
  if (choice < 5) return swap_in_cell(key);
  if (choice == 5) flush();
  if (choice == 6) return multi_add();
  add_in_cell(key);
}

// nullptr: use requests this time, or opening failed.
OneSidedCounter* ClientActor::opened(std::size_t key) {
  if (story_.random.below(4) == 0) return nullptr;
  auto& counter = counters_[key];
  if (counter) return &*counter;
  const std::size_t number = begin(Kind::kOpen, key);
  auto result = client_->open_counter(story_.keys[key], {.create = false, .timeout = timeout_});
  if (result) {
    counter.emplace(std::move(*result));
    story_.history[number].outcome = Outcome::kDone;
  } else {
    failed(number, result.error(), true);
  }
  end(number);
  return counter ? &*counter : nullptr;
}

// Reading a counter may open it again, which a full disk refuses.
void ClientActor::take_number(std::size_t number, const Result<Counter>& result, bool opens) {
  Op& op = story_.history[number];
  if (result) {
    story_.history.answered_number(number, result->number, {});
    numbers_[op.key] = result->number;
  } else if (result.error().code == Code::kNotFound) {
    op.outcome = Outcome::kMissing;
  } else {
    failed(number, result.error(), opens);
  }
  end(number);
}

void ClientActor::look_at_cell(std::size_t key) {
  OneSidedCounter* const counter = opened(key);
  const std::size_t number = begin(Kind::kGet, key);
  take_number(number,
              counter != nullptr ? client_->get_counter(*counter, timeout_)
                                 : client_->get_counter(story_.keys[key], timeout_),
              counter != nullptr);
}

// Sometimes adds more than a cell can hold, so that the counter leaves the cell.
void ClientActor::add_in_cell(std::size_t key) {
  OneSidedCounter* const counter = opened(key);
  const bool far = story_.random.below(12) == 0;
  const std::int64_t summand =
      far ? kMaxCellSummand + 1 : 1 + static_cast<std::int64_t>(story_.random.below(100));
  const WriteOptions options{
      .durability = story_.random.below(4) == 0 ? any_durability() : Durability::kDefault,
      .timeout = timeout_};
  const std::size_t number = begin(Kind::kAdd, key);
  story_.history[number].number = summand;
  story_.history[number].durability = options.durability;
  take_number(number,
              counter != nullptr ? client_->incr(*counter, summand, options)
                                 : client_->incr(story_.keys[key], summand, options),
              true);
}

void ClientActor::multi_add() {
  std::vector<CounterAddition> additions;
  std::vector<std::size_t> numbers;
  for (std::size_t n = 1 + story_.random.below(kManyKeys); n > 0; --n) {
    const std::size_t key = story_.keys.size() - 1 - story_.random.below(story_.plan.cell_keys);
    OneSidedCounter* const counter = opened(key);
    if (counter == nullptr) continue;
    additions.push_back({.counter = counter, .summand = 1 + static_cast<std::int64_t>(n)});
  }
  for (const CounterAddition& one : additions) {
    const auto key = std::ranges::find(story_.keys, one.counter->key());
    numbers.push_back(begin(Kind::kAdd, static_cast<std::size_t>(key - story_.keys.begin())));
    story_.history[numbers.back()].number = one.summand;
  }
  const auto results = client_->multi_incr(additions, timeout_);
  for (std::size_t i = 0; i < results.size(); ++i)
    take_number(numbers[i], results[i], true);
}

// Swaps to a greater number: all changes increase it.
void ClientActor::swap_in_cell(std::size_t key) {
  OneSidedCounter* const counter = opened(key);
  const std::size_t number = begin(Kind::kSwap, key);
  const std::int64_t expected = story_.history[number].if_number = numbers_[key];
  const std::int64_t desired = expected + 1 + static_cast<std::int64_t>(story_.random.below(100));
  story_.history[number].number = desired;
  const auto result =
      counter != nullptr
          ? client_->counter_cas(*counter, expected, desired, {.timeout = timeout_})
          : client_->counter_cas(story_.keys[key], expected, desired, {.timeout = timeout_});
  take_number(number,
              result ? Result<Counter>(Counter{.number = result->number})
                     : Result<Counter>(std::unexpected(result.error())),
              true);
  if (result && !result->done) story_.history[number].outcome = Outcome::kConflict;
}

// Without faults every key must be answered, with all that was written.
void ClientActor::look_at_everything() {
  if (!client_) return;
  timeout_ = Client::Timeout(20'000);
  flush();  // first request on a new connection
  for (std::size_t key = 0; key < story_.keys.size(); ++key) {
    const bool filler =
        key >= story_.plan.hot_keys && key < story_.plan.hot_keys + story_.plan.fillers;
    if (story_.history.in_cell(key)) {
      look_at_cell(key);
    } else if (!filler || story_.random.below(8) == 0) {
      get(key);
    }
  }
  flush();
}

}  // namespace rkv::sim
