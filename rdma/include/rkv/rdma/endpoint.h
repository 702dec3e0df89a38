// Endpoints: the data that two sides exchange to connect without a connection manager.
//
//   RKV_ASSIGN_OR_RETURN(Endpoint self, prepared.endpoint(port, gid));
//   ... send `self` to the peer, and receive the peer's, by any means ...
//   RKV_ASSIGN_OR_RETURN(QueuePair qp, std::move(prepared).handshake(peer));
//
// On the wire an endpoint is a record of at most 56 bytes, the private data size of a connection
// manager request (cm.h). Numbers are big-endian:
//
//   2  magic, "eP"      1  major version (high 4 bits), minor      1  length of the whole record
//   n  fields in ascending order of type: 1 type, 1 length, value
//   4  CRC-32C of all before it
//
//   type  length  value                              when
//      1       3  number of the queue pair           always
//      2       3  number of the first packet         always
//      3       1  link layer: 1 InfiniBand, 2 RoCE   always
//      4       2  LID                                unless 0
//      5      16  GID                                unless all zero
//      6       1  MTU: 1 to 5 for 256 to 4096 bytes  always
//      7       2  READ depths: initiator, responder  unless both 0
//      8       4  Q_Key                              unless 0
//
// An endpoint has exactly one encoding. A later minor version may add types above 8, which are
// skipped; another major version is refused. All fields together are exactly 56 bytes. The checksum
// detects transmission errors, not attacks.
//
// Thread safety: values. Source: ibv_modify_qp(3), ibv_query_port(3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The largest packet of a path. Verbs define these five sizes.
enum class Mtu : std::uint16_t { k256 = 256, k512 = 512, k1024 = 1024, k2048 = 2048, k4096 = 4096 };
constexpr std::uint32_t bytes_of(Mtu mtu) {
  return static_cast<std::uint32_t>(mtu);
}
constexpr std::optional<Mtu> mtu_of_bytes(std::uint32_t bytes) {
  for (const Mtu mtu : {Mtu::k256, Mtu::k512, Mtu::k1024, Mtu::k2048, Mtu::k4096}) {
    if (bytes_of(mtu) == bytes) return mtu;
  }
  return std::nullopt;
}

// The number of a connection's first packet: 24 bits, random per connection, so that stale packets
// of an earlier connection do not match.
class RKV_EXPORT PacketSequence {
 public:
  static constexpr std::uint32_t kMax = 0xFF'FFFF;

  constexpr PacketSequence() = default;
  // Returns nothing for numbers above kMax.
  static constexpr std::optional<PacketSequence> make(std::uint32_t number) {
    if (number > kMax) return std::nullopt;
    return PacketSequence(number);
  }
  static PacketSequence random();  // from the kernel's random number generator
  constexpr std::uint32_t number() const { return number_; }
  friend constexpr bool operator==(PacketSequence, PacketSequence) = default;

 private:
  explicit constexpr PacketSequence(std::uint32_t number) : number_(number) {}
  std::uint32_t number_ = 0;
};

enum class LinkLayer : unsigned char { kInfiniBand = 1, kEthernet = 2 };

// The number of READs and atomics that may be outstanding: as initiator (sent by this side), and as
// responder (sent by the peer).
struct ReadDepths {
  std::uint8_t initiator = 0;
  std::uint8_t responder = 0;
  friend bool operator==(const ReadDepths&, const ReadDepths&) = default;
};

struct RKV_EXPORT Endpoint {
  static constexpr std::size_t kMaxWireBytes = 56;
  static constexpr std::size_t kShortWireBytes = 27;
  static constexpr std::uint32_t kMaxQueuePairNumber = 0xFF'FFFF;

  std::uint32_t qp_num = 0;  // 24 bits
  PacketSequence packet_sequence{};
  LinkLayer link_layer = LinkLayer::kEthernet;
  std::uint16_t lid = 0;               // InfiniBand: the port's address in its subnet
  std::array<std::uint8_t, 16> gid{};  // RoCE, and InfiniBand across subnets; all zero: none
  Mtu mtu = Mtu::k1024;
  // The limits of the side that sends the endpoint; 0: not stated. Not for UC and UD.
  ReadDepths depths{};
  std::uint32_t qkey = 0;  // UD: required in datagrams to this endpoint

  bool has_gid() const { return gid != std::array<std::uint8_t, 16>{}; }

  // The record. The first `length` bytes are significant; the rest is zero and need not be sent.
  struct Wire {
    std::array<std::byte, kMaxWireBytes> data{};
    std::size_t length = 0;
    Bytes bytes() const { return Bytes(data).first(length); }
  };
  // kInvalidArgument: qp_num above 24 bits.
  Result<Wire> to_bytes() const;
  // Parses a peer's bytes, each of which is checked. Zeros may follow the record, since the
  // connection manager pads. kVersionMismatch: another major version; kCorrupt: any other fault.
  static Result<Endpoint> from_bytes(Bytes bytes);

  // The 27-byte format of other libraries, big-endian: flags 1 (bit 0: GID present), queue pair 4,
  // LID 2, GID 16, first packet 4. Link layer and MTU are missing and are taken from `self`, which
  // is on the same network. READ depths stay unstated. kCorrupt.
  Result<std::array<std::byte, kShortWireBytes>> to_short_bytes() const;
  static Result<Endpoint> from_short_bytes(std::span<const std::byte, kShortWireBytes> bytes,
                                           const Endpoint& self);

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace rkv::rdma
