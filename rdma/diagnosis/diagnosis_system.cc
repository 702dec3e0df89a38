// The part of rdma/diagnosis/diagnosis.h that reads files.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "rdma/diagnosis/diagnosis.h"

namespace rkv::rdma {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

std::string first_line(const fs::path& path) {
  const std::string text = read_text(path);
  return text.substr(0, text.find('\n'));
}

std::uint64_t number(const std::string& text, int base = 10, std::uint64_t otherwise = 0) {
  std::uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return end.ec == std::errc{} ? value : otherwise;
}

// Returns the names in a directory, sorted; none if there is no directory.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns the words after "NAME:" at the start of a line.
std::vector<std::string> words_after(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    std::vector<std::string> words;
    for (std::string word; rest >> word;)
      words.push_back(word);
    return words;
  }
  return {};
}

// Returns the word in brackets of "always [madvise] never".
std::string chosen_of(const std::string& text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return text.substr(begin + 1, end - begin - 1);
}

std::string netdev_of(const fs::path& device) {
  // Three sources. SoftRoCE names its interface. An adapter's interface is below the same PCI
  // device. Any RoCE device reports the interface of a GID, which may be missing while the
  // interface is down.
  std::string name = first_line(device / "parent");
  if (!name.empty()) return name;
  for (const std::string& netdev : names_in(device / "device/net"))
    return netdev;
  return first_line(device / "ports/1/gid_attrs/ndevs/0");
}

DeviceFile device_file(const std::string& root, const std::string& path, std::string device = {}) {
  DeviceFile file{.path = path, .device = std::move(device)};
  const std::string full = root + path;
  if (::access(full.c_str(), R_OK | W_OK) == 0) {
    file.state = FileState::kUsable;
  } else if (is_there(full)) {
    file.state = FileState::kForbidden;
  }
  return file;
}

void look_at_modules(const fs::path& root, SystemFacts& facts) {
  const fs::path modules = root / "sys/module";
  // A built-in module may have no folder here, but its devices have classes.
  facts.has_uverbs =
      is_there(modules / "ib_uverbs") || is_there(root / "sys/class/infiniband_verbs");
  facts.has_cm = is_there(modules / "rdma_ucm") || is_there(root / "sys/class/misc/rdma_cm");
  facts.has_rxe = is_there(modules / "rdma_rxe");
  const std::string release = first_line(root / "proc/sys/kernel/osrelease");
  const fs::path folder = root / "lib/modules" / release;
  const std::string loadable = read_text(folder / "modules.dep");
  const std::string known = loadable + read_text(folder / "modules.builtin");
  facts.knows_modules = !loadable.empty();
  facts.could_have_rxe = facts.has_rxe || known.find("/rdma_rxe.ko") != std::string::npos;
  facts.could_have_cm = facts.has_cm || known.find("/rdma_ucm.ko") != std::string::npos;
  const std::string mode = first_line(modules / "ib_core/parameters/netns_mode");
  facts.namespaces = mode == "Y"   ? NamespaceMode::kShared
                     : mode == "N" ? NamespaceMode::kExclusive
                                   : NamespaceMode::kUnknown;
}

void look_at_devices(const std::string& root, SystemFacts& facts) {
  const fs::path classes = root + "/sys/class";
  for (const std::string& name : names_in(classes / "infiniband")) {
    facts.devices.push_back({.name = name, .netdev = netdev_of(classes / "infiniband" / name)});
  }
  for (const std::string& name : names_in(classes / "infiniband_verbs")) {
    if (name.starts_with("uverbs")) {
      facts.files.push_back(device_file(root, "/dev/infiniband/" + name,
                                        first_line(classes / "infiniband_verbs" / name / "ibdev")));
    }
  }
  if (facts.has_cm) facts.files.push_back(device_file(root, "/dev/infiniband/rdma_cm"));
}

void look_at_network(const fs::path& root, SystemFacts& facts) {
  constexpr std::uint64_t kUp = 1;        // IFF_UP
  constexpr std::uint64_t kLoopback = 8;  // IFF_LOOPBACK
  for (const std::string& name : names_in(root / "sys/class/net")) {
    const fs::path folder = root / "sys/class/net" / name;
    const std::string flags = first_line(folder / "flags");  // "0x1003"
    if (!flags.starts_with("0x")) continue;                  // a file, such as bonding_masters
    const std::uint64_t bits = number(flags.substr(2), 16);
    facts.interfaces.push_back(
        {.name = name,
         .mtu_bytes = static_cast<std::uint32_t>(number(first_line(folder / "mtu"))),
         .up = (bits & kUp) != 0,
         .loopback = (bits & kLoopback) != 0});
  }
  std::istringstream routes(read_text(root / "proc/net/route"));
  std::string line;
  std::getline(routes, line);  // headings
  while (facts.route_interface.empty() && std::getline(routes, line)) {
    std::istringstream words(line);
    std::string interface;
    std::string destination;
    if (words >> interface >> destination && destination == "00000000") {
      facts.route_interface = interface;
    }
  }
}

void look_at_limits(const fs::path& root, SystemFacts& facts) {
  // "Max locked memory  8388608  8388608  bytes"
  const auto limits = words_after(read_text(root / "proc/self/limits"), "Max locked memory");
  if (limits.size() >= 2) {
    facts.memlock_bytes = number(limits[0], 10, SystemFacts::kUnlimited);  // "unlimited"
    facts.memlock_most_bytes = number(limits[1], 10, SystemFacts::kUnlimited);
  }
  constexpr std::uint64_t kIpcLock = std::uint64_t{1} << 14;  // CAP_IPC_LOCK
  const std::string status = read_text(root / "proc/self/status");
  const auto capable = words_after(status, "CapEff:");
  const auto user = words_after(status, "Uid:");  // real, effective, ...
  facts.is_root = user.size() >= 2 && user[1] == "0";
  // In a user namespace of its own a process has capabilities that do not count here.
  const auto users = words_after(read_text(root / "proc/self/uid_map"), "");
  const bool whole_machine =
      users.size() == 3 && users[0] == "0" && users[1] == "0" && number(users[2]) == 0xFFFF'FFFF;
  facts.locks_any =
      whole_machine && !capable.empty() && (number(capable.front(), 16) & kIpcLock) != 0;
}

void look_at_pages(const fs::path& root, SystemFacts& facts) {
  const std::string memory = read_text(root / "proc/meminfo");
  const auto value = [&](const char* name) {
    const auto words = words_after(memory, name);
    return words.empty() ? 0 : number(words.front());
  };
  facts.huge_pages = value("HugePages_Total:");
  facts.free_huge_pages = value("HugePages_Free:");
  facts.huge_page_bytes = value("Hugepagesize:") * 1024;
  const fs::path transparent = root / "sys/kernel/mm/transparent_hugepage";
  facts.transparent_huge_pages = chosen_of(first_line(transparent / "enabled"));
  facts.shared_transparent_huge_pages = chosen_of(first_line(transparent / "shmem_enabled"));
}

}  // namespace

SystemFacts look_at_system(const std::string& root) {
  SystemFacts facts;
  const fs::path top = root.empty() ? fs::path("/") : fs::path(root);
  look_at_modules(top, facts);
  look_at_devices(root, facts);
  look_at_network(top, facts);
  look_at_limits(top, facts);
  look_at_pages(top, facts);
  return facts;
}

}  // namespace rkv::rdma
