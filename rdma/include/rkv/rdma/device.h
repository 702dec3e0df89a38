// Devices: what RDMA hardware (or SoftRoCE) this machine has, and an opened one.
//
//   RKV_ASSIGN_OR_RETURN(Device device, Device::open_first_active());
//   RKV_ASSIGN_OR_RETURN(DeviceAttributes limits, device.attributes());
//   RKV_ASSIGN_OR_RETURN(std::vector<GidEntry> gids, device.gid_table());
//
// A Device is a handle: share() gives another one to the same opened device, and every object made
// from it keeps it open. Queries are system calls, none waits for the network. Thread safety: a
// Device may be used by several threads at a time; next_async_event() by one.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct PortAttributes {
  std::uint8_t number = 0;
  ibv_port_state state = IBV_PORT_NOP;
  bool ethernet = false;  // RoCE; else InfiniBand
  std::uint32_t active_mtu_bytes = 0;
  std::uint32_t max_mtu_bytes = 0;
  std::uint64_t max_message_bytes = 0;
  std::uint16_t lid = 0;
  std::uint32_t gid_count = 0;
  double speed_gbps = 0;  // lanes times lane rate; 0 where unknown
  bool active() const { return state == IBV_PORT_ACTIVE; }
};

enum class AtomicScope : unsigned char {
  kNone,    // no remote atomics
  kDevice,  // atomic among this device's own queue pairs only: the CPU must not store to the word
  kGlobal,  // atomic with the CPU too
};

// Limits of ibv_query_device(3), the ones that size something.
struct DeviceAttributes {
  std::string firmware;
  std::uint64_t max_region_bytes = 0;
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_work_requests = 0;  // per queue of a queue pair
  std::uint32_t max_sge = 0;
  std::uint32_t max_completion_queues = 0;
  std::uint32_t max_completions = 0;  // entries of one completion queue
  std::uint32_t max_regions = 0;
  std::uint32_t max_reads_as_initiator = 0;  // outstanding READs and atomics of one queue pair
  std::uint32_t max_reads_as_responder = 0;
  std::uint32_t max_srq = 0;
  std::uint32_t max_srq_work_requests = 0;
  std::uint32_t max_windows = 0;
  std::uint8_t port_count = 0;
  AtomicScope atomics = AtomicScope::kNone;
  bool on_demand_paging = false;
  std::uint64_t core_clock_khz = 0;  // 0: no hardware time stamps
  bool soft_roce = false;            // the kernel's rdma_rxe, whose provider has peculiarities
};

enum class GidType : unsigned char { kInfiniBand, kRoceV1, kRoceV2 };
RKV_EXPORT const char* to_string(GidType type);

struct RKV_EXPORT GidEntry {
  std::array<std::uint8_t, 16> gid{};
  std::uint8_t port = 0;
  std::uint32_t index = 0;
  GidType type = GidType::kInfiniBand;
  std::string netdev;             // "eth0"; empty where there is none
  bool is_ipv4() const;           // ::ffff:a.b.c.d
  std::string to_string() const;  // "192.0.2.1" for IPv4, else as IPv6
};

struct DeviceInfo {
  std::string name;        // "mlx5_0", "rxe0"
  std::uint64_t guid = 0;  // host byte order
  std::string node_type;   // "InfiniBand channel adapter"
  bool iwarp = false;
  std::vector<PortAttributes> ports;  // empty where the device could not be opened
  std::optional<Error> open_error;    // why
};
// All devices of this machine, an empty list where there are none. Opens each for a moment.
RKV_EXPORT Result<std::vector<DeviceInfo>> list_devices();

struct AsyncEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  // What it is about, to compare with raw() of an object; nullptr where it is about the port or the
  // device. The event has been acknowledged: the object may be gone, do not dereference.
  const void* object = nullptr;
  std::uint8_t port = 0;
};

class RKV_EXPORT Device {
 public:
  // kNoDevice where there is none of that name; kPermission where it may not be opened.
  static Result<Device> open(std::string_view name);
  // The first device that has an ACTIVE port. kNoDevice says what to do about it.
  static Result<Device> open_first_active();
  // A device that librdmacm has opened; memory and queues used with one of its ids must be made on
  // this one. An empty name means the first with an ACTIVE port. librdmacm keeps it open until the
  // process ends. Source: rdma_get_devices(3).
  static Result<Device> of_connection_manager(std::string_view name = {});
  // Somebody else's context, which must outlive everything made from it.
  static Device borrow(ibv_context* context);
  // A context whose last handle does what `context`'s deleter says (import.h).
  static Device adopt(std::shared_ptr<ibv_context> context);

  Device(Device&&) = default;
  Device& operator=(Device&&) = default;
  Device share() const { return Device(context_); }

  std::string name() const;
  Result<DeviceAttributes> attributes() const;
  Result<PortAttributes> port(std::uint8_t number) const;
  // The number of the first ACTIVE port; kNoDevice where there is none.
  Result<std::uint8_t> first_active_port() const;
  Result<std::vector<GidEntry>> gid_table() const;
  // The entry a RoCE connection by address uses: of type v2, IPv4 before IPv6, never link-local
  // where there is a choice. kNoDevice where the port has none.
  Result<GidEntry> routable_gid(std::uint8_t port) const;

  // Events about ports, queue pairs, shared receive queues (ibv_get_async_event(3)). Does not wait:
  // nothing there is an empty optional; wait on async_fd() with poll(2). Of two handles to one
  // context only one should read events.
  Result<std::optional<AsyncEvent>> next_async_event() const;
  int async_fd() const { return context_->async_fd; }

  ibv_context* raw() const { return context_.get(); }
  const std::shared_ptr<ibv_context>& shared() const { return context_; }

 private:
  explicit Device(std::shared_ptr<ibv_context> context) : context_(std::move(context)) {}
  std::shared_ptr<ibv_context> context_;
};

}  // namespace rkv::rdma
