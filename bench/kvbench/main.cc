// kvbench: YCSB's core workloads against a kvserver.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/kvbench/environment.h"
#include "bench/kvbench/options.h"
#include "bench/kvbench/report.h"
#include "bench/kvbench/run.h"
#include "common/keep_descriptors.h"

namespace rkv::kvbench {
namespace {

// Returns false if writing failed; then the failure was reported.
bool write_out(const std::string& text, const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(path.empty() ? nullptr
                                                            : std::fopen(path.c_str(), "we"));
  std::FILE* const out = path.empty() ? stdout : file.get();
  bool arrived = out != nullptr && std::fputs(text.c_str(), out) >= 0;
  arrived = arrived && std::fflush(out) == 0;
  if (!arrived) {
    complain(fmt::format("cannot write to {}: {}", path.empty() ? "standard output" : path,
                         std::strerror(errno)));
  }
  return arrived;
}

int run_and_report(const Options& options, const std::vector<std::string>& command) {
  for (const std::string& note : options.notes)
    complain(note);
  const auto results = run(options);
  if (!results) {
    complain(results.error().sentence);
    return results.error().exit_code;
  }
  if (!results->complete) {
    complain(fmt::format("{}; the results cover {} operations, {} were not run", results->why,
                         results->operations, results->missing));
  } else if (results->failed != 0) {
    complain(fmt::format("{} operation{} failed: see the lines with Return=", results->failed,
                         results->failed == 1 ? "" : "s"));
  }
  if (!results->log_problem.empty()) complain(results->log_problem);
  const std::string text = report(options, *results, environment(results->transport), command);
  // Prints the results if they could not be written to the file.
  bool arrived = write_out(text, options.export_file);
  if (!arrived && !options.export_file.empty()) write_out(text, "");
  if (!results->complete || !arrived || !results->log_problem.empty()) return kPartial;
  return results->failed != 0 ? kSomeFailed : kDone;
}

int run_program(const std::vector<std::string>& command) {
  const Parsed parsed = parse_arguments({command.begin() + 1, command.end()},
                                        [](const char* name) { return std::getenv(name); });
  switch (parsed.kind) {
    case Parsed::Kind::kText:
      return write_out(parsed.text, "") ? kDone : kPartial;
    case Parsed::Kind::kUsageError:
      complain(parsed.text);
      return kUsage;
    case Parsed::Kind::kRun:
      break;
  }
  return run_and_report(parsed.options, command);
}

}  // namespace
}  // namespace rkv::kvbench

RKV_KEEP_STANDARD_DESCRIPTORS;

int main(int argc, char** argv) {
  try {
    return rkv::kvbench::run_program({argv, argv + argc});
  } catch (const std::exception& problem) {  // mostly std::bad_alloc
    rkv::kvbench::complain(problem.what());
    return rkv::kvbench::kPartial;
  }
}
