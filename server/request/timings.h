// Timings: how long requests took in the server. A request's time starts when a worker takes it
// from its receive queue, or, for a request too long to be sent, when its READ is posted. It ends
// when the answer was posted. Time in the network and the adapter is not included.
//
// Timing needs no clock reads of its own. A worker reads the clock once per turn that has found
// completions, and once before it sleeps; one of the two follows each turn. An answer is noted with
// the start of its request's turn and gets its end at the next of these clock reads. So the end is
// late by the worker's work until then: an empty poll (about 100 ns) or the next batch of
// completions.
//
// Buckets are HdrHistogram's, 8 per power of two (LogLinearBuckets): a percentile is at most 1/8
// too high.
//
// Thread safety: the worker writes; any thread may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/histogram.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

using TimingBuckets = LogLinearBuckets<3>;
// Up to 2^37 ns = 137 s; longer times count in the last bucket. No request is awaited that long.
inline constexpr unsigned kTimingBits = 37;
inline constexpr std::size_t kTimingBuckets = TimingBuckets::count(kTimingBits);

// A copy of one worker's timings, or the sum of several workers'.
struct TimingSum {
  std::array<std::uint64_t, kTimingBuckets> buckets{};
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  // Upper bound of the bucket at this percentile (0 to 100), in nanoseconds; 0 if empty.
  std::uint64_t percentile(double percent) const;
  // Number of requests that took at most 2^power nanoseconds.
  std::uint64_t at_most_power(unsigned power) const;
};

class Timings {
 public:
  // `answers`: the expected maximum per turn. Beyond it answers get their end at once, which reads
  // the clock.
  Timings(const Clock& clock, std::size_t answers);

  // Notes an answer to a request that was taken at `taken`.
  void answered(Opcode opcode, Nanos taken) {
    if (pending_.size() == pending_.capacity()) [[unlikely]]
      at(clock_.now());
    pending_.push_back({.taken = taken, .opcode = opcode});
  }
  // Call it whenever the worker has read the clock: `now` becomes the end of the answers noted
  // before.
  void at(Nanos now) {
    if (!pending_.empty()) end(now);
  }
  void add_to(TimingSum& sum, Opcode opcode) const;

 private:
  struct Pending {
    Nanos taken;
    Opcode opcode;
  };
  struct Series {
    std::array<std::atomic<std::uint64_t>, kTimingBuckets> buckets{};
    std::atomic<std::uint64_t> sum_ns{0};
  };
  void end(Nanos now);

  const Clock& clock_;
  std::vector<Pending> pending_;
  std::unique_ptr<std::array<Series, kOperations>> all_;
};

}  // namespace rkv::server
