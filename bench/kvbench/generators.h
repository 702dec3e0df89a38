// YCSB's generators of numbers, with the same distributions, constants and quirks. Facts from
// YCSB's sources (package site.ycsb.generator); the zipfian algorithm is Gray et al., "Quickly
// generating billion-record synthetic databases", SIGMOD 1994.
//
// All bounds of generators are inclusive. Each generator draws from the caller's Random, so that
// each thread has its own and a run can be repeated.
//
// Thread safety: const functions from any number of threads. Latest has state; each thread has its
// copy. Sequential and AcknowledgedCounter are shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bench/kvbench/properties.h"
#include "bench/kvbench/random_source.h"
#include "common/mutex.h"
#include "common/random.h"

namespace rkv::kvbench {

inline constexpr double kZipfianConstant = 0.99;

// The sum of 1/i^theta for i from `first` to `last`. REQUIRES: first > 0 and theta not 1. Takes
// less than a millisecond for any range (YCSB adds all terms: a minute for 10^8).
double zeta(std::uint64_t first, std::uint64_t last, double theta);

class Uniform {
 public:
  Uniform(std::uint64_t least, std::uint64_t most) : least_(least), count_(most - least + 1) {}
  std::uint64_t next(Random& random) const { return least_ + random.below(count_); }

 private:
  std::uint64_t least_;
  std::uint64_t count_;
};

// Rank r (from 0) has a probability of nearly 1/(r+1)^0.99 times a constant: ranks from 2 on come
// from a continuous approximation.
class Zipfian {
 public:
  Zipfian(std::uint64_t least, std::uint64_t most);
  // With the known sum of the items' weights.
  Zipfian(std::uint64_t least, std::uint64_t most, double zeta_of_items);
  std::uint64_t next(Random& random) const { return at(next_double(random)); }
  // The result for a draw of `u` from [0, 1).
  std::uint64_t at(double u) const;
  // Raises the number of items. As in YCSB, `eta` keeps the value for the first number of items.
  void grow(std::uint64_t items);
  std::uint64_t items() const { return items_; }

 private:
  double eta() const;

  std::uint64_t least_;
  std::uint64_t items_;
  std::uint64_t first_items_;
  double zeta_;
  double eta_;
};

// A zipfian over 10^10 items, each mapped to a number by the key hash. Popular numbers are
// scattered, and the popular items do not depend on the number of records.
class ScrambledZipfian {
 public:
  ScrambledZipfian(std::uint64_t least, std::uint64_t most);
  std::uint64_t next(Random& random) const { return scatter(ranks_.next(random)); }
  // The number for the item of this rank.
  std::uint64_t scatter(std::uint64_t rank) const;

  static constexpr std::uint64_t kItems = 10'000'000'000;
  static constexpr double kZetaOfItems = 26.46902820178302;

 private:
  std::uint64_t least_;
  std::uint64_t count_;
  Zipfian ranks_;
};

// The first part of the numbers gets a fixed part of the draws.
class Hotspot {
 public:
  Hotspot(std::uint64_t least, std::uint64_t most, double hot_data, double hot_operations);
  std::uint64_t next(Random& random) const;

 private:
  std::uint64_t least_;
  std::uint64_t hot_count_;
  std::uint64_t cold_count_;
  double hot_operations_;
};

// Distances from the newest record. `percentile` percent of the distances are within `range`,
// before distances beyond the oldest record are excluded. YCSB draws those again, which need not
// end; here one draw from the same distribution suffices.
class Exponential {
 public:
  // REQUIRES: 0 < percentile <= 100, range >= 0. A percentile of 100 or a range of 0 always gives
  // the newest record, as in YCSB.
  Exponential(double percentile, double range);
  // `end`: one past the newest record, above 0.
  std::uint64_t next(Random& random, std::uint64_t end) const {
    return at(next_double(random), end);
  }
  // The result for a draw of `u` from [0, 1).
  std::uint64_t at(double u, std::uint64_t end) const;

 private:
  double gamma_;
};

// Numbers in sequence, shared by all threads; starts again after the last number.
class Sequential {
 public:
  Sequential(std::uint64_t least, std::uint64_t most) : least_(least), count_(most - least + 1) {}
  std::uint64_t next() {
    return least_ + counter_.fetch_add(1, std::memory_order_relaxed) % count_;
  }

 private:
  std::uint64_t least_;
  std::uint64_t count_;
  std::atomic<std::uint64_t> counter_{0};
};

// Numbers of records to insert. Readers choose a number only when it and all numbers before it have
// been acknowledged: the record exists then.
//
// Invariants: LATEST-1  every number given out by next() is acknowledged once.
//             LATEST-2  last() + 1 is the least number not acknowledged; it only rises.
// next() and last() do not block; acknowledge() takes a lock, after a request to the server.
class AcknowledgedCounter {
 public:
  explicit AcknowledgedCounter(std::uint64_t first) : next_(first), end_(first) {}
  std::uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }
  void acknowledge(std::uint64_t number);
  // One past the highest number that readers may choose. Acquire: makes visible what an inserter
  // did before it acknowledged.
  std::uint64_t end() const { return end_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint64_t> next_;
  std::atomic<std::uint64_t> end_;
  Mutex mutex_;
  std::vector<std::uint64_t> ahead_ RKV_GUARDED_BY(mutex_);  // acknowledged above end_; a min-heap
};

// The newest record is the most popular: distances from it are zipfian. One per thread, because its
// zipfian grows with the records.
class Latest {
 public:
  explicit Latest(std::uint64_t records);
  // `end`: one past the newest record.
  std::uint64_t next(Random& random, std::uint64_t end);

 private:
  Zipfian distances_;
};

// Field lengths drawn from a histogram file: "BlockSize<TAB>bytes", then "bucket<TAB>count" lines.
class LengthHistogram {
 public:
  static OrSentence<LengthHistogram> read_file(const std::string& path);
  std::uint64_t next(Random& random) const;
  // At most kMaxValueBytes times a million; read_file() refuses larger files, so the product cannot
  // overflow.
  std::uint64_t most() const { return block_bytes_ * counts_.size(); }

 private:
  std::uint64_t block_bytes_ = 0;
  std::uint64_t total_ = 0;
  std::vector<std::uint64_t> counts_;
};

// Always the same value.
struct Constant {
  std::uint64_t value = 0;
  std::uint64_t next(Random&) const { return value; }
};

// Lengths of fields and scans.
using LengthGenerator = std::variant<Constant, Uniform, Zipfian, LengthHistogram>;
inline std::uint64_t next_length(const LengthGenerator& generator, Random& random) {
  return std::visit([&](const auto& one) { return one.next(random); }, generator);
}

}  // namespace rkv::kvbench
