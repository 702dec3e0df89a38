// Judges the facts about a machine: one member function for each check of kvclient doctor. They are
// defined in doctor_machine.cc (kernel and devices), doctor_ports.cc and doctor_limits.cc.
//
// Thread safety: none. Changes nothing but its findings.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "client/cli/doctor.h"

namespace rkv::cli {

class Judge {
 public:
  using Level = Finding::Level;
  using DeviceFacts = rdma::DeviceFacts;
  using PortFacts = rdma::PortFacts;
  using GidFacts = rdma::GidFacts;

  Judge(const MachineFacts& facts, const Asked& asked) : facts_(facts), asked_(asked) {
    for (const DeviceFacts& device : facts.verbs.devices) {
      if (asked.device.empty() || device.name == asked.device) devices_.push_back(&device);
    }
  }

  std::vector<Finding> run() {
    if (may_be_verbs(asked_.transport)) {
      devices();
      modules();
      files();
      namespaces();
      for (const DeviceFacts* device : devices_)
        ports(*device);
      missing_port();
      gids();
      memlock();
      for (const DeviceFacts* device : devices_)
        abilities(*device);
      if (!devices_.empty()) timers();
      if (facts_.trial) trial(*facts_.trial);
    }
    huge_pages();
    shared_memory();
    return std::move(out_);
  }

 private:
  void add(Level level, const char* check, std::string subject, std::string found,
           std::string advice = {}) {
    out_.push_back({.check = check,
                    .subject = std::move(subject),
                    .level = level,
                    .found = std::move(found),
                    .advice = std::move(advice)});
  }

  bool has_kernel_devices() const { return !facts_.system.devices.empty(); }
  // Level of a fault that keeps verbs from working. With auto and no device shared memory and TCP
  // remain.
  Level broken() const {
    const bool wants_verbs = asked_.transport == Transport::kVerbs || !asked_.device.empty();
    return wants_verbs || has_kernel_devices() ? Level::kError : Level::kWarning;
  }
  bool has_devices() const { return has_kernel_devices() || !facts_.verbs.devices.empty(); }
  // Returns true if the port is the requested port, or no port was requested.
  bool is_meant(const PortFacts& port) const {
    return asked_.port == 0 || port.number == asked_.port;
  }
  bool any_active() const {
    return std::ranges::any_of(devices_, [&](const DeviceFacts* device) {
      return std::ranges::any_of(
          device->ports, [&](const PortFacts& port) { return port.active && is_meant(port); });
    });
  }
  const rdma::NetworkInterface* interface(const std::string& name) const {
    const auto& all = facts_.system.interfaces;
    const auto found = std::ranges::find(all, name, &rdma::NetworkInterface::name);
    return found == all.end() ? nullptr : &*found;
  }
  std::string netdev_of(const DeviceFacts& device, std::uint8_t port) const {
    for (const GidFacts& gid : device.gids) {
      if (gid.port == port && !gid.netdev.empty()) return gid.netdev;
    }
    for (const rdma::KernelDevice& known : facts_.system.devices) {
      if (known.name == device.name && port == 1) return known.netdev;
    }
    return {};
  }
  // The interface for a new SoftRoCE device: that of the default route, else the first that is up.
  std::string likely_interface() const {
    if (!facts_.system.route_interface.empty()) return facts_.system.route_interface;
    for (const rdma::NetworkInterface& one : facts_.system.interfaces) {
      if (one.up && !one.loopback) return one.name;
    }
    return "INTERFACE";
  }

  void devices();
  void no_device();
  void modules();
  void unseen_devices();
  void files();
  void unusable_files(rdma::FileState state, bool spare);
  void namespaces();
  void ports(const DeviceFacts& device);
  void down(const DeviceFacts& device, const PortFacts& port);
  void mtu(const DeviceFacts& device, const PortFacts& port);
  void missing_port();
  void gids();
  void no_gid();
  void gid(const DeviceFacts& device, const PortFacts& port);
  std::string use_of(const rdma::ChosenPath& path) const;
  void memlock();
  std::string raise_memlock() const;
  void abilities(const DeviceFacts& device);
  void timers();
  void trial(const rdma::Trial& trial);
  void failed_swap(const rdma::Trial& trial);
  void huge_pages();
  void shared_memory();

  const MachineFacts& facts_;
  const Asked& asked_;
  std::vector<const DeviceFacts*> devices_;  // the requested devices
  std::vector<Finding> out_;
};

}  // namespace rkv::cli
