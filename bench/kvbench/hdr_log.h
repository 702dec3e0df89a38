// Histogram logs (.hlog, format version 1.3): one file per row of the results, one line per
// interval. HdrHistogram's own tools and HistogramLogReader can read them. Values are nanoseconds.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/kvbench/measurements.h"

namespace rkv::kvbench {

class HdrLog {
 public:
  // Files are named `prefix`, the row's name and ".hdr", as in YCSB. Existing files are replaced.
  explicit HdrLog(std::string prefix);
  // Adds what was measured since the last call, or since construction.
  void add(const std::vector<Row>& rows);
  // One sentence on why a file could not be written; empty: no problem.
  std::string problem() const { return problem_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  std::FILE* file_of(const std::string& row);

  std::string prefix_;
  std::chrono::system_clock::time_point began_;
  std::chrono::system_clock::time_point last_;
  std::map<std::string, File> files_;
  std::string problem_;
};

}  // namespace rkv::kvbench
