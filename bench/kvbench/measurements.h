// What a run measures: per kind of operation a histogram of latencies and how operations ended,
// with YCSB's names. Each thread has a Measurements of its own; summaries are taken while they are
// written.
//
// Latencies are nanoseconds. Failed operations are counted apart, as "READ-FAILED". With
// measurement.interval=both, every latency is also taken from the moment at which the operation was
// due, as "Intended-READ": under -target a stalled store delays what follows, and these rows say by
// how much (the plain ones omit it, the coordinated omission).
//
// Thread safety: one writer; summaries from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/kvbench/hdr_histogram.h"
#include "common/clock.h"

namespace rkv::kvbench {

enum class Kind : std::uint8_t {
  kRead,
  kUpdate,
  kInsert,
  kScan,
  kReadModifyWrite,
  kScanPerRecord,
  kVerify,
  kCleanup,
};
inline constexpr std::size_t kKinds = 8;
std::string_view name_of(Kind kind);  // "READ-MODIFY-WRITE"

// How an operation ended, in YCSB's words.
enum class Outcome : std::uint8_t {
  kOk,
  kNotFound,
  kError,
  kUnexpectedState,
  kServiceUnavailable,
  kBadRequest,
  kForbidden,
  kNotImplemented,
};
inline constexpr std::size_t kOutcomes = 8;
std::string_view name_of(Outcome outcome);  // "NOT_FOUND"

// measurement.interval: from when the operation began, from when it was due, or both.
enum class Interval : std::uint8_t { kOperation, kIntended, kBoth };

struct Times {
  Nanos due = 0;
  Nanos begin = 0;
  Nanos end = 0;
};

// One row of the results, complete or of the time since an earlier one.
struct Row {
  std::string name;  // "READ", "Intended-READ", "READ-FAILED"
  HdrHistogram latency;
  std::array<std::uint64_t, kOutcomes> outcomes{};  // empty where the name has none of its own
  bool any() const;
};

class Measurements {
 public:
  explicit Measurements(Interval interval) : interval_(interval) {}
  ~Measurements();
  Measurements(const Measurements&) = delete;
  Measurements& operator=(const Measurements&) = delete;

  // An operation on the store. Allocates at the first of its kind.
  void operation(Kind kind, Outcome outcome, const Times& times);
  // The same without an outcome: what is made of several operations, and what is no operation.
  void latency(Kind kind, const Times& times, bool failed = false);
  void outcome(Kind kind, Outcome outcome);

  std::uint64_t outcomes(Kind kind, Outcome outcome) const;

 private:
  friend std::vector<Row> collect(const std::vector<const Measurements*>& threads);
  // Of one kind: succeeded and failed, each plain and intended. Made by the writer at first use.
  using Recorders = std::array<std::atomic<LatencyRecorder*>, 4>;
  LatencyRecorder& recorder(Kind kind, bool failed, bool intended);

  const Interval interval_;
  std::array<Recorders, kKinds> recorders_{};
  std::array<std::array<std::atomic<std::uint64_t>, kOutcomes>, kKinds> outcomes_{};
};

// All threads together; rows without anything are left out. In a fixed order.
std::vector<Row> collect(const std::vector<const Measurements*>& threads);
// What has come since; rows are matched by name.
std::vector<Row> since(std::vector<Row> now, const std::vector<Row>& before);

}  // namespace rkv::kvbench
