// Every function that the headers of rdma-core 44 declare for libibverbs and librdmacm. A program
// built with RKV_RDMA_LINKAGE=dlopen looks these up at run time (forward.cc).
//
//   X(library, result, name, (parameters), (arguments))
//
// An entry that differs from the header's declaration does not compile. tests/rdma/core/linkage
// finds a function that is called and missing here. Sources: infiniband/verbs.h, rdma/rdma_cma.h.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

// clang-format off
#define RKV_VERBS_FUNCTIONS(X) \
  X(const char*, ibv_wc_status_str, (ibv_wc_status status), (status)) \
  X(int, ibv_rate_to_mult, (ibv_rate rate), (rate)) \
  X(int, ibv_rate_to_mbps, (ibv_rate rate), (rate)) \
  X(ibv_qp_ex*, ibv_qp_to_qp_ex, (ibv_qp* qp), (qp)) \
  X(ibv_device**, ibv_get_device_list, (int* num_devices), (num_devices)) \
  X(void, ibv_free_device_list, (ibv_device** list), (list)) \
  X(const char*, ibv_get_device_name, (ibv_device* device), (device)) \
  X(int, ibv_get_device_index, (ibv_device* device), (device)) \
  X(__be64, ibv_get_device_guid, (ibv_device* device), (device)) \
  X(ibv_context*, ibv_open_device, (ibv_device* device), (device)) \
  X(int, ibv_close_device, (ibv_context* context), (context)) \
  X(ibv_context*, ibv_import_device, (int cmd_fd), (cmd_fd)) \
  X(ibv_pd*, ibv_import_pd, (ibv_context* context, uint32_t pd_handle), (context, pd_handle)) \
  X(void, ibv_unimport_pd, (ibv_pd* pd), (pd)) \
  X(ibv_mr*, ibv_import_mr, (ibv_pd* pd, uint32_t mr_handle), (pd, mr_handle)) \
  X(void, ibv_unimport_mr, (ibv_mr* mr), (mr)) \
  X(ibv_dm*, ibv_import_dm, (ibv_context* context, uint32_t dm_handle), (context, dm_handle)) \
  X(void, ibv_unimport_dm, (ibv_dm* dm), (dm)) \
  X(int, ibv_get_async_event, (ibv_context* context, ibv_async_event* event), (context, event)) \
  X(void, ibv_ack_async_event, (ibv_async_event* event), (event)) \
  X(int, ibv_query_device, \
    (ibv_context* context, ibv_device_attr* device_attr), \
    (context, device_attr)) \
  X(int, ibv_query_port, \
    (ibv_context* context, uint8_t port_num, _compat_ibv_port_attr* port_attr), \
    (context, port_num, port_attr)) \
  X(int, ibv_query_gid, \
    (ibv_context* context, uint8_t port_num, int index, ibv_gid* gid), \
    (context, port_num, index, gid)) \
  X(int, _ibv_query_gid_ex, \
    (ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry, \
     uint32_t flags, size_t entry_size), \
    (context, port_num, gid_index, entry, flags, entry_size)) \
  X(ssize_t, _ibv_query_gid_table, \
    (ibv_context* context, ibv_gid_entry* entries, size_t max_entries, uint32_t flags, \
     size_t entry_size), \
    (context, entries, max_entries, flags, entry_size)) \
  X(int, ibv_query_pkey, \
    (ibv_context* context, uint8_t port_num, int index, __be16* pkey), \
    (context, port_num, index, pkey)) \
  X(int, ibv_get_pkey_index, \
    (ibv_context* context, uint8_t port_num, __be16 pkey), \
    (context, port_num, pkey)) \
  X(ibv_pd*, ibv_alloc_pd, (ibv_context* context), (context)) \
  X(int, ibv_dealloc_pd, (ibv_pd* pd), (pd)) \
  X(ibv_mr*, ibv_reg_mr_iova2, \
    (ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access), \
    (pd, addr, length, iova, access)) \
  X(ibv_mr*, ibv_reg_mr, \
    (ibv_pd* pd, void* addr, size_t length, int access), \
    (pd, addr, length, access)) \
  X(ibv_mr*, ibv_reg_mr_iova, \
    (ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access), \
    (pd, addr, length, iova, access)) \
  X(ibv_mr*, ibv_reg_dmabuf_mr, \
    (ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access), \
    (pd, offset, length, iova, fd, access)) \
  X(int, ibv_rereg_mr, \
    (ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access), \
    (mr, flags, pd, addr, length, access)) \
  X(int, ibv_dereg_mr, (ibv_mr* mr), (mr)) \
  X(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context* context), (context)) \
  X(int, ibv_destroy_comp_channel, (ibv_comp_channel* channel), (channel)) \
  X(ibv_cq*, ibv_create_cq, \
    (ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector), \
    (context, cqe, cq_context, channel, comp_vector)) \
  X(int, ibv_resize_cq, (ibv_cq* cq, int cqe), (cq, cqe)) \
  X(int, ibv_destroy_cq, (ibv_cq* cq), (cq)) \
  X(int, ibv_get_cq_event, \
    (ibv_comp_channel* channel, ibv_cq** cq, void** cq_context), \
    (channel, cq, cq_context)) \
  X(void, ibv_ack_cq_events, (ibv_cq* cq, unsigned int nevents), (cq, nevents)) \
  X(ibv_srq*, ibv_create_srq, (ibv_pd* pd, ibv_srq_init_attr* srq_init_attr), (pd, srq_init_attr)) \
  X(int, ibv_modify_srq, \
    (ibv_srq* srq, ibv_srq_attr* srq_attr, int srq_attr_mask), \
    (srq, srq_attr, srq_attr_mask)) \
  X(int, ibv_query_srq, (ibv_srq* srq, ibv_srq_attr* srq_attr), (srq, srq_attr)) \
  X(int, ibv_destroy_srq, (ibv_srq* srq), (srq)) \
  X(ibv_qp*, ibv_create_qp, (ibv_pd* pd, ibv_qp_init_attr* qp_init_attr), (pd, qp_init_attr)) \
  X(int, ibv_modify_qp, (ibv_qp* qp, ibv_qp_attr* attr, int attr_mask), (qp, attr, attr_mask)) \
  X(int, ibv_query_qp_data_in_order, \
    (ibv_qp* qp, ibv_wr_opcode op, uint32_t flags), \
    (qp, op, flags)) \
  X(int, ibv_query_qp, \
    (ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr), \
    (qp, attr, attr_mask, init_attr)) \
  X(int, ibv_destroy_qp, (ibv_qp* qp), (qp)) \
  X(ibv_ah*, ibv_create_ah, (ibv_pd* pd, ibv_ah_attr* attr), (pd, attr)) \
  X(int, ibv_init_ah_from_wc, \
    (ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* ah_attr), \
    (context, port_num, wc, grh, ah_attr)) \
  X(ibv_ah*, ibv_create_ah_from_wc, \
    (ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num), \
    (pd, wc, grh, port_num)) \
  X(int, ibv_destroy_ah, (ibv_ah* ah), (ah)) \
  X(int, ibv_attach_mcast, (ibv_qp* qp, const ibv_gid* gid, uint16_t lid), (qp, gid, lid)) \
  X(int, ibv_detach_mcast, (ibv_qp* qp, const ibv_gid* gid, uint16_t lid), (qp, gid, lid)) \
  X(int, ibv_fork_init, (), ()) \
  X(ibv_fork_status, ibv_is_fork_initialized, (), ()) \
  X(const char*, ibv_node_type_str, (ibv_node_type node_type), (node_type)) \
  X(const char*, ibv_port_state_str, (ibv_port_state port_state), (port_state)) \
  X(const char*, ibv_event_type_str, (ibv_event_type event), (event)) \
  X(int, ibv_resolve_eth_l2_from_gid, \
    (ibv_context* context, ibv_ah_attr* attr, uint8_t* eth_mac, uint16_t* vid), \
    (context, attr, eth_mac, vid)) \
  X(int, ibv_set_ece, (ibv_qp* qp, ibv_ece* ece), (qp, ece)) \
  X(int, ibv_query_ece, (ibv_qp* qp, ibv_ece* ece), (qp, ece))

#define RKV_RDMACM_FUNCTIONS(X) \
  X(rdma_event_channel*, rdma_create_event_channel, (), ()) \
  X(void, rdma_destroy_event_channel, (rdma_event_channel* channel), (channel)) \
  X(int, rdma_create_id, \
    (rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps), \
    (channel, id, context, ps)) \
  X(int, rdma_create_ep, \
    (rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr), \
    (id, res, pd, qp_init_attr)) \
  X(void, rdma_destroy_ep, (rdma_cm_id* id), (id)) \
  X(int, rdma_destroy_id, (rdma_cm_id* id), (id)) \
  X(int, rdma_bind_addr, (rdma_cm_id* id, sockaddr* addr), (id, addr)) \
  X(int, rdma_resolve_addr, \
    (rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms), \
    (id, src_addr, dst_addr, timeout_ms)) \
  X(int, rdma_resolve_route, (rdma_cm_id* id, int timeout_ms), (id, timeout_ms)) \
  X(int, rdma_create_qp, \
    (rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr), \
    (id, pd, qp_init_attr)) \
  X(int, rdma_create_qp_ex, \
    (rdma_cm_id* id, ibv_qp_init_attr_ex* qp_init_attr), \
    (id, qp_init_attr)) \
  X(void, rdma_destroy_qp, (rdma_cm_id* id), (id)) \
  X(int, rdma_connect, (rdma_cm_id* id, rdma_conn_param* conn_param), (id, conn_param)) \
  X(int, rdma_establish, (rdma_cm_id* id), (id)) \
  X(int, rdma_listen, (rdma_cm_id* id, int backlog), (id, backlog)) \
  X(int, rdma_get_request, (rdma_cm_id* listen, rdma_cm_id** id), (listen, id)) \
  X(int, rdma_accept, (rdma_cm_id* id, rdma_conn_param* conn_param), (id, conn_param)) \
  X(int, rdma_reject, \
    (rdma_cm_id* id, const void* private_data, uint8_t private_data_len), \
    (id, private_data, private_data_len)) \
  X(int, rdma_reject_ece, \
    (rdma_cm_id* id, const void* private_data, uint8_t private_data_len), \
    (id, private_data, private_data_len)) \
  X(int, rdma_notify, (rdma_cm_id* id, ibv_event_type event), (id, event)) \
  X(int, rdma_disconnect, (rdma_cm_id* id), (id)) \
  X(int, rdma_join_multicast, \
    (rdma_cm_id* id, sockaddr* addr, void* context), \
    (id, addr, context)) \
  X(int, rdma_leave_multicast, (rdma_cm_id* id, sockaddr* addr), (id, addr)) \
  X(int, rdma_join_multicast_ex, \
    (rdma_cm_id* id, rdma_cm_join_mc_attr_ex* mc_join_attr, void* context), \
    (id, mc_join_attr, context)) \
  X(int, rdma_get_cm_event, \
    (rdma_event_channel* channel, rdma_cm_event** event), \
    (channel, event)) \
  X(int, rdma_ack_cm_event, (rdma_cm_event* event), (event)) \
  X(__be16, rdma_get_src_port, (rdma_cm_id* id), (id)) \
  X(__be16, rdma_get_dst_port, (rdma_cm_id* id), (id)) \
  X(ibv_context**, rdma_get_devices, (int* num_devices), (num_devices)) \
  X(void, rdma_free_devices, (ibv_context** list), (list)) \
  X(const char*, rdma_event_str, (rdma_cm_event_type event), (event)) \
  X(int, rdma_set_option, \
    (rdma_cm_id* id, int level, int optname, void* optval, size_t optlen), \
    (id, level, optname, optval, optlen)) \
  X(int, rdma_migrate_id, (rdma_cm_id* id, rdma_event_channel* channel), (id, channel)) \
  X(int, rdma_getaddrinfo, \
    (const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** res), \
    (node, service, hints, res)) \
  X(void, rdma_freeaddrinfo, (rdma_addrinfo* res), (res)) \
  X(int, rdma_init_qp_attr, \
    (rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask), \
    (id, qp_attr, qp_attr_mask)) \
  X(int, rdma_set_local_ece, (rdma_cm_id* id, ibv_ece* ece), (id, ece)) \
  X(int, rdma_get_remote_ece, (rdma_cm_id* id, ibv_ece* ece), (id, ece))
// clang-format on
