// Measurements of a run: per kind of operation a histogram of latencies and counts of outcomes,
// with YCSB's names. Each thread has a Measurements; summaries may be taken while it is written.
//
// Latencies are nanoseconds. Failed operations are counted separately, as "READ-FAILED". With
// measurement.interval=both each latency is also taken from the moment when the operation was due,
// as "Intended-READ". Under -target a stalled store delays later operations; these rows show by how
// much (the plain rows do not: the coordinated omission).
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

// Outcome of an operation, with YCSB's names.
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

// measurement.interval: latency from the operation's begin, from when it was due, or both.
enum class Interval : std::uint8_t { kOperation, kIntended, kBoth };

struct Times {
  Nanos due = 0;
  Nanos begin = 0;
  Nanos end = 0;
};

// One row of the results, complete or since an earlier row.
struct Row {
  std::string name;  // "READ", "Intended-READ", "READ-FAILED"
  HdrHistogram latency;
  std::array<std::uint64_t, kOutcomes> outcomes{};  // empty if the row has no outcomes
  bool any() const;
};

class Measurements {
 public:
  explicit Measurements(Interval interval) : interval_(interval) {}
  ~Measurements();
  Measurements(const Measurements&) = delete;
  Measurements& operator=(const Measurements&) = delete;

  // Records an operation on the store. Allocates at the first operation of a kind.
  void operation(Kind kind, Outcome outcome, const Times& times);
  // Records a latency without an outcome, for compound operations and for steps that are not
  // operations.
  void latency(Kind kind, const Times& times, bool failed = false);
  void outcome(Kind kind, Outcome outcome);

  std::uint64_t outcomes(Kind kind, Outcome outcome) const;

 private:
  friend std::vector<Row> collect(const std::vector<const Measurements*>& threads);
  // Recorders of one kind: succeeded and failed, each plain and intended. The writer creates them
  // at first use.
  using Recorders = std::array<std::atomic<LatencyRecorder*>, 4>;
  LatencyRecorder& recorder(Kind kind, bool failed, bool intended);

  const Interval interval_;
  std::array<Recorders, kKinds> recorders_{};
  std::array<std::array<std::atomic<std::uint64_t>, kOutcomes>, kKinds> outcomes_{};
};

// Sums over all threads, in a fixed order. Empty rows are left out.
std::vector<Row> collect(const std::vector<const Measurements*>& threads);
// The difference between two collections; rows are matched by name.
std::vector<Row> since(std::vector<Row> now, const std::vector<Row>& before);

}  // namespace rkv::kvbench
