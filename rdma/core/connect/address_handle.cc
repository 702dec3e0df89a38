#include "rkv/rdma/address_handle.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::uint32_t kMaxGidIndex = 255;
constexpr std::uint32_t kMaxFlowLabel = 0xF'FFFF;
constexpr std::uint8_t kMaxServiceLevel = 15;
constexpr std::uint8_t kMaxPathBits = 127;

// RoCE v2 over IPv4: the device writes the IPv4 header to the last 20 of the 40 bytes.
constexpr std::size_t kIpv4Offset = 20;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kInfiniBandTransport = 0x1B;

std::uint8_t octet(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}
std::uint16_t pair(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(octet(bytes, at) << 8 | octet(bytes, at + 1));
}

// The ones' complement sum of an IPv4 header, checksum included, is 0xFFFF.
bool checksum_fits(std::span<const std::byte> header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Bytes; i += 2)
    sum += pair(header, i);
  while (sum > 0xFFFF)
    sum = (sum & 0xFFFF) + (sum >> 16);
  return sum == 0xFFFF;
}

std::array<std::uint8_t, 16> mapped(std::span<const std::byte> ipv4) {
  std::array<std::uint8_t, 16> gid{};
  gid[10] = gid[11] = 0xFF;
  for (std::size_t i = 0; i < 4; ++i)
    gid[12 + i] = octet(ipv4, i);
  return gid;
}

Grh parse_ipv4(std::span<const std::byte> header) {
  const std::uint16_t total = pair(header, 2);
  return {.source = mapped(header.subspan(12, 4)),
          .destination = mapped(header.subspan(16, 4)),
          .type = GidType::kRoceV2,
          .ipv4 = true,
          .payload_length = static_cast<std::uint16_t>(total < kIpv4Bytes ? 0 : total - kIpv4Bytes),
          .hop_limit = octet(header, 8),
          .traffic_class = octet(header, 1)};
}

}  // namespace

Result<ibv_ah_attr> AddressAttributes::to_verbs() const {
  if (service_level > kMaxServiceLevel) {
    return fail(Code::kInvalidArgument, "service_level is 0 to 15");
  }
  if (path_bits > kMaxPathBits) return fail(Code::kInvalidArgument, "path_bits is 0 to 127");
  ibv_ah_attr out{};
  out.port_num = port;
  out.dlid = lid;
  out.sl = service_level;
  out.src_path_bits = path_bits;
  if (!global) return out;
  if (global->gid_index > kMaxGidIndex) {
    return fail(Code::kInvalidArgument, "gid_index is 0 to 255");
  }
  if (global->flow_label > kMaxFlowLabel) {
    return fail(Code::kInvalidArgument, "flow_label is 0 to 1048575");
  }
  out.is_global = 1;
  out.grh.sgid_index = static_cast<std::uint8_t>(global->gid_index);
  out.grh.flow_label = global->flow_label;
  out.grh.hop_limit = global->hop_limit;
  out.grh.traffic_class = global->traffic_class;
  std::memcpy(out.grh.dgid.raw, global->gid.data(), global->gid.size());
  return out;
}

AddressAttributes AddressAttributes::from_verbs(const ibv_ah_attr& attributes) {
  AddressAttributes out{.port = attributes.port_num,
                        .lid = attributes.dlid,
                        .service_level = attributes.sl,
                        .path_bits = attributes.src_path_bits};
  if (attributes.is_global == 0) return out;
  GlobalRoute route{.gid_index = attributes.grh.sgid_index,
                    .flow_label = attributes.grh.flow_label,
                    .hop_limit = attributes.grh.hop_limit,
                    .traffic_class = attributes.grh.traffic_class};
  std::memcpy(route.gid.data(), attributes.grh.dgid.raw, route.gid.size());
  out.global = route;
  return out;
}

// Distinguishes the two as the kernel does: an IPv6 header begins with a 6. The bytes before an
// IPv4 header are not written and may contain a 6 by chance. Then the IPv4 checksum decides.
Result<Grh> Grh::parse(std::span<const std::byte, kBytes> bytes) {
  const auto ipv4 = bytes.subspan(kIpv4Offset, kIpv4Bytes);
  const bool looks_ipv6 = octet(bytes, 0) >> 4 == 6;
  const bool looks_ipv4 = octet(ipv4, 0) == 0x45 && octet(ipv4, 9) == kUdp;
  if (looks_ipv4 && (!looks_ipv6 || checksum_fits(ipv4))) return parse_ipv4(ipv4);
  if (!looks_ipv6) return fail(Code::kCorrupt, "the datagram has no global route header (GRH)");
  const std::uint8_t next = octet(bytes, 6);
  if (next != kUdp && next != kInfiniBandTransport) {
    return fail(Code::kCorrupt,
                "the datagram's global route header is neither InfiniBand's nor RoCE's");
  }
  Grh out{.type = next == kUdp ? GidType::kRoceV2 : GidType::kInfiniBand,
          .payload_length = pair(bytes, 4),
          .hop_limit = octet(bytes, 7),
          .traffic_class =
              static_cast<std::uint8_t>((octet(bytes, 0) & 15) << 4 | octet(bytes, 1) >> 4),
          .flow_label = (octet(bytes, 1) & 15U) << 16 | pair(bytes, 2)};
  std::memcpy(out.source.data(), bytes.data() + 8, out.source.size());
  std::memcpy(out.destination.data(), bytes.data() + 24, out.destination.size());
  return out;
}

Result<ReceivedDatagram> ReceivedDatagram::from(Bytes buffer, std::size_t byte_length) {
  if (byte_length < Grh::kBytes || byte_length > buffer.size()) {
    return fail(Code::kCorrupt,
                "a datagram is at least 40 bytes long, and not longer than its buffer");
  }
  return ReceivedDatagram(buffer.first(byte_length));
}

DatagramSource DatagramSource::of(const ibv_wc& completion) {
  return {.qp_num = completion.src_qp,
          .lid = completion.slid,
          .service_level = completion.sl,
          .path_bits = completion.dlid_path_bits,
          .has_grh = (completion.wc_flags & IBV_WC_GRH) != 0};
}

Result<AddressAttributes> reply_address(std::uint8_t port, const DatagramSource& source,
                                        const ReceivedDatagram& datagram,
                                        const std::vector<GidEntry>& gids) {
  AddressAttributes out{.port = port,
                        .lid = source.lid,
                        .service_level = source.service_level,
                        .path_bits = source.path_bits,
                        .global = std::nullopt};
  if (!source.has_grh) return out;
  RKV_ASSIGN_OR_RETURN(const Grh grh, Grh::parse(datagram.route()));
  const auto own = std::ranges::find_if(gids, [&](const GidEntry& entry) {
    const bool v2 = entry.type == GidType::kRoceV2;
    return entry.port == port && entry.gid == grh.destination &&
           v2 == (grh.type == GidType::kRoceV2);
  });
  if (own == gids.end()) {
    return fail(Code::kNotFound, "the datagram was sent to a GID that this port does not have");
  }
  out.global = GlobalRoute{.gid = grh.source,
                           .gid_index = own->index,
                           .flow_label = grh.flow_label,
                           .traffic_class = grh.traffic_class};
  return out;
}

Result<AddressHandle> AddressHandle::create(const ProtectionDomain& pd,
                                            const AddressAttributes& attributes) {
  RKV_ASSIGN_OR_RETURN(ibv_ah_attr wanted, attributes.to_verbs());
  errno = 0;
  ibv_ah* raw = ibv_create_ah(pd.raw(), &wanted);
  if (raw == nullptr) {
    Error error = verb_error("ibv_create_ah", errno != 0 ? errno : EIO).error();
    if (error.sys_errno == EINVAL && !pd.device().port(attributes.port)) {
      error.text = "port is 1 to the device's port_count (DeviceAttributes)";
    } else if (error.sys_errno == EINVAL && !attributes.global) {
      error.text = "an address on RoCE needs `global`";
    } else if (error.sys_errno == EINVAL || error.sys_errno == ETIMEDOUT ||
               error.sys_errno == ENETUNREACH || error.sys_errno == EHOSTUNREACH) {
      error.code = Code::kUnreachable;
      error.text = "no route to this GID from the local GID at gid_index";
    }
    return std::unexpected(error);
  }
  return AddressHandle(std::shared_ptr<ibv_ah>(raw, [domain = pd.shared()](ibv_ah* old) {
    report_teardown(from_errno("ibv_destroy_ah", ibv_destroy_ah(old)));
  }));
}

Result<AddressHandle> AddressHandle::reply(const ProtectionDomain& pd, std::uint8_t port,
                                           const DatagramSource& source,
                                           const ReceivedDatagram& datagram) {
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> gids, pd.device().gid_table());
  RKV_ASSIGN_OR_RETURN(const AddressAttributes back, reply_address(port, source, datagram, gids));
  return create(pd, back);
}

}  // namespace rkv::rdma
