// Histogram logs (.hlog, format version 1.3), one file for each row of the results: a line for each
// interval. HdrHistogram's own tools, and HistogramLogReader, read them. Values are nanoseconds.
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
  // Files are named `prefix`, the row's name and ".hdr", as YCSB names them. Existing ones are
  // replaced.
  explicit HdrLog(std::string prefix);
  // What was measured since the last call, or since the log was made.
  void add(const std::vector<Row>& rows);
  // Why a file could not be written, one sentence; empty: none.
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
