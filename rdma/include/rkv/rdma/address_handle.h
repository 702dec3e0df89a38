// Datagram addressing: the destination of a datagram, and the source of a received one.
//
//   RKV_ASSIGN_OR_RETURN(AddressHandle to, AddressHandle::create(pd, route.address));
//   auto batch = qp.batch();                                  // qp: BasicQueuePair<Ud>
//   batch.op(1).signaled().to(to, peer.qp_num, peer.qkey).send(message);
//   // At the receiver: 40 bytes of GRH precede the message.
//   RKV_ASSIGN_OR_RETURN(auto got, ReceivedDatagram::from(buffer, c.byte_length()));
//   RKV_ASSIGN_OR_RETURN(auto back, AddressHandle::reply(pd, port, DatagramSource::of(c), got));
//
// An address handle must live until the requests that name it have completed: SoftRoCE reads it
// when it sends. Creating a handle is a system call; on RoCE it may resolve the peer's hardware
// address over the network, and block for that time. Keep one handle per peer.
//
// Thread safety: an AddressHandle may be used by several threads. Source: ibv_create_ah(3),
// ibv_create_ah_from_wc(3), InfiniBand specification 8.3 (GRH), A17.4.5.2 (RoCE v2).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The part of an address that crosses subnets. RoCE always requires it.
struct GlobalRoute {
  std::array<std::uint8_t, 16> gid{};  // GID of the peer
  std::uint32_t gid_index = 0;         // index of the local GID in the port's table, 0 to 255
  std::uint32_t flow_label = 0;        // 20 bits
  std::uint8_t hop_limit = 64;         // RoCE: most kernels and SoftRoCE use the IP route's instead
  std::uint8_t traffic_class = 0;
  friend bool operator==(const GlobalRoute&, const GlobalRoute&) = default;
};

struct RKV_EXPORT AddressAttributes {
  std::uint8_t port = 1;
  std::uint16_t lid = 0;           // LID of the peer; 0 on RoCE
  std::uint8_t service_level = 0;  // 0 to 15
  std::uint8_t path_bits = 0;      // selects the local LID, 0 to 127
  std::optional<GlobalRoute> global = std::nullopt;

  // Converts to the verbs structure. kInvalidArgument: the error text names the field and its
  // range.
  Result<ibv_ah_attr> to_verbs() const;
  static AddressAttributes from_verbs(const ibv_ah_attr& attributes);
  friend bool operator==(const AddressAttributes&, const AddressAttributes&) = default;
};

// The 40 bytes before each received datagram, parsed and checked. For RoCE v2 over IPv4 the
// addresses are ::ffff:a.b.c.d, as in the GID table.
struct RKV_EXPORT Grh {
  static constexpr std::size_t kBytes = 40;

  std::array<std::uint8_t, 16> source{};
  std::array<std::uint8_t, 16> destination{};
  GidType type = GidType::kRoceV2;  // kInfiniBand if it can be that or RoCE v1
  bool ipv4 = false;
  std::uint16_t payload_length = 0;  // from the sender's header; not verified
  std::uint8_t hop_limit = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // IPv6 only

  // Parses the header. kCorrupt: not a header that an InfiniBand or RoCE device would write.
  static Result<Grh> parse(std::span<const std::byte, kBytes> bytes);
};

// A receive buffer that holds a datagram.
class RKV_EXPORT ReceivedDatagram {
 public:
  // `byte_length` is the completion's and includes the 40 bytes. kCorrupt if it is below 40 or
  // above the buffer's length.
  static Result<ReceivedDatagram> from(Bytes buffer, std::size_t byte_length);
  static Result<ReceivedDatagram> from(const RegisteredSpan& buffer, std::size_t byte_length) {
    return from(Bytes(buffer.bytes()), byte_length);
  }

  Bytes payload() const { return bytes_.subspan(Grh::kBytes); }
  // The 40 bytes before the message. Defined only if the completion reports a GRH (IBV_WC_GRH).
  std::span<const std::byte, Grh::kBytes> route() const { return bytes_.first<Grh::kBytes>(); }

 private:
  explicit ReceivedDatagram(Bytes bytes) : bytes_(bytes) {}
  Bytes bytes_;
};

// The sender of a datagram, as reported by its completion.
struct RKV_EXPORT DatagramSource {
  std::uint32_t qp_num = 0;
  std::uint16_t lid = 0;
  std::uint8_t service_level = 0;
  std::uint8_t path_bits = 0;
  bool has_grh = false;

  static DatagramSource of(const ibv_wc& completion);
  // The same for a completion that is read field by field.
  template <class Completion>
    requires requires(const Completion& c) {
      c.source_queue_pair();
      c.slid();
      c.service_level();
      c.path_bits();
      c.has_grh();
    }
  static DatagramSource of(const Completion& c) {
    return {.qp_num = c.source_queue_pair(),
            .lid = static_cast<std::uint16_t>(c.slid()),
            .service_level = c.service_level(),
            .path_bits = c.path_bits(),
            .has_grh = c.has_grh()};
  }
};

// Returns the address of a datagram's sender; the datagram arrived on `port`. `gids` is the
// device's GID table. kNotFound if `gids` lacks the GID that the datagram was sent to.
RKV_EXPORT Result<AddressAttributes> reply_address(std::uint8_t port, const DatagramSource& source,
                                                   const ReceivedDatagram& datagram,
                                                   const std::vector<GidEntry>& gids);

class RKV_EXPORT AddressHandle {
 public:
  // ibv_create_ah(3). kInvalidArgument: the error text names the invalid field; on RoCE `global` is
  // required. kUnreachable: there is no route, or no host has the address.
  static Result<AddressHandle> create(const ProtectionDomain& pd,
                                      const AddressAttributes& attributes);
  // Combines reply_address() and create().
  static Result<AddressHandle> reply(const ProtectionDomain& pd, std::uint8_t port,
                                     const DatagramSource& source,
                                     const ReceivedDatagram& datagram);
  AddressHandle(AddressHandle&&) = default;
  AddressHandle& operator=(AddressHandle&&) = default;

  ibv_ah* raw() const { return handle_.get(); }

 private:
  explicit AddressHandle(std::shared_ptr<ibv_ah> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<ibv_ah> handle_;  // the deleter holds the protection domain
};

}  // namespace rkv::rdma
