#include "tests/rdma/support/fake_rdma.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace rkv::rdma::testing {
namespace {

// The only instance. The C functions below find it by this pointer.
struct State {
  struct OneDevice {
    ibv_device device{};
    verbs_context verbs{};
    unsigned references = 0;
    bool open = true;
    bool plugged_in = true;
  };
  std::array<OneDevice, 2> devices;
  ibv_pd domain{};
  ibv_comp_channel channel{};
  std::deque<ibv_cq_ex> completions;
  ibv_qp_ex queue{};
  ibv_qp_state queue_state = IBV_QPS_RESET;
  ibv_srq shared{};
  std::deque<ibv_mr> regions;
  unsigned region_access = 0;
  std::function<void(const void*)> on_deregister;
  std::deque<std::uint64_t> receives;  // of the shared queue, by wr_id
  std::deque<std::uint64_t> taken;     // taken by the queue pair
  struct Done {
    std::uint64_t wr_id;
    ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
  };
  std::deque<Done> completed;  // not polled
  struct Read {
    std::uint64_t wr_id;
    ibv_sge to;
  };
  std::deque<Read> reads;  // under way; atomics too
  bool reading = false;    // the request that is being posted
  bool soft_roce = false;
  bool iwarp = false;
  bool roce = false;
  ibv_sa_path_rec path{};    // of every id whose route was resolved
  std::size_t requests = 0;  // connect requests
  ibv_qp plain{};            // of the classic call
  std::vector<FakeRdma::Posted> posted;
  std::size_t accepted = ~std::size_t{0};
  int refusal = 0;
  bool marker_polled = false;
  std::vector<FakeRdma::Change> changes;
  std::vector<ibv_sge> pieces;
  std::vector<rdma_cm_id*> ids;
  std::map<const rdma_event_channel*, std::deque<rdma_cm_event*>> events;
  std::uint8_t timeout = 14;
  bool announces_changes = false;
  std::deque<ibv_async_event> async_events;
  std::vector<std::string> destroyed;
  int destroy_refusal = 0;
};
std::unique_ptr<State> state;

State::OneDevice& device_of(const ibv_context* context) {
  return *std::ranges::find_if(
      state->devices, [&](State::OneDevice& one) { return &one.verbs.context == context; });
}

void close_if_unused(State::OneDevice& one) {
  if (one.references == 0 && !one.plugged_in) one.open = false;
}

void tell_id(rdma_cm_id* about, rdma_cm_event_type type, int status) {
  auto* event = static_cast<rdma_cm_event*>(std::calloc(1, sizeof(rdma_cm_event)));
  event->id = about;
  event->event = type;
  event->status = status;
  event->param.conn.initiator_depth = 8;
  event->param.conn.responder_resources = 8;
  state->events[about->channel].push_back(event);
  eventfd_write(about->channel->fd, 1);
}

void answer(rdma_cm_id* id, rdma_cm_event_type type) {
  if (state->announces_changes) tell_id(id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
  tell_id(id, type, 0);
}

void find_device(rdma_cm_id* id) {
  State::OneDevice& one = state->devices[0];
  ++one.references;
  id->verbs = &one.verbs.context;
  id->port_num = 1;
}

int query_device(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* out,
                 std::size_t size) {
  std::memset(out, 0, size);
  out->orig_attr.max_qp_wr = 1024;
  out->orig_attr.max_cqe = 1024;
  out->orig_attr.max_sge = 4;
  out->orig_attr.max_srq = 1;
  out->orig_attr.max_srq_wr = 64;
  out->orig_attr.max_srq_sge = 1;
  out->orig_attr.max_qp_init_rd_atom = 16;
  out->orig_attr.max_qp_rd_atom = 16;
  out->orig_attr.phys_port_cnt = 1;
  if (state->soft_roce) out->orig_attr.vendor_id = 0xFFFFFF;
  if (!state->iwarp) out->orig_attr.atomic_cap = IBV_ATOMIC_HCA;
  if (state->iwarp) out->orig_attr.max_sge_rd = 1;
  return 0;
}
int next_poll(ibv_cq_ex* queue) {
  if (state->completed.empty()) return ENOENT;
  queue->wr_id = state->completed.front().wr_id;
  queue->status = state->completed.front().status;
  state->completed.pop_front();
  return 0;
}
int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr*) {
  if (std::exchange(state->marker_polled, !state->completed.empty())) {
    for (const std::uint64_t wr_id : state->taken)
      state->completed.push_back({wr_id});
    state->taken.clear();
  }
  return next_poll(queue);
}
int post_srq_recv(ibv_srq*, ibv_recv_wr* chain, ibv_recv_wr**) {
  for (; chain != nullptr; chain = chain->next)
    state->receives.push_back(chain->wr_id);
  return 0;
}
ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex* wanted) {
  ibv_cq_ex& made = state->completions.emplace_back();
  made.context = context;
  made.cqe = static_cast<int>(wanted->cqe);
  made.channel = wanted->channel;
  made.start_poll = start_poll;
  made.next_poll = next_poll;
  made.end_poll = [](ibv_cq_ex*) {};
  made.read_qp_num = [](ibv_cq_ex*) { return 0x11U; };
  made.read_opcode = [](ibv_cq_ex*) { return IBV_WC_SEND; };
  made.read_vendor_err = made.read_byte_len = [](ibv_cq_ex*) { return 0U; };
  made.read_wc_flags = [](ibv_cq_ex*) { return 0U; };
  return &made;
}
ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* wanted) {
  state->queue = {};
  ibv_qp& made = state->queue.qp_base;
  made.context = context;
  made.qp_type = wanted->qp_type;
  made.qp_num = 0x11;
  made.send_cq = wanted->send_cq;
  made.recv_cq = wanted->recv_cq;
  wanted->cap.max_inline_data = 64;
  state->queue.wr_start = [](ibv_qp_ex*) {};
  state->queue.wr_abort = [](ibv_qp_ex*) {};
  state->queue.wr_complete = [](ibv_qp_ex* queue) {
    if (state->queue_state == IBV_QPS_ERR) state->completed.push_back({queue->wr_id});
    return 0;
  };
  state->queue.wr_send = [](ibv_qp_ex*) { state->reading = false; };
  state->queue.wr_rdma_read = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {
    state->reading = true;
  };
  state->queue.wr_atomic_fetch_add = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint64_t) {
    state->reading = true;
  };
  state->queue.wr_set_inline_data = [](ibv_qp_ex*, void*, std::size_t) {};
  state->queue.wr_set_sge = [](ibv_qp_ex* queue, std::uint32_t lkey, std::uint64_t address,
                               std::uint32_t length) {
    const ibv_sge piece{.addr = address, .length = length, .lkey = lkey};
    if (state->reading) {
      state->reads.push_back({queue->wr_id, piece});
    } else {
      state->pieces.push_back(piece);
    }
  };
  state->queue_state = IBV_QPS_RESET;
  return &made;
}

int post_send(ibv_qp*, ibv_send_wr* chain, ibv_send_wr** refused) {
  for (std::size_t done = 0; chain != nullptr; chain = chain->next, ++done) {
    if (done == state->accepted) {
      *refused = chain;
      return state->refusal;
    }
    auto& one = state->posted.emplace_back(chain->wr_id, chain->opcode, chain->send_flags);
    if (chain->opcode == IBV_WR_RDMA_READ)
      state->reads.push_back({chain->wr_id, chain->num_sge == 0 ? ibv_sge{} : chain->sg_list[0]});
    if (chain->num_sge == 0) continue;
    one.pieces = chain->num_sge;
    one.piece = chain->sg_list[0];
    if ((chain->send_flags & IBV_SEND_INLINE) == 0) continue;
    const auto* const bytes = reinterpret_cast<const std::byte*>(one.piece.addr);
    one.inlined.assign(bytes, bytes + one.piece.length);
  }
  return 0;
}

}  // namespace

FakeRdma::FakeRdma() {
  state = std::make_unique<State>();
  state->path.hop_limit = 4;
  for (State::OneDevice& one : state->devices) {
    std::strcpy(one.device.name, &one == state->devices.data() ? "fake0" : "fake1");
    verbs_context& verbs = one.verbs;
    verbs.sz = sizeof verbs;
    verbs.query_device_ex = query_device;
    verbs.create_cq_ex = create_cq;
    verbs.create_qp_ex = create_qp;
    verbs.context.ops.post_srq_recv = post_srq_recv;
    verbs.context.ops.post_send = post_send;
    verbs.context.ops.req_notify_cq = [](ibv_cq*, int) { return 0; };
    verbs.context.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 0; };
    verbs.context.device = &one.device;
    verbs.context.cmd_fd = verbs.context.async_fd = -1;
    verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  }
  ibv_context& first = state->devices[0].verbs.context;
  first.cmd_fd = eventfd(0, EFD_CLOEXEC);
  first.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
}
FakeRdma::~FakeRdma() {
  for (auto& [channel, events] : state->events)
    std::ranges::for_each(events, std::free);
  close(context()->cmd_fd);
  close(context()->async_fd);
  state.reset();
}

ibv_context* FakeRdma::context(unsigned device) {
  return &state->devices[device].verbs.context;
}
SocketAddress FakeRdma::address() {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  raw.sin_port = htons(7777);
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&raw));
}
void FakeRdma::tell(rdma_cm_id* about, rdma_cm_event_type type, int status) {
  tell_id(about, type, status);
}
void FakeRdma::announce_changes(bool wanted) {
  state->announces_changes = wanted;
}
void FakeRdma::tell(ibv_event_type type, ibv_cq* queue) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.cq = queue;
  state->async_events.push_back(event);
  eventfd_write(context()->async_fd, 1);
}
std::vector<rdma_cm_id*> FakeRdma::ids() const {
  return state->ids;
}
void FakeRdma::propose_timeout(std::uint8_t code) {
  state->timeout = code;
}
std::vector<FakeRdma::Change> FakeRdma::changes() const {
  return state->changes;
}
ibv_qp_state FakeRdma::state_of_queue_pair() const {
  return state->queue_state;
}
std::vector<ibv_sge> FakeRdma::pieces() const {
  return state->pieces;
}
std::size_t FakeRdma::posted_receives() const {
  return state->receives.size();
}
unsigned FakeRdma::region_access() const {
  return state->region_access;
}
void FakeRdma::on_deregister(std::function<void(const void*)> call) {
  state->on_deregister = std::move(call);
}
void FakeRdma::take_receive() {
  state->taken.push_back(state->receives.front());
  state->receives.pop_front();
}
void FakeRdma::be_soft_roce() {
  state->soft_roce = true;
}
void FakeRdma::be_roce() {
  state->roce = true;
}
void FakeRdma::route_by_lid() {
  state->path.hop_limit = 0;
}
std::size_t FakeRdma::connect_requests() const {
  return state->requests;
}
void FakeRdma::be_classic() {
  for (State::OneDevice& one : state->devices)
    one.verbs.create_qp_ex = nullptr;
}
void FakeRdma::be_iwarp() {
  be_classic();
  state->iwarp = true;
  for (State::OneDevice& one : state->devices)
    one.device.transport_type = IBV_TRANSPORT_IWARP;
}
std::vector<FakeRdma::Posted> FakeRdma::posted() const {
  return state->posted;
}
void FakeRdma::refuse_posts(std::size_t accepted, int answer) {
  state->accepted = accepted;
  state->refusal = answer;
}
void FakeRdma::flush(std::uint64_t wr_id) {
  state->completed.push_back({wr_id});
}
void FakeRdma::complete_read(std::span<const std::byte> data) {
  const State::Read read = state->reads.front();
  state->reads.pop_front();
  if (!data.empty()) std::memcpy(reinterpret_cast<void*>(read.to.addr), data.data(), data.size());
  state->completed.push_back({read.wr_id, IBV_WC_SUCCESS});
}
std::vector<std::string> FakeRdma::destroyed() const {
  return state->destroyed;
}
void FakeRdma::refuse_to_destroy_queue_pairs(int sys_errno) {
  state->destroy_refusal = sys_errno;
}
unsigned FakeRdma::references(unsigned device) const {
  return state->devices[device].references;
}
void FakeRdma::unplug(unsigned device) {
  state->devices[device].plugged_in = false;
  close_if_unused(state->devices[device]);
}
bool FakeRdma::is_open(unsigned device) const {
  return state->devices[device].open;
}

bool FakeRdma::descriptors_are_released() const {
  const ibv_context& context = state->devices[0].verbs.context;
  struct stat nothing{};
  if (stat("/dev/null", &nothing) != 0) return false;
  return std::ranges::all_of(std::array{context.cmd_fd, context.async_fd}, [&](int descriptor) {
    struct stat one{};
    return fstat(descriptor, &one) == 0 && one.st_rdev == nothing.st_rdev;
  });
}

}  // namespace rkv::rdma::testing

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the headers have other names
using rkv::rdma::testing::answer;
using rkv::rdma::testing::close_if_unused;
using rkv::rdma::testing::device_of;
using rkv::rdma::testing::find_device;
using rkv::rdma::testing::state;

extern "C" {

// ---- libibverbs ----

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  eventfd_t one = 0;
  if (eventfd_read(context->async_fd, &one) != 0) return -1;  // EAGAIN
  *event = state->async_events.front();
  state->async_events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
  state->domain.context = context;
  return &state->domain;
}
int ibv_dealloc_pd(ibv_pd*) {
  return 0;
}
ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr*) {
  state->shared.context = pd->context;
  state->shared.pd = pd;
  return &state->shared;
}
int ibv_destroy_srq(ibv_srq*) {
  return 0;
}
// In parentheses, because macros of these names exist.
int(ibv_query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr* port) {
  ibv_port_attr attributes{};
  attributes.state = IBV_PORT_ACTIVE;
  attributes.max_mtu = attributes.active_mtu = IBV_MTU_4096;
  attributes.link_layer = state->roce ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  std::memcpy(port, &attributes, sizeof attributes);
  return 0;
}
ibv_mr*(ibv_reg_mr)(ibv_pd* pd, void* address, std::size_t length, int) {
  ibv_mr& made = state->regions.emplace_back();
  made.context = pd->context;
  made.pd = pd;
  made.addr = address;
  made.length = length;
  return &made;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t,
                         unsigned access) {
  state->region_access = access;
  return (ibv_reg_mr)(pd, address, length, 0);
}
int ibv_dereg_mr(ibv_mr* region) {
  if (state->on_deregister) state->on_deregister(region->addr);
  return 0;
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  state->channel = {.context = context, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .refcnt = 0};
  return &state->channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  close(channel->fd);
  return 0;
}
int ibv_destroy_cq(ibv_cq*) {
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  constexpr std::uint32_t kMostInline = 80;  // as soft-iWARP
  if (wanted->cap.max_inline_data > kMostInline) {
    errno = EINVAL;
    return nullptr;
  }
  state->plain = {};
  state->plain.context = pd->context;
  state->plain.qp_type = wanted->qp_type;
  state->plain.qp_num = 0x11;
  state->plain.send_cq = wanted->send_cq;
  state->plain.recv_cq = wanted->recv_cq;
  state->queue_state = IBV_QPS_RESET;
  return &state->plain;
}
int ibv_destroy_qp(ibv_qp*) {
  if (state->destroy_refusal != 0) return state->destroy_refusal;
  state->destroyed.emplace_back("ibv_destroy_qp");
  state->taken.clear();
  state->completed.clear();
  return 0;
}
int ibv_modify_qp(ibv_qp*, ibv_qp_attr* attributes, int mask) {
  const bool fails = (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_ERR;
  if (fails && state->queue_state == IBV_QPS_RESET) return EINVAL;
  state->changes.push_back({*attributes, mask});
  if ((mask & IBV_QP_STATE) != 0) state->queue_state = attributes->qp_state;
  return 0;
}
int ibv_query_qp(ibv_qp*, ibv_qp_attr* attributes, int, ibv_qp_init_attr* created) {
  created->cap.max_send_wr = created->cap.max_recv_wr = 128;
  attributes->qp_state = state->queue_state;
  return 0;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp*) {
  return &state->queue;
}

// ---- librdmacm ----

rdma_event_channel* rdma_create_event_channel() {
  auto* channel = static_cast<rdma_event_channel*>(std::calloc(1, sizeof(rdma_event_channel)));
  channel->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
  return channel;
}
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  if (state != nullptr) state->destroyed.emplace_back("rdma_destroy_event_channel");
  close(channel->fd);
  std::free(channel);
}
int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  eventfd_t one = 0;
  if (eventfd_read(channel->fd, &one) != 0) return -1;  // EAGAIN
  auto& waiting = state->events[channel];
  *event = waiting.front();
  waiting.pop_front();
  return 0;
}
int rdma_ack_cm_event(rdma_cm_event* event) {
  std::free(event);
  return 0;
}
int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space) {
  *id = static_cast<rdma_cm_id*>(std::calloc(1, sizeof(rdma_cm_id)));
  (*id)->channel = channel;
  (*id)->context = context;
  (*id)->ps = space;
  (*id)->qp_type = IBV_QPT_RC;
  state->ids.push_back(*id);
  return 0;
}
int rdma_destroy_id(rdma_cm_id* id) {
  state->destroyed.emplace_back("rdma_destroy_id");
  if (id->verbs != nullptr) {
    auto& one = device_of(id->verbs);
    --one.references;
    close_if_unused(one);
  }
  std::erase(state->ids, id);
  std::free(id);
  return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr*) {
  find_device(id);
  return 0;
}
int rdma_listen(rdma_cm_id*, int) {
  return 0;
}
int rdma_resolve_addr(rdma_cm_id* id, sockaddr*, sockaddr*, int) {
  find_device(id);
  answer(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}
int rdma_set_option(rdma_cm_id*, int, int, void*, std::size_t) {
  return 0;
}
int rdma_resolve_route(rdma_cm_id* id, int) {
  id->route.path_rec = &state->path;
  id->route.num_paths = 1;
  answer(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}
// The attributes and bits that the kernel returns for the requested state.
int rdma_init_qp_attr(rdma_cm_id*, ibv_qp_attr* attributes, int* mask) {
  *mask = IBV_QP_STATE;
  if (attributes->qp_state == IBV_QPS_INIT) {
    attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    *mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  } else if (attributes->qp_state == IBV_QPS_RTR) {
    attributes->ah_attr.is_global = state->path.hop_limit != 0 || state->roce ? 1 : 0;
    attributes->ah_attr.sl = 1;
    attributes->ah_attr.static_rate = IBV_RATE_100_GBPS;
    attributes->ah_attr.grh = {
        .dgid = {}, .flow_label = 2, .sgid_index = 3, .hop_limit = 4, .traffic_class = 5};
    *mask |= IBV_QP_AV;
  } else if (attributes->qp_state == IBV_QPS_RTS) {
    attributes->timeout = state->timeout;
    *mask |= IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
  }
  return 0;
}
int rdma_connect(rdma_cm_id* id, rdma_conn_param*) {
  ++state->requests;
  answer(id, state->iwarp ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE);
  return 0;
}
int rdma_establish(rdma_cm_id*) {
  return 0;
}
int rdma_disconnect(rdma_cm_id*) {
  return 0;
}
const char* rdma_event_str(rdma_cm_event_type) {
  return "event";
}
ibv_context** rdma_get_devices(int* count) {
  auto** list = static_cast<ibv_context**>(std::calloc(3, sizeof(ibv_context*)));
  int found = 0;
  for (auto& one : state->devices) {
    if (!one.plugged_in) continue;
    ++one.references;
    list[found++] = &one.verbs.context;
  }
  if (count != nullptr) *count = found;
  return list;
}
void rdma_free_devices(ibv_context** list) {
  for (std::size_t i = 0; list[i] != nullptr; ++i) {
    auto& one = device_of(list[i]);
    --one.references;
    close_if_unused(one);
  }
  std::free(list);
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
