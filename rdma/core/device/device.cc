#include "rkv/rdma/device.h"

#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "rdma/core/device/managed_context.h"
#include "rdma/core/device/reserved_key.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/gid_choice.h"
#include "rkv/rdma/supervisor.h"

namespace rkv::rdma {
namespace {

constexpr const char* kNoDeviceText =
    "no RDMA device has an active port: check `rdma link`; without an adapter, SoftRoCE provides a "
    "device (rdma link add rxe0 type rxe netdev eth0)";

std::shared_ptr<ibv_device*> device_list(int* count) {
  return {ibv_get_device_list(count), [](ibv_device** list) {
            if (list != nullptr) ibv_free_device_list(list);
          }};
}

// Whether a null list means that rdma-core was not found at run time (rdma/core/linkage), which
// differs from having no devices.
template <class List>
bool is_without_rdma_core(const List& list) {
  return list == nullptr && errno == ELIBACC;
}

// Event reads must not block: all objects of the context share the descriptor.
void make_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

Result<std::shared_ptr<ibv_context>> open_context(ibv_device* device) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_context * raw, from_null("ibv_open_device", ibv_open_device(device)));
  make_nonblocking(raw->async_fd);
  return std::shared_ptr<ibv_context>(raw, [key = detail::reserve_key(raw)](auto* context) mutable {
    key.reset();
    report_teardown(from_minus_one("ibv_close_device", ibv_close_device(context)));
  });
}

std::uint32_t mtu_bytes(ibv_mtu mtu) {
  return 128U << static_cast<unsigned>(mtu);
}

struct LaneRate {
  std::uint32_t code;
  double gbps;
  const char* name;
};
constexpr std::array kLaneRates = {
    LaneRate{1, 2.5, "SDR"},  LaneRate{2, 5, "DDR"},     LaneRate{4, 10, "QDR"},
    LaneRate{8, 10, "FDR10"}, LaneRate{16, 14, "FDR"},   LaneRate{32, 25, "EDR"},
    LaneRate{64, 50, "HDR"},  LaneRate{128, 100, "NDR"}, LaneRate{256, 200, "XDR"},
};

std::uint32_t lanes(std::uint8_t width) {
  switch (width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

// The code of XDR exceeds the 8 bits of active_speed; newer rdma-core has a wider field.
template <class Attributes>
std::uint32_t speed_code(const Attributes& from) {
  if constexpr (requires { from.active_speed_ex; }) {
    if (from.active_speed_ex != 0) return from.active_speed_ex;
  }
  return from.active_speed;
}

DeviceInfo identity_of(ibv_device* raw) {
  DeviceInfo out;
  out.name = ibv_get_device_name(raw);
  out.guid = Guid(be64toh(ibv_get_device_guid(raw)));
  out.node_type = ibv_node_type_str(raw->node_type);
  out.node = static_cast<NodeType>(raw->node_type);
  out.transport = static_cast<DeviceTransport>(raw->transport_type);
  out.iwarp = raw->transport_type == IBV_TRANSPORT_IWARP;
  const int index = ibv_get_device_index(raw);
  if (index >= 0) out.kernel_index = index;
  return out;
}

bool has_active_port(const Device& device) {
  return device.first_active_port().has_value();
}

std::uint32_t unsigned_of(int value) {
  return value < 0 ? 0U : static_cast<std::uint32_t>(value);
}

AtomicScope scope_of(ibv_atomic_cap cap) {
  if (cap == IBV_ATOMIC_GLOB) return AtomicScope::kGlobal;
  return cap == IBV_ATOMIC_HCA ? AtomicScope::kDevice : AtomicScope::kNone;
}

}  // namespace

Result<std::vector<DeviceInfo>> list_devices() {
  int count = 0;
  const auto list = device_list(&count);
  // The kernel has no RDMA, or the system no rdma-core: report a machine without devices.
  if (list == nullptr && (errno == ENOSYS || errno == ELIBACC)) return std::vector<DeviceInfo>{};
  RKV_RETURN_IF_ERROR(from_null("ibv_get_device_list", list.get()));
  std::vector<DeviceInfo> out;
  for (int i = 0; i < count; ++i) {
    ibv_device* raw = list.get()[i];
    const Result<Device> device = Device::open(ibv_get_device_name(raw));
    out.push_back(device ? device->info() : identity_of(raw));
    if (!device) out.back().open_error = device.error();
  }
  return out;
}

Result<Device> Device::open(std::string_view name) {
  int count = 0;
  const auto list = device_list(&count);
  if (is_without_rdma_core(list)) return verb_error("ibv_get_device_list", ELIBACC);
  for (int i = 0; i < count; ++i) {
    if (name != ibv_get_device_name(list.get()[i])) continue;
    RKV_ASSIGN_OR_RETURN(auto context, open_context(list.get()[i]));
    return Device(std::move(context));
  }
  return fail_call(Code::kNoDevice, "ibv_get_device_list", 0,
                   "no RDMA device has this name: `rdma link` lists them");
}

Result<Device> Device::open_first_active() {
  int count = 0;
  const auto list = device_list(&count);
  if (is_without_rdma_core(list)) return verb_error("ibv_get_device_list", ELIBACC);
  std::optional<Error> refused;
  for (int i = 0; i < count; ++i) {
    auto context = open_context(list.get()[i]);
    if (!context) {
      refused = context.error();
      continue;
    }
    Device device(std::move(*context));
    if (has_active_port(device)) return device;
  }
  if (refused) return std::unexpected(*refused);
  return fail_call(Code::kNoDevice, "ibv_get_device_list", 0, kNoDeviceText);
}

Result<Device> Device::of_connection_manager(std::string_view name) {
  int count = 0;
  struct FreeDevices {
    void operator()(ibv_context** contexts) const { rdma_free_devices(contexts); }
  };
  std::unique_ptr<ibv_context*, FreeDevices> list(rdma_get_devices(&count));
  if (is_without_rdma_core(list)) return verb_error("rdma_get_devices", ELIBACC);
  for (int i = 0; i < count; ++i) {
    const Device device = borrow(list.get()[i]);
    if (name.empty() ? !has_active_port(device) : device.name() != name) continue;
    return Device(detail::hold_listed(list.release(), static_cast<std::size_t>(i)));
  }
  return fail_call(
      Code::kNoDevice, "rdma_get_devices", 0,
      name.empty() ? kNoDeviceText : "no RDMA device has this name: `rdma link` lists them");
}

Device Device::borrow(ibv_context* context) {
  make_nonblocking(context->async_fd);
  return Device(std::shared_ptr<ibv_context>(context, [](ibv_context*) {}));
}

Device Device::of_id(ibv_context* context, std::shared_ptr<void> id) {
  make_nonblocking(context->async_fd);
  return Device(detail::hold_context_of(context, std::move(id)));
}

std::string Device::name() const {
  return ibv_get_device_name(context_->device);
}

DeviceInfo Device::info() const {
  DeviceInfo out = identity_of(context_->device);
  const Result<DeviceAttributes> limits = attributes();
  for (unsigned number = 1; limits && number <= limits->port_count; ++number) {
    const auto found = port(static_cast<std::uint8_t>(number));
    if (found) out.ports.push_back(*found);
  }
  return out;
}

Result<DeviceAttributes> Device::attributes() const {
  ibv_device_attr_ex raw{};
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_device_ex", ibv_query_device_ex(context_.get(), nullptr, &raw)));
  const ibv_device_attr& from = raw.orig_attr;
  DeviceAttributes out;
  out.firmware.assign(from.fw_ver, strnlen(from.fw_ver, sizeof from.fw_ver));
  out.max_region_bytes = from.max_mr_size;
  out.max_queue_pairs = unsigned_of(from.max_qp);
  out.max_work_requests = unsigned_of(from.max_qp_wr);
  out.max_sge = unsigned_of(from.max_sge);
  out.max_read_sge = from.max_sge_rd > 0 ? unsigned_of(from.max_sge_rd) : out.max_sge;
  out.max_completion_queues = unsigned_of(from.max_cq);
  out.max_completions = unsigned_of(from.max_cqe);
  out.max_regions = unsigned_of(from.max_mr);
  out.max_reads_as_initiator = unsigned_of(from.max_qp_init_rd_atom);
  out.max_reads_as_responder = unsigned_of(from.max_qp_rd_atom);
  out.max_srq = unsigned_of(from.max_srq);
  out.max_srq_work_requests = unsigned_of(from.max_srq_wr);
  out.max_srq_sge = unsigned_of(from.max_srq_sge);
  out.max_windows = unsigned_of(from.max_mw);
  out.port_count = from.phys_port_cnt;
  out.atomics = scope_of(from.atomic_cap);
  out.on_demand_paging = (raw.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  out.core_clock_khz = raw.hca_core_clock;
  out.iwarp = context_->device->transport_type == IBV_TRANSPORT_IWARP;
  // The kernel gives rdma_rxe this vendor id. Anybody may give a device any name.
  constexpr std::uint32_t kSoftRoceVendor = 0xFFFFFF;
  out.soft_roce = from.vendor_id == kSoftRoceVendor;
  return out;
}

Result<PortAttributes> Device::port(std::uint8_t number) const {
  ibv_port_attr from{};
  RKV_RETURN_IF_ERROR(from_errno("ibv_query_port", ibv_query_port(raw(), number, &from)));
  const LinkSpeed link = link_speed(speed_code(from), from.active_width);
  return PortAttributes{.number = number,
                        .state = from.state,
                        .ethernet = from.link_layer == IBV_LINK_LAYER_ETHERNET,
                        .active_mtu_bytes = mtu_bytes(from.active_mtu),
                        .max_mtu_bytes = mtu_bytes(from.max_mtu),
                        .max_message_bytes = from.max_msg_sz,
                        .lid = from.lid,
                        .gid_count = unsigned_of(from.gid_tbl_len),
                        .speed_gbps = link.gbps,
                        .lanes = link.lanes,
                        .speed_name = link.name,
                        .physical_state = from.phys_state};
}

Result<std::uint8_t> Device::first_active_port() const {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, attributes());
  for (unsigned number = 1; number <= limits.port_count; ++number) {
    const auto found = port(static_cast<std::uint8_t>(number));
    if (found && found->active()) return found->number;
  }
  return fail_call(Code::kNoDevice, "ibv_query_port", 0, kNoDeviceText);
}

Result<std::vector<GidEntry>> Device::gid_table() const {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, attributes());
  std::size_t room = 0;
  for (unsigned number = 1; number <= limits.port_count; ++number) {
    RKV_ASSIGN_OR_RETURN(const PortAttributes found, port(static_cast<std::uint8_t>(number)));
    room += found.gid_count;
  }
  std::vector<ibv_gid_entry> entries(room);
  RKV_ASSIGN_OR_RETURN(const std::size_t count,
                       from_count("ibv_query_gid_table",
                                  ibv_query_gid_table(raw(), entries.data(), entries.size(), 0)));
  std::vector<GidEntry> out;
  for (const ibv_gid_entry& from : std::span(entries).first(count)) {
    GidEntry& to = out.emplace_back();
    std::ranges::copy(from.gid.raw, to.gid.begin());
    to.port = static_cast<std::uint8_t>(from.port_num);
    to.index = from.gid_index;
    to.type = from.gid_type == IBV_GID_TYPE_ROCE_V2   ? GidType::kRoceV2
              : from.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::kRoceV1
              : limits.iwarp                          ? GidType::kIwarp
                                                      : GidType::kInfiniBand;
    char name[IF_NAMESIZE] = {};
    if (from.ndev_ifindex != 0 && if_indextoname(from.ndev_ifindex, name) != nullptr) {
      to.netdev = name;
    }
  }
  return out;
}

Result<GidEntry> Device::gid(std::uint8_t port_number, std::uint32_t index) const {
  RKV_ASSIGN_OR_RETURN(const PortAttributes found, port(port_number));
  RKV_ASSIGN_OR_RETURN(std::vector<GidEntry> table, gid_table());
  const auto entry = std::ranges::find_if(
      table, [&](const GidEntry& one) { return one.port == found.number && one.index == index; });
  if (entry != table.end()) return std::move(*entry);
  return fail_call(
      Code::kNotFound, "ibv_query_gid_table", 0,
      "index: the port's GID table has no entry at this index (PortAttributes::gid_count)");
}

Result<GidEntry> Device::routable_gid(std::uint8_t port_number) const {
  RKV_ASSIGN_OR_RETURN(GidChoice choice, choose_gid(*this, port_number));
  return std::move(choice.chosen);
}

Result<std::optional<AsyncEvent>> Device::next_async_event() const {
  ibv_async_event event{};
  if (ibv_get_async_event(raw(), &event) != 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<AsyncEvent>{};
    return verb_error("ibv_get_async_event", errno);
  }
  AsyncEvent out{.type = event.event_type};
  switch (scope_of(event.event_type)) {
    case AsyncScope::kCompletionQueue:
      out.object = event.element.cq;
      break;
    case AsyncScope::kSharedReceiveQueue:
      out.object = event.element.srq;
      break;
    case AsyncScope::kQueuePair:
      out.object = event.element.qp;
      break;
    case AsyncScope::kWorkQueue:
      out.object = event.element.wq;
      break;
    case AsyncScope::kPort:
    case AsyncScope::kDevice:
    case AsyncScope::kUnknown:
      out.port = static_cast<std::uint8_t>(event.element.port_num);
      break;
  }
  ibv_ack_async_event(&event);
  return std::optional(out);
}

const char* to_string(GidType type) {
  switch (type) {
    case GidType::kInfiniBand:
      return "InfiniBand";
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
    case GidType::kIwarp:
      return "iWARP";
  }
  return "?";
}

const char* to_string(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "NOP";
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
  }
  return "?";
}

const char* to_string(DeviceTransport transport) {
  switch (transport) {
    case DeviceTransport::kInfiniBand:
      return "InfiniBand or RoCE";
    case DeviceTransport::kIwarp:
      return "iWARP";
    case DeviceTransport::kUsnic:
      return "usNIC";
    case DeviceTransport::kUsnicUdp:
      return "usNIC UDP";
    case DeviceTransport::kUnspecified:
      return "of its own kind";
    case DeviceTransport::kUnknown:
      break;
  }
  return "?";
}

LinkSpeed link_speed(std::uint32_t speed, std::uint8_t width) {
  const auto rate = std::ranges::find(kLaneRates, speed, &LaneRate::code);
  LinkSpeed out{.lanes = lanes(width)};
  if (rate == kLaneRates.end()) return out;
  out.lane_gbps = rate->gbps;
  out.gbps = rate->gbps * out.lanes;
  out.name = rate->name;
  return out;
}

std::optional<Guid> Guid::parse(std::string_view text) {
  std::uint64_t value = 0;
  std::size_t digits = 0;
  const bool colons = text.size() == 19;
  if (!colons && text.size() != 16) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (colons && i % 5 == 4) {
      if (text[i] != ':') return std::nullopt;
      continue;
    }
    constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
    const std::size_t at = kDigits.find(text[i]);
    if (at == std::string_view::npos) return std::nullopt;
    value = value << 4 | (at < 16 ? at : at - 6);
    ++digits;
  }
  return digits == 16 ? std::optional(Guid(value)) : std::nullopt;
}

std::string Guid::to_string() const {
  std::array<char, 20> text;
  std::snprintf(text.data(), text.size(), "%04x:%04x:%04x:%04x",
                static_cast<unsigned>(value_ >> 48), static_cast<unsigned>(value_ >> 32 & 0xFFFF),
                static_cast<unsigned>(value_ >> 16 & 0xFFFF),
                static_cast<unsigned>(value_ & 0xFFFF));
  return text.data();
}

bool GidEntry::is_ipv4() const {
  constexpr std::array<std::uint8_t, 12> kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.begin());
}

bool GidEntry::is_link_local() const {
  if (is_ipv4()) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80;
}

std::string GidEntry::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_ipv4()) {
    inet_ntop(AF_INET, gid.data() + 12, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

}  // namespace rkv::rdma
