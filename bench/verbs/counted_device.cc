#include "bench/verbs/counted_device.h"

#include <cerrno>
#include <cstring>

namespace rkv::bench {
namespace {

// The whole state of the device. A C library would find it from the objects passed to the functions
// below; there is only one device, so they use it directly.
struct State {
  ibv_device device{};
  verbs_context verbs{};
  ibv_pd domain{};
  ibv_qp_ex queue{};
  ibv_cq_ex completions{};
  Counts counts;
  std::uint64_t waiting = 0;
  std::uint64_t next_id = 0;
};
State state;

void wr_nothing(ibv_qp_ex*) {}
void wr_read(ibv_qp_ex*, std::uint32_t, std::uint64_t) {
  ++state.counts.requests;
}
void wr_piece(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint32_t) {
  ++state.counts.pieces;
}
int wr_complete(ibv_qp_ex*) {
  ++state.counts.doorbells;
  return 0;
}

int next_poll(ibv_cq_ex* queue) {
  if (state.waiting == 0) return ENOENT;
  --state.waiting;
  ++state.counts.completions;
  queue->wr_id = state.next_id++;
  queue->status = IBV_WC_SUCCESS;
  return 0;
}
int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr*) {
  return next_poll(queue);
}
void end_poll(ibv_cq_ex*) {}
ibv_wc_opcode read_opcode(ibv_cq_ex*) {
  return IBV_WC_RDMA_READ;
}
std::uint32_t read_number(ibv_cq_ex*) {
  return 64;
}
unsigned read_flags(ibv_cq_ex*) {
  return 0;
}

int query_device(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* out,
                 std::size_t size) {
  std::memset(out, 0, size);
  out->orig_attr.max_qp_wr = 1024;
  out->orig_attr.max_cqe = 1024;
  out->orig_attr.max_sge = 4;
  return 0;
}
ibv_cq_ex* create_cq(ibv_context*, ibv_cq_init_attr_ex* wanted) {
  state.completions.cqe = static_cast<int>(wanted->cqe);
  return &state.completions;
}
ibv_qp* create_qp(ibv_context*, ibv_qp_init_attr_ex*) {
  return &state.queue.qp_base;
}

}  // namespace

CountedDevice::CountedDevice() {
  std::memset(static_cast<void*>(&state), 0, sizeof state);
  std::strcpy(state.device.name, "counted");
  verbs_context& verbs = state.verbs;
  verbs.sz = sizeof verbs;
  verbs.query_device_ex = query_device;
  verbs.create_cq_ex = create_cq;
  verbs.create_qp_ex = create_qp;
  verbs.context.device = &state.device;
  verbs.context.async_fd = -1;
  verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;

  ibv_qp_ex& queue = state.queue;
  queue.qp_base.context = &verbs.context;
  queue.qp_base.qp_type = IBV_QPT_RC;
  queue.wr_start = wr_nothing;
  queue.wr_abort = wr_nothing;
  queue.wr_complete = wr_complete;
  queue.wr_rdma_read = wr_read;
  queue.wr_set_sge = wr_piece;

  ibv_cq_ex& completions = state.completions;
  completions.context = &verbs.context;
  completions.start_poll = start_poll;
  completions.next_poll = next_poll;
  completions.end_poll = end_poll;
  completions.read_opcode = read_opcode;
  completions.read_byte_len = read_number;
  completions.read_qp_num = read_number;
  completions.read_imm_data = read_number;
  completions.read_vendor_err = read_number;
  completions.read_wc_flags = read_flags;
}

ibv_context* CountedDevice::context() {
  return &state.verbs.context;
}
ibv_qp_ex* CountedDevice::queue() {
  return &state.queue;
}
ibv_cq_ex* CountedDevice::completions() {
  return &state.completions;
}
void CountedDevice::complete(std::uint64_t count) {
  state.waiting += count;
}
Counts CountedDevice::counts() const {
  return state.counts;
}

}  // namespace rkv::bench

// Functions of libibverbs itself, not of a table: these definitions take precedence.
extern "C" {
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
  rkv::bench::state.domain.context = context;
  return &rkv::bench::state.domain;
}
int ibv_dealloc_pd(ibv_pd*) {
  return 0;
}
int ibv_destroy_cq(ibv_cq*) {
  return 0;
}
int ibv_destroy_qp(ibv_qp*) {
  return 0;
}
int ibv_query_qp(ibv_qp*, ibv_qp_attr* attributes, int, ibv_qp_init_attr*) {
  attributes->qp_state = IBV_QPS_RTS;
  return 0;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp*) {
  return &rkv::bench::state.queue;
}
}
