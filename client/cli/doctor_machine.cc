// kvclient doctor: what the kernel says of devices, modules, files and namespaces.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/cli/doctor_judge.h"

namespace rkv::cli {

void Judge::no_device() {
  const char* const instead = asked_.transport == Transport::kVerbs
                                  ? ""
                                  : ": only servers of this host are reached, over shared memory";
  const std::string advice =
      facts_.system.could_have_rxe
          ? fmt::format(
                "as root: `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {}` "
                "makes one of an ordinary interface (SoftRoCE)",
                likely_interface())
          : "this kernel has no rdma_rxe: Debian's `linux-image-amd64` has (its cloud flavour has "
            "not); with an adapter, install its driver; in a container, give it "
            "`--device /dev/infiniband`";
  add(broken(), "devices", "", fmt::format("no RDMA device{}", instead), advice);
}

void Judge::devices() {
  if (!has_kernel_devices() && facts_.verbs.devices.empty()) return no_device();
  std::vector<std::string> names;
  std::vector<std::string> unseen;
  for (const DeviceFacts& device : facts_.verbs.devices) {
    names.push_back(device.soft_roce ? device.name + " (SoftRoCE)" : device.name);
  }
  for (const rdma::KernelDevice& device : facts_.system.devices) {
    const bool seen = std::ranges::find(facts_.verbs.devices, device.name, &DeviceFacts::name) !=
                      facts_.verbs.devices.end();
    if (!seen) unseen.push_back(device.name);
  }
  if (!asked_.device.empty() && devices_.empty()) {
    const std::string& other = names.empty() ? "NAME" : facts_.verbs.devices.front().name;
    add(Level::kError, "devices", asked_.device,
        fmt::format("no RDMA device has this name; there are: {}", fmt::join(names, ", ")),
        fmt::format("`--device {}`, or none: the one that routes to the server is taken", other));
  }
  if (!names.empty()) add(Level::kOk, "devices", "", fmt::format("{}", fmt::join(names, ", ")));
  if (!unseen.empty() && facts_.system.has_uverbs) {
    add(names.empty() ? Level::kError : Level::kWarning, "devices", "",
        fmt::format("the kernel has {}, libibverbs does not see it{}", fmt::join(unseen, ", "),
                    facts_.verbs.list_error.empty() ? "" : ": " + facts_.verbs.list_error),
        "install its provider, as root: `apt-get install ibverbs-providers`");
  }
  for (const DeviceFacts* device : devices_) {
    if (device->open_error.empty()) continue;
    add(Level::kError, "devices", device->name,
        fmt::format("cannot be used: {}", device->open_error),
        "mend what is wrong with modules and device files below");
  }
}

void Judge::modules() {
  if (!has_kernel_devices()) return;  // they come with a device
  const auto judge = [&](const char* name, bool has, bool had, const char* what) {
    if (!has) {
      add(Level::kError, "modules", name, fmt::format("not loaded: {}", what),
          facts_.system.could_have_cm
              ? fmt::format("as root: `modprobe {}` ({} in a file of /etc/modules-load.d keeps it "
                            "so)",
                            name, name)
              : fmt::format("it is not in /lib/modules here: in a container, load it on the host "
                            "(`modprobe {}`); else install the package of modules of this kernel",
                            name));
    } else {
      add(Level::kOk, "modules", name, had ? "loaded" : "loaded now, by its first use");
    }
  };
  judge("ib_uverbs", facts_.system.has_uverbs, facts_.had_uverbs, "no program can use a device");
  judge("rdma_ucm", facts_.system.has_cm, facts_.had_cm, "nothing can be connected by address");
  const bool soft = std::ranges::any_of(facts_.verbs.devices, &DeviceFacts::soft_roce);
  if (soft && facts_.system.has_rxe) add(Level::kOk, "modules", "rdma_rxe", "loaded");
}

void Judge::files() {
  using rdma::FileState;
  if (!has_kernel_devices() || facts_.system.files.empty()) return;
  std::vector<std::string> usable;
  for (const rdma::DeviceFile& file : facts_.system.files) {
    switch (file.state) {
      case FileState::kUsable:
        usable.push_back(file.path);
        break;
      case FileState::kForbidden:
        add(Level::kError, "device_files", file.path, "this user may not read and write it",
            fmt::format("as root: `chmod a+rw {}` (a rule of udev, such as rdma-core's, keeps it "
                        "so)",
                        file.path));
        break;
      case FileState::kMissing:
        add(Level::kError, "device_files", file.path, "it is not there, though the kernel has it",
            "a container: start it with `--device /dev/infiniband`; else, as root: "
            "`udevadm trigger --action=add`");
        break;
    }
  }
  if (!usable.empty()) {
    add(Level::kOk, "device_files", "", fmt::format("{}: usable", fmt::join(usable, ", ")));
  }
}

void Judge::namespaces() {
  using rdma::NamespaceMode;
  const NamespaceMode mode = facts_.system.namespaces;
  if (mode == NamespaceMode::kShared) {
    add(Level::kOk, "namespace", "", "shared: devices are in view of every network namespace");
  } else if (mode == NamespaceMode::kExclusive && has_kernel_devices()) {
    add(Level::kOk, "namespace", "", "exclusive: these devices belong to this network namespace");
  } else if (mode == NamespaceMode::kExclusive) {
    add(broken(), "namespace", "", "exclusive: devices of other network namespaces are not in view",
        "as root, in the namespace that has the device: `rdma system set netns shared`, or "
        "`rdma dev set DEVICE netns NAME`");
  }
}

std::vector<Finding> judge_machine(const MachineFacts& facts, const Asked& asked) {
  return Judge(facts, asked).run();
}

}  // namespace rkv::cli
