// kvclient doctor: devices, modules, files and namespaces, as the kernel reports them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "client/cli/doctor_judge.h"

namespace rkv::cli {

void Judge::no_device() {
  const char* const instead =
      asked_.transport == Transport::kVerbs
          ? ""
          : ": servers on this host are reached over shared memory, others over TCP";
  const std::string make = fmt::format(
      "`modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {}` creates one on an ordinary "
      "interface (SoftRoCE)",
      facts_.system.could_have_rxe ? likely_interface() : "INTERFACE");
  const std::string advice =
      !facts_.verbs.list_error.empty() ? facts_.verbs.list_error
      : facts_.system.could_have_rxe   ? "as root: " + make
      : !facts_.system.knows_modules
          ? fmt::format(
                "this kernel's modules are not visible here (a container?): on the host, as root, "
                "{}; then start the container with `--network host --device /dev/infiniband`",
                make)
          : "this kernel has no rdma_rxe: Debian's `linux-image-amd64` has it (the cloud flavour "
            "does not); with an adapter, install its driver; for a container, use `--device "
            "/dev/infiniband`";
  add(broken(), "devices", "", fmt::format("no RDMA device{}", instead), advice);
}

void Judge::devices() {
  if (!has_devices()) return no_device();
  std::vector<std::string> names;
  for (const DeviceFacts& device : facts_.verbs.devices) {
    names.push_back(device.soft_roce ? device.name + " (SoftRoCE)" : device.name);
  }
  const bool in_kernel =
      std::ranges::find(facts_.system.devices, asked_.device, &rdma::KernelDevice::name) !=
      facts_.system.devices.end();
  if (!asked_.device.empty() && devices_.empty() && !in_kernel) {
    std::vector<std::string> all;
    for (const rdma::KernelDevice& device : facts_.system.devices)
      all.push_back(device.name);
    const std::string& other = names.empty() ? all.front() : facts_.verbs.devices.front().name;
    add(Level::kError, "devices", asked_.device,
        fmt::format("no RDMA device has this name; the devices are: {}",
                    fmt::join(names.empty() ? all : names, ", ")),
        fmt::format("`--device {}`, or leave it out: the device that routes to the server is used",
                    other));
  }
  if (!names.empty()) add(Level::kOk, "devices", "", fmt::format("{}", fmt::join(names, ", ")));
  unseen_devices();
  for (const DeviceFacts* device : devices_) {
    if (device->open_error.empty()) continue;
    add(Level::kError, "devices", device->name,
        fmt::format("cannot be used: {}", device->open_error),
        "fix the errors of modules and device files below");
  }
}

// Reports devices that libibverbs leaves out: without a provider, or without a device file.
void Judge::unseen_devices() {
  if (!facts_.system.has_uverbs) return;  // libibverbs finds nothing; this is reported already
  std::vector<std::string> no_provider;
  std::vector<std::string> no_file;
  for (const rdma::KernelDevice& device : facts_.system.devices) {
    const auto& seen = facts_.verbs.devices;
    if (std::ranges::find(seen, device.name, &DeviceFacts::name) != seen.end()) continue;
    if (!asked_.device.empty() && device.name != asked_.device) continue;
    const auto& files = facts_.system.files;
    const auto file = std::ranges::find(files, device.name, &rdma::DeviceFile::device);
    const bool usable = file == files.end() || file->state == rdma::FileState::kUsable;
    (usable ? no_provider : no_file).push_back(device.name);
  }
  const bool none_left = devices_.empty();
  if (!no_provider.empty()) {
    const bool listed = facts_.verbs.list_error.empty();  // else the library itself may be missing
    add(none_left ? Level::kError : Level::kWarning, "devices", "",
        fmt::format("the kernel has {}, but libibverbs does not see it{}",
                    fmt::join(no_provider, ", "), listed ? "" : ": " + facts_.verbs.list_error),
        fmt::format("install its provider, as root: `apt-get install {}ibverbs-providers`",
                    listed ? "" : "libibverbs1 librdmacm1 "));
  }
  // If other devices are left, only the files are reported, below.
  if (!no_file.empty() && none_left) {
    add(Level::kError, "devices", "",
        fmt::format("the kernel has {}, but no program here can use it", fmt::join(no_file, ", ")),
        "fix the error of its device file below");
  }
}

void Judge::modules() {
  if (!has_kernel_devices()) return;  // modules are loaded with a device
  const auto judge = [&](const char* name, bool has, bool had, const char* what) {
    if (!has) {
      add(Level::kError, "modules", name, fmt::format("not loaded: {}", what),
          facts_.system.could_have_cm
              ? fmt::format("as root: `modprobe {}` (to keep it loaded: {} in a file of "
                            "/etc/modules-load.d)",
                            name, name)
              : fmt::format("it is not in /lib/modules here: in a container, load it on the host "
                            "(`modprobe {}`); else install this kernel's package of modules",
                            name));
    } else {
      add(Level::kOk, "modules", name, had ? "loaded" : "loaded now, on first use");
    }
  };
  judge("ib_uverbs", facts_.system.has_uverbs, facts_.had_uverbs, "no program can use a device");
  judge("rdma_ucm", facts_.system.has_cm, facts_.had_cm, "nothing can be connected by address");
  const bool soft = std::ranges::any_of(facts_.verbs.devices, &DeviceFacts::soft_roce);
  if (soft && facts_.system.has_rxe) add(Level::kOk, "modules", "rdma_rxe", "loaded");
}

// Checks the files of the devices in question. A container may have only one of several devices.
void Judge::files() {
  using rdma::FileState;
  if (!has_kernel_devices()) return;
  unusable_files(FileState::kForbidden, false);
  unusable_files(FileState::kMissing, false);
  unusable_files(FileState::kForbidden, true);
  unusable_files(FileState::kMissing, true);
  std::vector<std::string> usable;
  for (const rdma::DeviceFile& file : facts_.system.files) {
    if (file.state == FileState::kUsable) usable.push_back(file.path);
  }
  if (!usable.empty()) {
    add(Level::kOk, "device_files", "", fmt::format("{}: usable", fmt::join(usable, ", ")));
  }
}

// `spare`: files of devices that were not named, while another device can be used; else all others.
void Judge::unusable_files(rdma::FileState state, bool spare) {
  using rdma::FileState;
  const auto& files = facts_.system.files;
  const bool another = asked_.device.empty() && std::ranges::any_of(files, [](const auto& file) {
                         return !file.device.empty() && file.state == FileState::kUsable;
                       });
  std::vector<std::string> paths;
  std::vector<std::string> names;
  for (const rdma::DeviceFile& file : files) {
    const bool of_device = !file.device.empty();
    if (of_device && !asked_.device.empty() && file.device != asked_.device) continue;
    if (file.state != state || (of_device && another) != spare) continue;
    paths.push_back(file.path);
    if (of_device) names.push_back(file.device);
  }
  if (paths.empty()) return;
  const std::string subject = fmt::format("{}", fmt::join(paths, ", "));
  const std::string whose = names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", "));
  const std::string unless = spare ? "no action needed, unless one of these is to be used: " : "";
  const Level level = spare ? Level::kWarning : Level::kError;
  if (state == FileState::kForbidden) {
    add(level, "device_files", subject, "this user may not read and write it" + whose,
        fmt::format("{}as root: `chmod a+rw {}` (to keep it: a udev rule, such as rdma-core's)",
                    unless, fmt::join(paths, " ")));
  } else {
    add(level, "device_files", subject, "missing, though the kernel has the device" + whose,
        fmt::format("{}a container: start it with `--device {}`; else, as root: `udevadm trigger "
                    "--action=add`",
                    unless, spare ? paths.front() : "/dev/infiniband"));
  }
}

void Judge::namespaces() {
  using rdma::NamespaceMode;
  const NamespaceMode mode = facts_.system.namespaces;
  if (mode == NamespaceMode::kShared) {
    add(Level::kOk, "namespace", "", "shared: devices are visible in every network namespace");
  } else if (mode == NamespaceMode::kExclusive && has_kernel_devices()) {
    add(Level::kOk, "namespace", "", "exclusive: these devices belong to this network namespace");
  } else if (mode == NamespaceMode::kExclusive) {
    add(broken(), "namespace", "", "exclusive: devices of other network namespaces are not visible",
        "use the host's network (docker: `--network host`); or give this namespace an adapter (not "
        "SoftRoCE of Linux 6.1), as root where the adapter is: `rdma dev set DEVICE netns NAME`; "
        "shared mode is set at boot: `options ib_core netns_mode=1` in /etc/modprobe.d");
  }
}

std::vector<Finding> judge_machine(const MachineFacts& facts, const Asked& asked) {
  return Judge(facts, asked).run();
}

}  // namespace rkv::cli
