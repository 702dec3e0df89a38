#include "bench/kvbench/measurements.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rkv::kvbench {

namespace {

// Adds one; correct for a single writer only.
void add_one(std::atomic<std::uint64_t>& count) {
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::size_t place_of(bool failed, bool intended) {
  return (failed ? 2U : 0U) + (intended ? 1U : 0U);
}

std::string row_name(Kind kind, bool failed, bool prefixed) {
  std::string name(prefixed ? "Intended-" : "");
  name += name_of(kind);
  if (failed) name += "-FAILED";
  return name;
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[kKinds] = {
      "READ",   "UPDATE", "INSERT", "SCAN", "READ-MODIFY-WRITE", "SCAN-LATENCY-PER-RECORD",
      "VERIFY", "CLEANUP"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Outcome outcome) {
  constexpr std::string_view kNames[kOutcomes] = {
      "OK",          "NOT_FOUND", "ERROR",          "UNEXPECTED_STATE", "SERVICE_UNAVAILABLE",
      "BAD_REQUEST", "FORBIDDEN", "NOT_IMPLEMENTED"};
  return kNames[static_cast<std::size_t>(outcome)];
}

bool Row::any() const {
  return latency.count() != 0 || std::ranges::any_of(outcomes, [](auto n) { return n != 0; });
}

Measurements::~Measurements() {
  for (Recorders& kind : recorders_) {
    for (auto& recorder : kind)
      delete recorder.load(std::memory_order_relaxed);
  }
}

LatencyRecorder& Measurements::recorder(Kind kind, bool failed, bool intended) {
  auto& place = recorders_[static_cast<std::size_t>(kind)][place_of(failed, intended)];
  LatencyRecorder* recorder = place.load(std::memory_order_relaxed);
  if (recorder == nullptr) [[unlikely]] {
    recorder = new LatencyRecorder;
    place.store(recorder, std::memory_order_release);  // publishes its zeroes to collect()
  }
  return *recorder;
}

void Measurements::operation(Kind kind, Outcome ended, const Times& times) {
  latency(kind, times, ended != Outcome::kOk);
  outcome(kind, ended);
}

void Measurements::latency(Kind kind, const Times& times, bool failed) {
  const auto taken = [&](Nanos from) {
    return static_cast<std::uint64_t>(std::max<Nanos>(times.end - from, 0));
  };
  if (interval_ != Interval::kIntended) {
    recorder(kind, failed, false).record(taken(times.begin));
  }
  if (interval_ != Interval::kOperation) recorder(kind, failed, true).record(taken(times.due));
}

void Measurements::outcome(Kind kind, Outcome ended) {
  add_one(outcomes_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(ended)]);
}

std::uint64_t Measurements::outcomes(Kind kind, Outcome ended) const {
  return outcomes_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(ended)].load(
      std::memory_order_relaxed);
}

std::vector<Row> collect(const std::vector<const Measurements*>& threads) {
  std::vector<Row> rows;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    for (std::size_t place = 0; place < 4; ++place) {
      const bool failed = place >= 2;
      const bool intended = place % 2 == 1;
      Row row;
      for (const Measurements* thread : threads) {
        const bool alone = thread->interval_ == Interval::kIntended;
        row.name = row_name(static_cast<Kind>(kind), failed, intended && !alone);
        const auto* recorder = thread->recorders_[kind][place].load(std::memory_order_acquire);
        if (recorder != nullptr) recorder->add_to(row.latency);
        if (failed || intended != alone) continue;
        for (std::size_t i = 0; i < kOutcomes; ++i)
          row.outcomes[i] += thread->outcomes_[kind][i].load(std::memory_order_relaxed);
      }
      if (row.any()) rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<Row> since(std::vector<Row> now, const std::vector<Row>& before) {
  for (Row& row : now) {
    const auto old = std::ranges::find(before, row.name, &Row::name);
    if (old == before.end()) continue;
    row.latency.subtract(old->latency);
    for (std::size_t i = 0; i < kOutcomes; ++i)
      row.outcomes[i] -= old->outcomes[i];
  }
  std::erase_if(now, [](const Row& row) { return !row.any(); });
  return now;
}

}  // namespace rkv::kvbench
