#include "rkv/rdma/extended_device.h"

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

ExtendedAttributes::OnDemand on_demand_of(const ibv_device_attr_ex& raw) {
  const ibv_odp_caps& caps = raw.odp_caps;
  return {.supported = (caps.general_caps & IBV_ODP_SUPPORT) != 0,
          .implicit = (caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0,
          .rc = static_cast<OdpOps>(caps.per_transport_caps.rc_odp_caps),
          .uc = static_cast<OdpOps>(caps.per_transport_caps.uc_odp_caps),
          .ud = static_cast<OdpOps>(caps.per_transport_caps.ud_odp_caps),
          .xrc = static_cast<OdpOps>(raw.xrc_odp_caps)};
}

}  // namespace

ExtendedAttributes extended_attributes(const ibv_device_attr_ex& raw) {
  ExtendedAttributes out;
  out.clock_khz = raw.hca_core_clock;
  out.timestamp_mask = raw.completion_timestamp_mask;
  out.pacing = {.min_kbps = raw.packet_pacing_caps.qp_rate_limit_min,
                .max_kbps = raw.packet_pacing_caps.qp_rate_limit_max,
                .types = {raw.packet_pacing_caps.supported_qpts}};
  out.device_memory_bytes = raw.max_dm_size;
  out.pci_atomics = {.fetch_add = static_cast<AtomicSizes>(raw.pci_atomic_caps.fetch_add),
                     .swap = static_cast<AtomicSizes>(raw.pci_atomic_caps.swap),
                     .compare_swap = static_cast<AtomicSizes>(raw.pci_atomic_caps.compare_swap)};
  out.on_demand = on_demand_of(raw);
  out.raw_packets = static_cast<RawPacketCaps>(raw.raw_packet_caps);
  out.segmentation = {.max_bytes = raw.tso_caps.max_tso, .types = {raw.tso_caps.supported_qpts}};
  out.spreading = {.types = {raw.rss_caps.supported_qpts},
                   .max_tables = raw.rss_caps.max_rwq_indirection_tables,
                   .max_table_entries = raw.rss_caps.max_rwq_indirection_table_size,
                   .fields = raw.rss_caps.rx_hash_fields_mask,
                   .toeplitz = (raw.rss_caps.rx_hash_function & IBV_RX_HASH_FUNC_TOEPLITZ) != 0};
  out.max_receive_work_queues = raw.max_wq_type_rq;
  out.tag_matching = {.max_tags = raw.tm_caps.max_num_tags,
                      .max_operations = raw.tm_caps.max_ops,
                      .max_sge = raw.tm_caps.max_sge,
                      .max_rendezvous_header_bytes = raw.tm_caps.max_rndv_hdr_size,
                      .on_rc = (raw.tm_caps.flags & IBV_TM_CAP_RC) != 0};
  out.moderation = {.max_count = raw.cq_mod_caps.max_cq_count,
                    .max_period_us = raw.cq_mod_caps.max_cq_period};
  out.port_count = raw.phys_port_cnt_ex != 0 ? raw.phys_port_cnt_ex : raw.orig_attr.phys_port_cnt;
  return out;
}

Result<ExtendedAttributes> query_extended(const Device& device) {
  ibv_device_attr_ex raw{};
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_device_ex", ibv_query_device_ex(device.raw(), nullptr, &raw)));
  return extended_attributes(raw);
}

}  // namespace rkv::rdma
