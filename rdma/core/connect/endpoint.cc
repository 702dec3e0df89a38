#include "rkv/rdma/endpoint.h"

#include <algorithm>

#include "common/random.h"

namespace rkv::rdma {
namespace {

constexpr std::uint32_t kMagic = 0x6550;  // "eP"
constexpr std::uint32_t kMajor = 1;
constexpr std::uint32_t kMinor = 0;
constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kFieldHeaderBytes = 2;

enum Field : std::uint8_t {
  kQueuePair = 1,
  kPacketSequence,
  kLinkLayer,
  kLid,
  kGid,
  kMtu,
  kDepths,
  kQkey,
  kLastField = kQkey,
};
constexpr std::array<std::size_t, kLastField + 1> kLength = {0, 3, 3, 1, 2, 16, 1, 2, 4};
constexpr std::size_t kAllFields = [] {
  std::size_t sum = 0;
  for (const std::size_t length : kLength)
    sum += length == 0 ? 0 : length + kFieldHeaderBytes;
  return sum;
}();
static_assert(kHeaderBytes + kAllFields + kChecksumBytes == Endpoint::kMaxWireBytes);
constexpr std::array kMtus = {Mtu::k256, Mtu::k512, Mtu::k1024, Mtu::k2048, Mtu::k4096};

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  constexpr std::uint32_t kCastagnoli = 0x82F6'3B78;  // reflected
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ ((value & 1) != 0 ? kCastagnoli : 0);
    table[i] = value;
  }
  return table;
}();

std::uint32_t crc32c(Bytes bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes)
    crc = kCrcTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t load(Bytes bytes) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes)
    value = value << 8 | std::to_integer<std::uint32_t>(byte);
  return value;
}

// Writes fields in order; the caller ensures that all fit.
class Writer {
 public:
  explicit Writer(MutableBytes to) : to_(to) {}
  void number(std::uint32_t value, std::size_t bytes) {
    for (std::size_t i = bytes; i-- > 0;)
      to_[length_++] = static_cast<std::byte>(value >> (8 * i));
  }
  void gid(const std::array<std::uint8_t, 16>& gid) {
    for (const std::uint8_t byte : gid)
      number(byte, 1);
  }
  void header(Field type) {
    number(type, 1);
    number(static_cast<std::uint32_t>(kLength[type]), 1);
  }
  void field(Field type, std::uint32_t value) {
    header(type);
    number(value, kLength[type]);
  }
  std::size_t length() const { return length_; }

 private:
  MutableBytes to_;
  std::size_t length_ = 0;
};

bool is_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

std::unexpected<Error> corrupt(const char* text) {
  return fail(Code::kCorrupt, text);
}

std::array<std::uint8_t, 16> load_gid(Bytes bytes) {
  std::array<std::uint8_t, 16> gid{};
  std::ranges::transform(bytes, gid.begin(),
                         [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
  return gid;
}

Status take_field(Endpoint& out, unsigned type, Bytes value) {
  if (value.size() != kLength[type]) return corrupt("a field of the endpoint has a wrong length");
  const std::uint32_t number = load(value.first(std::min<std::size_t>(value.size(), 4)));
  switch (type) {
    case kQueuePair:
      out.qp_num = number;
      return {};
    case kPacketSequence:
      out.packet_sequence = *PacketSequence::make(number);
      return {};
    case kLinkLayer:
      if (number != 1 && number != 2) return corrupt("the endpoint's link layer is unknown");
      out.link_layer = static_cast<LinkLayer>(number);
      return {};
    case kMtu:
      if (number < 1 || number > kMtus.size()) return corrupt("the endpoint's MTU is invalid");
      out.mtu = kMtus[number - 1];
      return {};
    default:
      break;
  }
  // Fields that are omitted when zero: accepting a zero would allow a second encoding.
  if (is_zero(value)) return corrupt("an optional field of the endpoint is zero");
  if (type == kLid) out.lid = static_cast<std::uint16_t>(number);
  if (type == kGid) out.gid = load_gid(value);
  if (type == kDepths) {
    out.depths = {.initiator = static_cast<std::uint8_t>(number >> 8),
                  .responder = static_cast<std::uint8_t>(number)};
  }
  if (type == kQkey) out.qkey = number;
  return {};
}

Result<Endpoint> take_fields(Bytes fields, bool later) {
  Endpoint out;
  std::uint32_t seen = 0;
  unsigned last = 0;
  while (!fields.empty()) {
    if (fields.size() < kFieldHeaderBytes) return corrupt("the endpoint ends within a field");
    const unsigned type = std::to_integer<unsigned>(fields[0]);
    const std::size_t length = std::to_integer<std::size_t>(fields[1]);
    fields = fields.subspan(kFieldHeaderBytes);
    if (length > fields.size()) return corrupt("the endpoint ends within a field");
    if (type <= last) return corrupt("the endpoint's fields are out of order");
    last = type;
    if (type <= kLastField) {
      RKV_RETURN_IF_ERROR(take_field(out, type, fields.first(length)));
      seen |= 1U << type;
    } else if (!later) {
      return corrupt("the endpoint has a field that its version does not define");
    }
    fields = fields.subspan(length);
  }
  constexpr std::uint32_t kNeeded =
      1U << kQueuePair | 1U << kPacketSequence | 1U << kLinkLayer | 1U << kMtu;
  if ((seen & kNeeded) != kNeeded) return corrupt("the endpoint lacks a required field");
  return out;
}

}  // namespace

PacketSequence PacketSequence::random() {
  return PacketSequence(static_cast<std::uint32_t>(random_from_kernel()) & kMax);
}

Result<Endpoint::Wire> Endpoint::to_bytes() const {
  if (qp_num > kMaxQueuePairNumber) {
    return fail(Code::kInvalidArgument, "qp_num is 0 to 16777215");
  }
  Wire out;
  Writer to(out.data);
  to.number(kMagic, 2);
  to.number(kMajor << 4 | kMinor, 1);
  to.number(0, 1);  // the length, set below
  to.field(kQueuePair, qp_num);
  to.field(kPacketSequence, packet_sequence.number());
  to.field(kLinkLayer, static_cast<std::uint32_t>(link_layer));
  if (lid != 0) to.field(kLid, lid);
  if (has_gid()) {
    to.header(kGid);
    to.gid(gid);
  }
  const auto code = std::ranges::find(kMtus, mtu) - kMtus.begin();
  to.field(kMtu, static_cast<std::uint32_t>(code + 1));
  if (depths != ReadDepths{}) to.field(kDepths, depths.initiator << 8 | depths.responder);
  if (qkey != 0) to.field(kQkey, qkey);
  out.length = to.length() + kChecksumBytes;
  out.data[3] = static_cast<std::byte>(out.length);
  to.number(crc32c(Bytes(out.data).first(to.length())), kChecksumBytes);
  return out;
}

Result<Endpoint> Endpoint::from_bytes(Bytes bytes) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes) return corrupt("the endpoint is truncated");
  if (load(bytes.first(2)) != kMagic) return corrupt("these bytes are not an endpoint");
  const std::uint32_t version = load(bytes.subspan(2, 1));
  if (version >> 4 != kMajor) {
    return fail(Code::kVersionMismatch, "the endpoint has another major version");
  }
  const std::size_t length = load(bytes.subspan(3, 1));
  if (length < kHeaderBytes + kChecksumBytes || length > kMaxWireBytes) {
    return corrupt("the endpoint's length is invalid");
  }
  if (length > bytes.size()) return corrupt("the endpoint is truncated");
  if (!is_zero(bytes.subspan(length))) return corrupt("nonzero bytes follow the endpoint");
  const std::size_t end = length - kChecksumBytes;
  if (load(bytes.subspan(end, kChecksumBytes)) != crc32c(bytes.first(end))) {
    return corrupt("the endpoint's checksum is wrong");
  }
  return take_fields(bytes.subspan(kHeaderBytes, end - kHeaderBytes), (version & 15) > kMinor);
}

Result<std::array<std::byte, Endpoint::kShortWireBytes>> Endpoint::to_short_bytes() const {
  if (qp_num > kMaxQueuePairNumber) {
    return fail(Code::kInvalidArgument, "qp_num is 0 to 16777215");
  }
  std::array<std::byte, kShortWireBytes> out{};
  Writer to(out);
  to.number(has_gid() ? 1 : 0, 1);
  to.number(qp_num, 4);
  to.number(lid, 2);
  to.gid(gid);
  to.number(packet_sequence.number(), 4);
  return out;
}

Result<Endpoint> Endpoint::from_short_bytes(std::span<const std::byte, kShortWireBytes> bytes,
                                            const Endpoint& self) {
  const std::uint32_t flags = load(bytes.first(1));
  const std::uint32_t qp = load(bytes.subspan(1, 4));
  const auto sequence = PacketSequence::make(load(bytes.subspan(23, 4)));
  if ((flags & ~1U) != 0) return corrupt("the endpoint has an unknown flag");
  if (qp > kMaxQueuePairNumber)
    return corrupt("the endpoint's queue pair number has more than 24 bits");
  if (!sequence) return corrupt("the endpoint's packet sequence number has more than 24 bits");
  Endpoint out{.qp_num = qp,
               .packet_sequence = *sequence,
               .link_layer = self.link_layer,
               .lid = static_cast<std::uint16_t>(load(bytes.subspan(5, 2))),
               .gid = load_gid(bytes.subspan(7, 16)),
               .mtu = self.mtu};
  if (out.has_gid() != ((flags & 1) != 0)) {
    return corrupt("the endpoint's GID and its GID flag disagree");
  }
  return out;
}

}  // namespace rkv::rdma
