// How long requests took in the server: from the moment that a worker took one from its receive
// queue (or posted the READ for one that is too long to be sent) until its answer had been posted.
// The way through network and adapter is not in it.
//
// No clock is read for it. A worker reads the clock once a turn, when it has found completions, and
// once before it goes to sleep; one of the two follows each turn. So an answer is noted with the
// time of its request's turn, and gets its end at the next of these: too late by what the worker
// does until then, an empty poll (some 100 ns) or the next batch of completions.
//
// Buckets are HdrHistogram's with 8 to a doubling (LogLinearBuckets): a percentile is at most 1/8
// too high.
//
// Thread safety: the worker writes, anybody may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/histogram.h"
#include "server/metrics.h"

namespace rkv::server {

using TimingBuckets = LogLinearBuckets<3>;
// Up to 2^37 ns, 137 s; what is longer is counted there. No request is awaited as long.
inline constexpr unsigned kTimingBits = 37;
inline constexpr std::size_t kTimingBuckets = TimingBuckets::count(kTimingBits);

// A copy, of one worker or of several.
struct TimingSum {
  std::array<std::uint64_t, kTimingBuckets> buckets{};
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  // Upper end of the bucket at this percentile (0 to 100), in nanoseconds; 0 when empty.
  std::uint64_t percentile(double percent) const;
  // How many took at most 2^power nanoseconds.
  std::uint64_t at_most_power(unsigned power) const;
};

class Timings {
 public:
  // `answers`: in one turn at most; more are timed at once, which reads the clock.
  Timings(const Clock& clock, std::size_t answers);

  void answered(Opcode opcode, Nanos taken) {
    if (pending_.size() == pending_.capacity()) [[unlikely]]
      at(clock_.now());
    pending_.push_back({.taken = taken, .opcode = opcode});
  }
  // The time, where somebody has read it anyway.
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
