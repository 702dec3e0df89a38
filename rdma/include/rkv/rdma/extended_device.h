// Device capabilities beyond the basic verbs, typed: clock, packet pacing, device memory, PCI
// atomics, paging on demand, raw packets, segmentation, tag matching, moderation.
//
//   RKV_ASSIGN_OR_RETURN(ExtendedAttributes beyond, query_extended(device));
//   if (beyond.has_device_memory()) use(beyond.device_memory_bytes);
//   if (has(beyond.on_demand.rc, OdpOps::kRead)) ...
//
// Values that a device or an old kernel does not report are 0, and the matching has_...() is false.
// Thread safety: values; the query is a system call. Source: ibv_query_device_ex(3).
#pragma once

#include <cstdint>

#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/flags.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Operations allowed on pages that are not present.
enum class OdpOps : unsigned {
  kNone = 0,
  kSend = IBV_ODP_SUPPORT_SEND,
  kReceive = IBV_ODP_SUPPORT_RECV,
  kWrite = IBV_ODP_SUPPORT_WRITE,
  kRead = IBV_ODP_SUPPORT_READ,
  kAtomic = IBV_ODP_SUPPORT_ATOMIC,
  kSharedReceive = IBV_ODP_SUPPORT_SRQ_RECV,
};
template <>
inline constexpr bool kIsFlagEnum<OdpOps> = true;

enum class RawPacketCaps : unsigned {
  kNone = 0,
  kVlanStripping = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING,
  // Appends the frame's own checksum to its data.
  kScatterChecksum = IBV_RAW_PACKET_CAP_SCATTER_FCS,
  kIpChecksum = IBV_RAW_PACKET_CAP_IP_CSUM,
  kDelayDrop = IBV_RAW_PACKET_CAP_DELAY_DROP,
};
template <>
inline constexpr bool kIsFlagEnum<RawPacketCaps> = true;

// Sizes of atomics over PCI, in bytes: 4, 8, 16.
enum class AtomicSizes : unsigned {
  kNone = 0,
  k4 = IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP,
  k8 = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP,
  k16 = IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP,
};
template <>
inline constexpr bool kIsFlagEnum<AtomicSizes> = true;

// The queue pair types that a capability applies to.
struct QueuePairTypes {
  std::uint32_t bits = 0;
  constexpr bool has(ibv_qp_type type) const {
    return (bits >> static_cast<unsigned>(type) & 1) != 0;
  }
};

struct ExtendedAttributes {
  std::uint64_t clock_khz = 0;
  std::uint64_t timestamp_mask = 0;
  bool has_clock() const { return clock_khz != 0; }
  bool has_timestamps() const { return timestamp_mask != 0; }

  struct Pacing {
    std::uint32_t min_kbps = 0;
    std::uint32_t max_kbps = 0;
    QueuePairTypes types;
  } pacing;
  bool has_packet_pacing() const { return pacing.max_kbps != 0 && pacing.types.bits != 0; }

  std::uint64_t device_memory_bytes = 0;
  bool has_device_memory() const { return device_memory_bytes != 0; }

  struct PciAtomics {
    AtomicSizes fetch_add = AtomicSizes::kNone;
    AtomicSizes swap = AtomicSizes::kNone;
    AtomicSizes compare_swap = AtomicSizes::kNone;
  } pci_atomics;
  bool has_pci_atomics() const {
    return (pci_atomics.fetch_add | pci_atomics.swap | pci_atomics.compare_swap) !=
           AtomicSizes::kNone;
  }

  struct OnDemand {
    bool supported = false;
    bool implicit = false;  // a region of the whole address space
    OdpOps rc = OdpOps::kNone;
    OdpOps uc = OdpOps::kNone;
    OdpOps ud = OdpOps::kNone;
    OdpOps xrc = OdpOps::kNone;
  } on_demand;
  bool has_on_demand_paging() const { return on_demand.supported; }

  RawPacketCaps raw_packets = RawPacketCaps::kNone;
  bool has_raw_packets() const { return raw_packets != RawPacketCaps::kNone; }

  struct Segmentation {  // TSO: the device cuts a large send into packets
    std::uint32_t max_bytes = 0;
    QueuePairTypes types;
  } segmentation;
  bool has_segmentation() const { return segmentation.max_bytes != 0; }

  struct Spreading {  // RSS: spreads received packets over several queues
    QueuePairTypes types;
    std::uint32_t max_tables = 0;
    std::uint32_t max_table_entries = 0;
    std::uint64_t fields = 0;  // ibv_rx_hash_fields
    bool toeplitz = false;
  } spreading;
  std::uint32_t max_receive_work_queues = 0;
  bool has_spreading() const { return spreading.types.bits != 0; }

  struct TagMatching {
    std::uint32_t max_tags = 0;
    std::uint32_t max_operations = 0;
    std::uint32_t max_sge = 0;
    std::uint32_t max_rendezvous_header_bytes = 0;
    bool on_rc = false;
  } tag_matching;
  bool has_tag_matching() const { return tag_matching.max_tags != 0; }

  struct Moderation {
    std::uint16_t max_count = 0;
    std::uint16_t max_period_us = 0;
  } moderation;
  bool has_moderation() const { return moderation.max_count != 0; }

  std::uint32_t port_count = 0;  // may exceed 255
};

RKV_EXPORT Result<ExtendedAttributes> query_extended(const Device& device);

// Converts the kernel's structure, without a device.
RKV_EXPORT ExtendedAttributes extended_attributes(const ibv_device_attr_ex& raw);

}  // namespace rkv::rdma
