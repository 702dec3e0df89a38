#include "server/process_facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/process_time.h"

namespace rkv::server {

namespace {

std::optional<std::uint64_t> entries_of(const char* directory) {
  std::uint64_t count = 0;
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(directory, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error))
    ++count;
  return error ? std::nullopt : std::optional(count);
}

}  // namespace

ProcessFacts ProcessFacts::now() {
  ProcessFacts facts;
  const ProcessTime used = ProcessTime::now();
  facts.cpu_seconds = static_cast<double>(used.user_us + used.system_us) / 1e6;
  std::uint64_t pages = 0;
  std::uint64_t resident = 0;
  if (std::ifstream statm("/proc/self/statm"); statm >> pages >> resident) {
    facts.resident_bytes = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }
  if (const auto open = entries_of("/proc/self/fd"); open && *open > 0)
    facts.open_files = *open - 1;  // not the one that counts them
  facts.threads = entries_of("/proc/self/task");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.max_files = limit.rlim_cur;
  return facts;
}

}  // namespace rkv::server
