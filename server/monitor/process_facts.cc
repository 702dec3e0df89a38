#include "server/monitor/process_facts.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

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

// The second number of /proc/self/statm. Does not use a stream: its checks under UBSan need
// descriptors.
std::optional<std::uint64_t> resident_pages() {
  std::array<char, 128> text{};
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const ssize_t length = read(fd, text.data(), text.size() - 1);
  close(fd);
  const char* const second = length > 0 ? std::strchr(text.data(), ' ') : nullptr;
  if (second == nullptr) return std::nullopt;
  return std::strtoull(second + 1, nullptr, 10);
}

}  // namespace

ProcessFacts ProcessFacts::now() {
  ProcessFacts facts;
  const ProcessTime used = ProcessTime::now();
  facts.cpu_seconds = static_cast<double>(used.user_us + used.system_us) / 1e6;
  if (const auto pages = resident_pages())
    facts.resident_bytes = *pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (const auto open = entries_of("/proc/self/fd"); open && *open > 0)
    facts.open_files = *open - 1;  // not the descriptor used for counting
  facts.threads = entries_of("/proc/self/task");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.max_files = limit.rlim_cur;
  return facts;
}

}  // namespace rkv::server
