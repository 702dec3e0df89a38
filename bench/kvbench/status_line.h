// YCSB's status line on standard error: progress of the run, and measurements of the last interval.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/kvbench/measurements.h"
#include "common/clock.h"

namespace rkv::kvbench {

class StatusLine {
 public:
  StatusLine(std::string label, Nanos began)
      : label_(std::move(label)), began_(began), last_(began) {}
  // `rows`: measurements since the last line. `total`: number of operations, 0 = unknown.
  void print(Nanos now, std::uint64_t done, std::uint64_t total, const std::vector<Row>& rows);
  std::string line(Nanos now, std::uint64_t done, std::uint64_t total, const std::vector<Row>& rows,
                   const std::string& date) const;

 private:
  std::string label_;
  Nanos began_;
  Nanos last_;
  std::uint64_t last_done_ = 0;
};

}  // namespace rkv::kvbench
