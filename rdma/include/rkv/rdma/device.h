// Devices: the RDMA hardware (or SoftRoCE) of this machine, and an opened device.
//
//   RKV_ASSIGN_OR_RETURN(Device device, Device::open_first_active());
//   RKV_ASSIGN_OR_RETURN(DeviceAttributes limits, device.attributes());
//   RKV_ASSIGN_OR_RETURN(std::vector<GidEntry> gids, device.gid_table());
//
// A Device is a handle. share() returns another handle to the same opened device, and every object
// created from it keeps the device open. Queries are system calls; none waits for the network.
//
// Thread safety: several threads may use a Device at a time; only one may call next_async_event().
// Source: ibv_get_device_list(3), ibv_open_device(3), ibv_query_device_ex(3), ibv_query_port(3),
// ibv_query_gid_table(3), ibv_get_async_event(3).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  double speed_gbps = 0;  // lanes times lane rate; 0 if unknown
  std::uint32_t lanes = 0;
  const char* speed_name = "?";  // "HDR"; static
  std::uint32_t physical_state = 0;
  bool active() const { return state == IBV_PORT_ACTIVE; }
};
RKV_EXPORT const char* to_string(ibv_port_state state);  // "ACTIVE"

// The meaning of a port's speed and width codes. 0, 0 and "?" for unknown codes.
struct LinkSpeed {
  double gbps = 0;  // all lanes
  double lane_gbps = 0;
  std::uint32_t lanes = 0;
  const char* name = "?";  // "EDR"; static
};
// `speed` is ibv_port_attr's active_speed, or active_speed_ex if present; `width` is its
// active_width. Source: InfiniBand specification 14.2.5.6, PortInfo.
RKV_EXPORT LinkSpeed link_speed(std::uint32_t speed, std::uint8_t width);

enum class AtomicScope : unsigned char {
  kNone,    // no remote atomics
  kDevice,  // atomic among this device's own queue pairs only: the CPU must not store to the word
  kGlobal,  // atomic with the CPU too
};

// Limits of ibv_query_device(3) that matter for sizing.
struct DeviceAttributes {
  std::string firmware;
  std::uint64_t max_region_bytes = 0;
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_work_requests = 0;  // per queue of a queue pair
  std::uint32_t max_sge = 0;
  std::uint32_t max_read_sge = 0;  // of a READ; max_sge where the device reports none
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
  // iWARP: connections are made by address (connect.h); no immediate data, RFC 5040; no state
  // changes by the program but to the error state.
  bool iwarp = false;
  bool soft_roce = false;  // the kernel's rdma_rxe, whose provider has peculiarities
};

// kIwarp: the GID is the port's hardware address. Nothing is routed by it.
enum class GidType : unsigned char { kInfiniBand, kRoceV1, kRoceV2, kIwarp };
RKV_EXPORT const char* to_string(GidType type);

struct RKV_EXPORT GidEntry {
  std::array<std::uint8_t, 16> gid{};
  std::uint8_t port = 0;
  std::uint32_t index = 0;
  GidType type = GidType::kInfiniBand;
  std::string netdev;             // "eth0"; empty if there is none
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
  std::optional<int> kernel_index;    // the index that `rdma dev` shows; none on old kernels
  std::vector<PortAttributes> ports;  // empty if the device could not be opened
  std::optional<Error> open_error;    // why it could not be opened
};
// Returns all devices of this machine; an empty list if there are none. Opens each device briefly.
RKV_EXPORT Result<std::vector<DeviceInfo>> list_devices();

struct AsyncEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  // The affected object, to compare with raw(); nullptr if the event concerns the port or the
  // device. The event has been acknowledged, so the object may be destroyed: do not dereference.
  const void* object = nullptr;
  std::uint8_t port = 0;
};

class RKV_EXPORT Device {
 public:
  // kNoDevice if no device has that name; kPermission if it may not be opened.
  static Result<Device> open(std::string_view name);
  // Opens the first device that has an ACTIVE port. kNoDevice: the error text contains advice.
  static Result<Device> open_first_active();
  // A device that librdmacm has opened. Memory and queues used with a librdmacm id must be created
  // on this one. An empty name means the first with an ACTIVE port. librdmacm keeps the device open
  // until the last handle is destroyed, even after the device was unplugged. Source:
  // rdma_get_devices(3).
  static Result<Device> of_connection_manager(std::string_view name = {});
  // Wraps a context owned by the caller, which must outlive everything created from it.
  static Device borrow(ibv_context* context);

  Device(Device&&) = default;
  Device& operator=(Device&&) = default;
  Device share() const { return Device(context_); }

  std::string name() const;
  DeviceInfo info() const;
  Result<DeviceAttributes> attributes() const;
  Result<PortAttributes> port(std::uint8_t number) const;
  // The number of the first ACTIVE port; kNoDevice if there is none.
  Result<std::uint8_t> first_active_port() const;
  Result<std::vector<GidEntry>> gid_table() const;
  // One entry of the GID table. kNotFound if the table has none at that index, kInvalidArgument if
  // the port does not exist.
  Result<GidEntry> gid(std::uint8_t port, std::uint32_t index) const;
  // The GID that a RoCE connection by address uses: type v2, IPv4 before IPv6, link-local only if
  // there is no other. kNoDevice if the port has none. choose_gid() (gid_choice.h) explains the
  // choice and considers the peer's address.
  Result<GidEntry> routable_gid(std::uint8_t port) const;

  // Returns the next event about ports, queue pairs or shared receive queues, or nothing
  // (ibv_get_async_event(3)). Does not block: wait on async_fd() with poll(2). If a context has two
  // handles, only one should read events.
  Result<std::optional<AsyncEvent>> next_async_event() const;
  int async_fd() const { return context_->async_fd; }

  ibv_context* raw() const { return context_.get(); }
  const std::shared_ptr<ibv_context>& shared() const { return context_; }

 private:
  friend class CmIdBase;
  // The context of a connection manager id, held as of_connection_manager() holds one.
  static Device of_id(ibv_context* context, std::shared_ptr<void> id);
  explicit Device(std::shared_ptr<ibv_context> context) : context_(std::move(context)) {}
  std::shared_ptr<ibv_context> context_;
};

}  // namespace rkv::rdma
