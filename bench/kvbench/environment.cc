#include "bench/kvbench/environment.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "git_revision.h"

namespace rkv::kvbench {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// The second word of "verbs: rxe0 port 1 ...".
std::string device_of(std::string_view transport) {
  constexpr std::string_view kVerbs = "verbs: ";
  if (!transport.starts_with(kVerbs)) return {};
  transport.remove_prefix(kVerbs.size());
  return std::string(transport.substr(0, transport.find(' ')));
}

}  // namespace

RunsOn environment(const std::string& transport) {
  RunsOn on;
  utsname names{};
  if (uname(&names) == 0) on.kernel = fmt::format("{} {}", names.sysname, names.release);
  on.processor = processor();
  on.cores = std::thread::hardware_concurrency();
  on.device = device_of(transport);
  if (on.device.empty()) return on;
  const std::string sys = "/sys/class/infiniband/" + on.device;
  std::error_code error;
  const auto driver = std::filesystem::read_symlink(sys + "/device/driver", error);
  // SoftRoCE has no device below it; it names the network interface that it uses.
  on.is_softroce = std::filesystem::exists(sys + "/parent", error) || on.device.starts_with("rxe");
  on.provider = on.is_softroce ? "rdma_rxe" : driver.filename().string();
  const std::string interface = first_line(sys + "/ports/1/gid_attrs/ndevs/0");
  const std::string mtu = first_line("/sys/class/net/" + interface + "/mtu");
  std::from_chars(mtu.data(), mtu.data() + mtu.size(), on.mtu_bytes);
  return on;
}

std::string git_revision() {
  return RKV_GIT_REVISION;
}

}  // namespace rkv::kvbench
