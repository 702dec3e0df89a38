// The locked-memory limit of this process, and the text of a failed registration with its numbers.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cinttypes>
#include <cstdio>
#include <memory>

#include "rkv/rdma/memory.h"

namespace rkv::rdma {
namespace {

constexpr unsigned kCapIpcLock = 14;
constexpr std::uint64_t kKiB = 1024;

}  // namespace

LockedMemory locked_memory() {
  LockedMemory out;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    out.limit_bytes = limit.rlim_cur == RLIM_INFINITY ? ~std::uint64_t{0} : limit.rlim_cur;
  }
  const auto close_file = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close_file)> file(std::fopen("/proc/self/status", "re"),
                                                              close_file);
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::uint64_t number = 0;
    if (std::sscanf(line, "VmLck: %" SCNu64, &number) == 1 ||
        std::sscanf(line, "VmPin: %" SCNu64, &number) == 1) {
      out.used_bytes += number * kKiB;
    } else if (std::sscanf(line, "CapEff: %" SCNx64, &number) == 1) {
      out.exempt = (number >> kCapIpcLock & 1U) != 0;
    }
  }
  return out;
}

std::string explain_registration(const Error& error, std::uint64_t asked, const LockedMemory& now) {
  std::string out = to_string(error);
  if (error.code != Code::kOutOfMemory || now.unlimited()) return out;
  out += fmt::format("; {} KiB were asked for, {} KiB may be locked, {} KiB of that are in use",
                     asked / kKiB, now.limit_bytes / kKiB, now.used_bytes / kKiB);
  return out;
}

}  // namespace rkv::rdma
