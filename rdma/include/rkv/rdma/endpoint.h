// Endpoints: what two sides tell each other to connect without a connection manager.
//
//   RKV_ASSIGN_OR_RETURN(Endpoint self, prepared.endpoint(port, gid));
//   ... give `self` to the peer, and get the peer's, by any means ...
//   RKV_ASSIGN_OR_RETURN(QueuePair qp, std::move(prepared).handshake(peer));
//
// Thread safety: values. Source: ibv_modify_qp(3), ibv_query_port(3).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Longest packet of a path. Verbs know these five.
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

// Number of a connection's first packet: 24 bits, random per connection, so that stale packets of
// an earlier one do not fit.
class RKV_EXPORT PacketSequence {
 public:
  static constexpr std::uint32_t kMax = 0xFF'FFFF;

  constexpr PacketSequence() = default;
  // Nothing for numbers above kMax.
  static constexpr std::optional<PacketSequence> make(std::uint32_t number) {
    if (number > kMax) return std::nullopt;
    return PacketSequence(number);
  }
  static PacketSequence random();  // from the kernel
  constexpr std::uint32_t number() const { return number_; }
  friend constexpr bool operator==(PacketSequence, PacketSequence) = default;

 private:
  explicit constexpr PacketSequence(std::uint32_t number) : number_(number) {}
  std::uint32_t number_ = 0;
};

enum class LinkLayer : unsigned char { kInfiniBand = 1, kEthernet = 2 };

// READs and atomics outstanding: ours towards the peer, the peer's towards us.
struct ReadDepths {
  std::uint8_t initiator = 0;
  std::uint8_t responder = 0;
  friend bool operator==(const ReadDepths&, const ReadDepths&) = default;
};

struct Endpoint {
  std::uint32_t qp_num = 0;  // 24 bits
  PacketSequence packet_sequence{};
  LinkLayer link_layer = LinkLayer::kEthernet;
  std::uint16_t lid = 0;               // InfiniBand: the port's address in its subnet
  std::array<std::uint8_t, 16> gid{};  // RoCE, and InfiniBand across subnets; all zero: none
  Mtu mtu = Mtu::k1024;
  // What the sender asks at most and answers at most; 0: it did not say. Not of UC and UD.
  ReadDepths depths{};
  std::uint32_t qkey = 0;  // UD: what a datagram to it must carry

  bool has_gid() const { return gid != std::array<std::uint8_t, 16>{}; }
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace rkv::rdma
