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
#include "rkv/rdma/guid.h"
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
  std::uint32_t lanes = 0;
  const char* speed_name = "?";  // "HDR"; static
  std::uint32_t physical_state = 0;
  bool active() const { return state == IBV_PORT_ACTIVE; }
};
RKV_EXPORT const char* to_string(ibv_port_state state);  // "ACTIVE"

// What the codes of a port's speed and width mean. 0, 0 and "?" where they are not known.
struct LinkSpeed {
  double gbps = 0;  // all lanes
  double lane_gbps = 0;
  std::uint32_t lanes = 0;
  const char* name = "?";  // "EDR"; static
};
// `speed` is ibv_port_attr's active_speed, or active_speed_ex where there is one; `width` its
// active_width. Source: InfiniBand specification 14.2.5.6, PortInfo.
RKV_EXPORT LinkSpeed link_speed(std::uint32_t speed, std::uint8_t width);

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
  std::uint32_t max_srq_sge = 0;
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
  bool is_link_local() const;     // fe80::/10; 169.254.0.0/16 (RFC 3927)
  std::string to_string() const;  // "192.0.2.1" for IPv4, else as IPv6
};

enum class NodeType : signed char {
  kUnknown = IBV_NODE_UNKNOWN,
  kChannelAdapter = IBV_NODE_CA,
  kSwitch = IBV_NODE_SWITCH,
  kRouter = IBV_NODE_ROUTER,
  kRnic = IBV_NODE_RNIC,  // iWARP
  kUsnic = IBV_NODE_USNIC,
  kUsnicUdp = IBV_NODE_USNIC_UDP,
  kUnspecified = IBV_NODE_UNSPECIFIED,  // EFA among others
};
enum class DeviceTransport : signed char {
  kUnknown = IBV_TRANSPORT_UNKNOWN,
  kInfiniBand = IBV_TRANSPORT_IB,  // RoCE, too
  kIwarp = IBV_TRANSPORT_IWARP,
  kUsnic = IBV_TRANSPORT_USNIC,
  kUsnicUdp = IBV_TRANSPORT_USNIC_UDP,
  kUnspecified = IBV_TRANSPORT_UNSPECIFIED,
};
RKV_EXPORT const char* to_string(DeviceTransport transport);  // "InfiniBand or RoCE"

struct DeviceInfo {
  std::string name;  // "mlx5_0", "rxe0"
  Guid guid;
  std::string node_type;  // "InfiniBand channel adapter"
  NodeType node = NodeType::kUnknown;
  DeviceTransport transport = DeviceTransport::kUnknown;
  bool iwarp = false;
  std::optional<int> kernel_index;    // that `rdma dev` shows; none on old kernels
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
  // last handle ends, also after the device was unplugged. Source: rdma_get_devices(3).
  static Result<Device> of_connection_manager(std::string_view name = {});
  // Somebody else's context, which must outlive everything made from it.
  static Device borrow(ibv_context* context);
  // A context whose last handle does what `context`'s deleter says (import.h).
  static Device adopt(std::shared_ptr<ibv_context> context);

  Device(Device&&) = default;
  Device& operator=(Device&&) = default;
  Device share() const { return Device(context_); }

  std::string name() const;
  DeviceInfo info() const;
  Result<DeviceAttributes> attributes() const;
  Result<PortAttributes> port(std::uint8_t number) const;
  // The number of the first ACTIVE port; kNoDevice where there is none.
  Result<std::uint8_t> first_active_port() const;
  Result<std::vector<GidEntry>> gid_table() const;
  // One entry of it. kNotFound where the table has none at that index, kInvalidArgument where there
  // is no such port.
  Result<GidEntry> gid(std::uint8_t port, std::uint32_t index) const;
  // The entry a RoCE connection by address uses: of type v2, IPv4 before IPv6, never link-local
  // where there is a choice. kNoDevice where the port has none. choose_gid() (gid_choice.h) says
  // why, and takes the peer's address into account.
  Result<GidEntry> routable_gid(std::uint8_t port) const;

  // Events about ports, queue pairs, shared receive queues (ibv_get_async_event(3)). Does not wait:
  // nothing there is an empty optional; wait on async_fd() with poll(2). Of two handles to one
  // context only one should read events.
  Result<std::optional<AsyncEvent>> next_async_event() const;
  int async_fd() const { return context_->async_fd; }

  ibv_context* raw() const { return context_.get(); }
  const std::shared_ptr<ibv_context>& shared() const { return context_; }

 private:
  friend class CmIdBase;
  // The context of an id of the connection manager, held as of_connection_manager() holds one.
  static Device of_id(ibv_context* context, std::shared_ptr<void> id);
  explicit Device(std::shared_ptr<ibv_context> context) : context_(std::move(context)) {}
  std::shared_ptr<ibv_context> context_;
};

}  // namespace rkv::rdma
