#include "bench/kvbench/worker.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "bench/kvbench/record.h"

namespace rkv::kvbench {

namespace {
constexpr Nanos kLongestSleep = 100 * kNanosPerMs;  // then the thread checks for a stop
}  // namespace

void Stop::request(std::string why) {
  const MutexLock lock(mutex_);
  if (requested_.load(std::memory_order_relaxed)) return;
  why_ = std::move(why);
  requested_.store(true, std::memory_order_relaxed);
}

void Stop::server_lost(std::string why) {
  server_lost_.store(true, std::memory_order_relaxed);
  request(std::move(why));
}

std::string Stop::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

Worker::Worker(const Options& options, Workload& workload, Cluster client, Stop& stop,
               std::size_t number, std::uint64_t operations)
    : options_(options),
      settings_(workload.settings()),
      workload_(workload),
      stop_(stop),
      operations_(operations),
      chooser_(workload, options.seed + number * 0x9E3779B97F4A7C15U),
      measurements_(options.interval),
      field_names_(settings_.field_count),
      slots_(options.in_flight > 1 ? options.in_flight : 0) {
  const StoreSettings store{
      .plain_updates = options.plain_updates,
      .durability = options.durability,
      .value_bytes = most_record_bytes(settings_.field_count, settings_.most_field_bytes)};
  store_.emplace(std::move(client), store);
  for (std::size_t i = 0; i < field_names_.size(); ++i)
    field_names_[i] = fmt::format("{}{}", settings_.field_name_prefix, i);
  if (options.target != 0) {
    tick_ = kNanosPerSecond * options.threads / static_cast<Nanos>(options.target);
  }
}

// ------------------------------------------------------------------------------------- pacing

void Worker::sleep_until(Nanos until) {
  while (!stop_.requested()) {
    const Nanos now = clock_.now();
    if (now >= until) return;
    if (options_.spin_sleep) continue;
    const Nanos next = std::min(until, now + kLongestSleep);
    const timespec at{.tv_sec = next / kNanosPerSecond, .tv_nsec = next % kNanosPerSecond};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);  // a signal wakes it early
  }
}

// As YCSB: a random delay, so that throttled threads do not all begin at once.
void Worker::wait_for_random_start() {
  if (tick_ < kNanosPerMs) return;
  const auto tick = static_cast<std::uint64_t>(tick_);
  sleep_until(clock_.now() + static_cast<Nanos>(chooser_.random().below(tick)));
}

void Worker::throttle(Nanos began, std::uint64_t done) {
  if (tick_ == 0) return;
  due_ = due_at(began, done);
  sleep_until(due_);
}

// -------------------------------------------------------------------------------------- run

void Worker::run() {
  // Timers wake within a microsecond instead of 50.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  try {
    wait_for_random_start();
    const Nanos began = clock_.now();
    if (options_.in_flight > 1) {
      run_batches(began);
    } else {
      run_singly(began);
    }
    stats_ = store_->client().stats();
    counters_ = store_->counters();
    const Nanos begin = clock_.now();
    store_.reset();
    measurements_.latency(Kind::kCleanup, {.due = begin, .begin = begin, .end = clock_.now()});
  } catch (const std::exception& problem) {  // mostly std::bad_alloc
    stop_.request(problem.what());
  }
}

void Worker::run_singly(Nanos began) {
  std::uint64_t done = 0;
  while ((operations_ == 0 || done < operations_) && !stop_.requested()) {
    if (!(options_.phase == Phase::kLoad ? load_one() : transaction())) return;
    done_.store(++done, std::memory_order_relaxed);
    throttle(began, done);
  }
}

bool Worker::transaction() {
  const Operation operation = chooser_.operation();
  if (operation != Operation::kInsert && !choose_key(draft_)) return false;
  switch (operation) {
    case Operation::kRead:
      read();
      break;
    case Operation::kUpdate:
      update();
      break;
    case Operation::kInsert:
      insert();
      break;
    case Operation::kScan:
      scan();
      break;
    case Operation::kReadModifyWrite:
      read_modify_write();
  }
  return true;
}

bool Worker::load_one() {
  settings_.keys.write(workload_.next_loaded(), draft_.key);
  make_fields(draft_, 0, settings_.field_count);
  const Nanos begin = clock_.now();
  const Answer answer = store_->insert(draft_.key, draft_.fields);
  end_operation(Kind::kInsert, answer, begin);
  return answer.ok() || insert_again(draft_, answer);
}

bool Worker::insert_again(const Draft& draft, Answer answer) {
  for (std::uint64_t i = 0; i < settings_.insertion_retries && !stop_.requested(); ++i) {
    const double part = 0.8 + 0.4 * next_double(chooser_.random());
    sleep_until(clock_.now() + static_cast<Nanos>(part * settings_.insertion_retry_s *
                                                  static_cast<double>(kNanosPerSecond)));
    const Nanos begin = clock_.now();
    answer = store_->insert(draft.key, draft.fields);
    end_operation(Kind::kInsert, answer, begin);
    if (answer.ok()) return true;
  }
  if (settings_.insertion_keep_going) return true;
  std::string why = to_string(answer.error);
  if (const std::string& refusal = store_->client().last_refusal(); !refusal.empty())
    why += fmt::format(" (the server says: {})", refusal);
  stop_.request(fmt::format("{} was not inserted: {}", draft.key, why));
  return false;
}

// -------------------------------------------------------------------------------- operations

void Worker::end_operation(Kind kind, const Answer& answer, Nanos begin) {
  const Nanos end = clock_.now();
  measurements_.operation(kind, answer.outcome,
                          {.due = due_ != 0 ? due_ : begin, .begin = begin, .end = end});
  look_after_server(answer);
}

bool Worker::choose_key(Draft& draft) {
  while (!stop_.requested()) {
    if (const auto record = chooser_.record()) {
      settings_.keys.write(*record, draft.key);
      return true;
    }
  }
  return false;
}

void Worker::look_after_server(const Answer& answer) {
  if (answer.outcome != Outcome::kServiceUnavailable || stop_.requested()) return;
  // The operation reached its timeout. Check whether a server still answers, beginning with the
  // server last seen alive: a lost server takes as long to time out.
  Cluster& cluster = store_->client();
  const auto& servers = cluster.map().servers();
  Error error{};
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const auto client = cluster.client_at(seen_alive_);
    const Status alive = client ? (*client)->ping() : std::unexpected(client.error());
    if (alive) return;
    error = alive.error();
    seen_alive_ = (seen_alive_ + 1) % servers.size();
  }
  stop_.server_lost(servers.size() == 1 ? fmt::format("the server at {} is unreachable: {}",
                                                      servers.front().address, to_string(error))
                                        : fmt::format("all {} servers are unreachable: {}",
                                                      servers.size(), to_string(error)));
}

void Worker::read() {
  const Nanos begin = clock_.now();
  const Answer answer = store_->read(draft_.key);
  end_operation(Kind::kRead, answer, begin);
  if (settings_.data_integrity) verify(draft_.key, store_->fields());
}

void Worker::update() {
  make_written_fields(draft_);
  const Nanos begin = clock_.now();
  const Answer answer = store_->update(draft_.key, draft_.field, draft_.fields);
  end_operation(Kind::kUpdate, answer, begin);
}

void Worker::insert() {
  const std::uint64_t number = workload_.inserted().next();
  settings_.keys.write(number, draft_.key);
  make_fields(draft_, 0, settings_.field_count);
  const Nanos begin = clock_.now();
  const Answer answer = store_->insert(draft_.key, draft_.fields);
  end_operation(Kind::kInsert, answer, begin);
  workload_.inserted().acknowledge(number);  // also after a failure, as in YCSB
}

void Worker::scan() {
  const auto count = static_cast<std::uint32_t>(chooser_.scan_length());
  std::uint64_t found = 0;
  const Nanos begin = clock_.now();
  const Answer answer = store_->scan(draft_.key, count, found);
  const Nanos end = clock_.now();
  end_operation(Kind::kScan, answer, begin);
  if (found == 0) return;
  const Nanos each = (end - begin) / static_cast<Nanos>(found);
  measurements_.latency(Kind::kScanPerRecord, {.due = begin, .begin = begin, .end = begin + each});
}

void Worker::read_modify_write() {
  make_written_fields(draft_);
  const Nanos begin = clock_.now();
  const Answer read = store_->read(draft_.key);
  end_operation(Kind::kRead, read, begin);
  const Nanos read_end = clock_.now();
  if (settings_.data_integrity) verify(draft_.key, store_->fields());
  const Nanos update_begin = clock_.now();
  bool done = false;
  if (read.ok()) {
    const Answer update = store_->update_read(draft_.key, draft_.field, draft_.fields);
    end_operation(Kind::kUpdate, update, update_begin);
    done = update.ok();
  }
  // Excludes the time between the two operations.
  const Nanos end = clock_.now() - (update_begin - read_end);
  measurements_.latency(Kind::kReadModifyWrite,
                        {.due = due_ != 0 ? due_ : begin, .begin = begin, .end = end}, !done);
}

// ------------------------------------------------------------------------------------ fields

void Worker::make_written_fields(Draft& draft) {
  draft.field.reset();
  if (settings_.write_all_fields) return make_fields(draft, 0, settings_.field_count);
  draft.field = chooser_.field();
  make_fields(draft, *draft.field, 1);
}

void Worker::make_fields(Draft& draft, std::size_t first, std::size_t count) {
  draft.bytes.clear();
  draft.bytes.reserve(count * settings_.most_field_bytes);  // keeps the views below valid
  draft.fields.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = draft.bytes.size();
    const std::size_t length = chooser_.field_bytes();
    if (settings_.data_integrity) {
      deterministic_bytes(draft.key, field_names_[first + i], length, expected_);
      draft.bytes += expected_;
    } else {
      append_random_bytes(chooser_.random(), length, draft.bytes);
    }
    draft.fields.push_back(std::string_view(draft.bytes).substr(begin));
  }
}

// Compares the fields just read with what must have been written. With readallfields=false it
// compares one field, because YCSB reads only one.
void Worker::verify(std::string_view key, const std::vector<std::string_view>& fields) {
  const Nanos begin = clock_.now();
  Outcome outcome = Outcome::kOk;
  if (fields.empty()) {
    outcome = Outcome::kError;
  } else if (fields.size() != settings_.field_count) {
    outcome = Outcome::kUnexpectedState;
  }
  const std::size_t first = settings_.read_all_fields ? 0 : chooser_.field();
  const std::size_t end = settings_.read_all_fields ? settings_.field_count : first + 1;
  for (std::size_t i = first; i < end && outcome == Outcome::kOk; ++i) {
    deterministic_bytes(key, field_names_[i], chooser_.field_bytes(), expected_);
    if (fields[i] != expected_) outcome = Outcome::kUnexpectedState;
  }
  measurements_.latency(Kind::kVerify, {.due = begin, .begin = begin, .end = clock_.now()});
  measurements_.outcome(Kind::kVerify, outcome);
}

}  // namespace rkv::kvbench
