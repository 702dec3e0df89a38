#include "rkv/rdma/cm.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rdma/core/connect/cm_steps.h"
#include "rdma/core/queue/queue_pair_state.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace detail {

struct EventChannelState {
  rdma_event_channel* channel;

  explicit EventChannelState(rdma_event_channel* raw) : channel(raw) {}
  EventChannelState(const EventChannelState&) = delete;
  EventChannelState& operator=(const EventChannelState&) = delete;
  ~EventChannelState() { rdma_destroy_event_channel(channel); }
};

// rdma_cm_id::context points here, so that an event finds its id. Reading it is safe while an event
// is not acknowledged: rdma_destroy_id, called by the destructor, waits for the acknowledgement.
struct CmIdState : std::enable_shared_from_this<CmIdState> {
  std::shared_ptr<EventChannelState> channel;
  rdma_cm_id* id = nullptr;
  std::weak_ptr<void> owner;

  explicit CmIdState(std::shared_ptr<EventChannelState> from) : channel(std::move(from)) {}
  CmIdState(const CmIdState&) = delete;
  CmIdState& operator=(const CmIdState&) = delete;
  ~CmIdState() {
    if (id != nullptr) report_teardown(from_minus_one("rdma_destroy_id", rdma_destroy_id(id)));
  }
};

Status fits(const char* call, Bytes private_data, std::size_t most, const char* text) {
  if (private_data.size() <= most) return {};
  return fail_call(Code::kInvalidArgument, call, EINVAL, text);
}

}  // namespace detail

namespace {

// Events that carry a peer's data. A refused lookup arrives as UNREACHABLE.
bool carries_data(rdma_cm_event_type type) {
  return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
         type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_REJECTED ||
         type == RDMA_CM_EVENT_UNREACHABLE;
}

// Reject codes of the InfiniBand specification that users encounter, for connections (12.6.7.2) and
// lookups (12.11.2).
struct Refusals {
  int nobody_listens;
  int by_program;
};
constexpr Refusals kOfConnection = {.nobody_listens = 8, .by_program = 28};
constexpr Refusals kOfLookup = {.nobody_listens = 1, .by_program = 2};
// On iWARP the status is an errno. A port without a listener fails rdma_connect(3) already.
constexpr Refusals kOfIwarp = {.nobody_listens = -1, .by_program = ECONNRESET};

bool on_iwarp(const rdma_cm_id* id) {
  return id->verbs != nullptr && id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

Error refused(int status, const Refusals& codes) {
  Error error{.code = Code::kRejected, .call = "rdma_connect"};
  if (status == codes.nobody_listens) {
    error.code = Code::kUnreachable;
    error.sys_errno = ECONNREFUSED;
    error.text = "nobody listens on this address and port";
  } else if (status == codes.by_program) {
    error.text = "the peer rejected the request";
  } else {
    error.text = "the peer's connection manager rejected the request";
  }
  return error;
}

// The kernel's error for a RoCE device under DatagramPorts::kIpoib.
bool lacks_infiniband(const rdma_cm_id* id, int sys_errno) {
  return id->ps == RDMA_PS_IPOIB && sys_errno == EINVAL;
}
constexpr const char* kNeedsInfiniband =
    "this port space needs an InfiniBand device with IP over InfiniBand (IPoIB)";

}  // namespace

PrivateData::PrivateData(Bytes bytes, std::size_t least) {
  const Bytes kept = bytes.first(std::min(bytes.size(), data_.size()));
  length_ = static_cast<std::uint8_t>(std::max(kept.size(), least));
  std::ranges::copy(kept, data_.begin());
}

Result<EventChannel> EventChannel::create() {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(rdma_event_channel * raw,
                       from_null("rdma_create_event_channel", rdma_create_event_channel()));
  auto state = std::make_shared<detail::EventChannelState>(raw);
  const int flags = fcntl(raw->fd, F_GETFL);
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", flags));
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", fcntl(raw->fd, F_SETFL, flags | O_NONBLOCK)));
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", fcntl(raw->fd, F_SETFD, FD_CLOEXEC)));
  return EventChannel(std::move(state));
}

int EventChannel::fd() const {
  return state_->channel->fd;
}
rdma_event_channel* EventChannel::raw() const {
  return state_->channel;
}

Result<std::optional<CmEvent>> EventChannel::next() {
  rdma_cm_event* raw = nullptr;
  while (rdma_get_cm_event(state_->channel, &raw) != 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<CmEvent>{};
    if (errno != EINTR) return verb_error("rdma_get_cm_event", errno);
  }
  return std::optional<CmEvent>(CmEvent(raw, state_));
}

Result<CmEvent> EventChannel::wait(const Deadline& deadline) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, next());
    if (event) return std::move(*event);
    RKV_ASSIGN_OR_RETURN(const bool readable, wait_readable(fd(), deadline));
    if (!readable) {
      return fail_call(Code::kTimeout, "rdma_get_cm_event", 0,
                       "the peer did not answer before the deadline");
    }
  }
}

CmEvent::CmEvent(rdma_cm_event* raw, std::shared_ptr<detail::EventChannelState> channel)
    : raw_(raw), channel_(std::move(channel)) {
  if (raw->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    // librdmacm created the id and copied the listener's context into it.
    id_ = std::make_shared<detail::CmIdState>(channel_);
    id_->id = raw->id;
    id_->id->context = id_.get();
  } else if (raw->id->context != nullptr) {
    id_ = static_cast<detail::CmIdState*>(raw->id->context)->weak_from_this().lock();
  }
}

CmEvent::CmEvent(CmEvent&& other) noexcept
    : raw_(std::exchange(other.raw_, nullptr)),
      channel_(std::move(other.channel_)),
      id_(std::move(other.id_)) {}

CmEvent::~CmEvent() {
  if (raw_ == nullptr) return;
  if (raw_->event == RDMA_CM_EVENT_CONNECT_REQUEST && id_ != nullptr) {
    // An error means that the peer has already given up, so there is nothing to reject.
    rdma_reject(id_->id, nullptr, 0);
  }
  report_teardown(from_minus_one("rdma_ack_cm_event", rdma_ack_cm_event(raw_)));
}

const char* CmEvent::name() const {
  return rdma_event_str(raw_->event);
}

std::shared_ptr<void> CmEvent::owner() const {
  const rdma_cm_id* about =
      raw_->event == RDMA_CM_EVENT_CONNECT_REQUEST ? raw_->listen_id : raw_->id;
  if (about == nullptr || about->context == nullptr) return nullptr;
  return static_cast<detail::CmIdState*>(about->context)->owner.lock();
}

Bytes CmEvent::private_data() const {
  // Both kinds of parameters begin with the private data.
  const rdma_conn_param& from = raw_->param.conn;
  if (!carries_data(raw_->event) || from.private_data == nullptr) return {};
  return {static_cast<const std::byte*>(from.private_data), from.private_data_len};
}

ReadDepths CmEvent::peer_depths() const {
  return {.initiator = raw_->param.conn.initiator_depth,
          .responder = raw_->param.conn.responder_resources};
}

CmId CmEvent::take_request() {
  RKV_CHECK(raw_->event == RDMA_CM_EVENT_CONNECT_REQUEST && !is_datagram() && id_ != nullptr,
            "take_request() was called before, or the event is not a connection request");
  return CmId(std::move(id_));
}

Error CmEvent::error() const {
  const int status = raw_->status < 0 ? -raw_->status : raw_->status;
  switch (raw_->event) {
    case RDMA_CM_EVENT_REJECTED:
      return refused(status, on_iwarp(raw_->id) ? kOfIwarp : kOfConnection);
    case RDMA_CM_EVENT_ADDR_ERROR:
      if (lacks_infiniband(raw_->id, status)) {
        return {.code = Code::kUnsupported,
                .sys_errno = status,
                .call = "rdma_resolve_addr",
                .text = kNeedsInfiniband};
      }
      return {.code = Code::kUnreachable,
              .sys_errno = status,
              .call = "rdma_resolve_addr",
              .text = "the address does not answer, or no RDMA device leads to it"};
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return {.code = Code::kUnreachable,
              .sys_errno = status,
              .call = "rdma_resolve_route",
              .text = "no RDMA path to the address"};
    case RDMA_CM_EVENT_UNREACHABLE:
      if (raw_->status > 0) return refused(status, kOfLookup);
      return {
          .code = Code::kUnreachable,
          .sys_errno = status,
          .call = "rdma_connect",
          .text = "the peer does not answer: no RDMA device there, or UDP port 4791 is blocked"};
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return {.code = Code::kNoDevice, .call = "rdma_cm", .text = "the RDMA device was removed"};
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return {.code = Code::kDisconnected,
              .call = "rdma_cm",
              .text = "the network device's hardware address has changed"};
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return {.code = Code::kDisconnected, .call = "rdma_cm", .text = "the peer disconnected"};
    default:
      return {.code = Code::kDisconnected,
              .sys_errno = status,
              .call = "rdma_connect",
              .text = "the connection could not be set up"};
  }
}

Result<std::shared_ptr<detail::CmIdState>> CmIdBase::make(const EventChannel& channel,
                                                          rdma_port_space space) {
  auto state = std::make_shared<detail::CmIdState>(channel.state_);
  RKV_RETURN_IF_ERROR(from_minus_one(
      "rdma_create_id", rdma_create_id(channel.raw(), &state->id, state.get(), space)));
  return state;
}

Result<CmId> CmId::create(const EventChannel& channel, ConnectionPorts ports) {
  RKV_ASSIGN_OR_RETURN(auto state, make(channel, static_cast<rdma_port_space>(ports)));
  return CmId(std::move(state));
}

void CmIdBase::set_owner(std::weak_ptr<void> owner) {
  state_->owner = std::move(owner);
}
rdma_cm_id* CmIdBase::raw() const {
  return state_->id;
}

bool CmIdBase::is_iwarp() const {
  return on_iwarp(raw());
}

Device CmIdBase::device() const {
  RKV_CHECK(has_device(), "the id has no device: resolve an address first");
  return Device::of_id(raw()->verbs, state_);
}

Status CmIdBase::bind(const SocketAddress& local) {
  Status bound = from_minus_one("rdma_bind_addr", rdma_bind_addr(raw(), local.raw()));
  if (!bound && lacks_infiniband(raw(), bound.error().sys_errno)) {
    return fail_call(Code::kUnsupported, "rdma_bind_addr", EINVAL, kNeedsInfiniband);
  }
  if (bound || bound.error().sys_errno != EADDRNOTAVAIL) return bound;
  // The kernel returns EADDRNOTAVAIL also if the port is taken on the wildcard, or `local` is a
  // wildcard and the port is taken on one address.
  if (!is_this_host(local)) {
    Error foreign = bound.error();
    foreign.code = Code::kNoDevice;
    return std::unexpected(foreign);
  }
  // The address may have come to this host between the call and the check.
  bound = from_minus_one("rdma_bind_addr", rdma_bind_addr(raw(), local.raw()));
  if (bound || bound.error().sys_errno != EADDRNOTAVAIL) return bound;
  return fail_call(Code::kConflict, "rdma_bind_addr", EADDRNOTAVAIL,
                   "the port is in use on every address, or on one of the requested addresses");
}

Status CmIdBase::listen(int backlog) {
  return from_minus_one("rdma_listen", rdma_listen(raw(), backlog));
}

Status CmIdBase::resolve_address(const SocketAddress& peer, const SocketAddress* source,
                                 int timeout_ms) {
  return from_minus_one("rdma_resolve_addr",
                        rdma_resolve_addr(raw(), source != nullptr ? source->raw() : nullptr,
                                          peer.raw(), timeout_ms));
}

Status CmId::set_ack_timeout(AckTimeout timeout) {
  std::uint8_t code = timeout.code();
  return from_minus_one(
      "rdma_set_option",
      rdma_set_option(raw(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code, sizeof code));
}

namespace {
// The option value has the C type that rdma_set_option(3) names: one byte, or an int.
template <class T>
Status set_option(rdma_cm_id* id, int name, T value) {
  return from_minus_one("rdma_set_option",
                        rdma_set_option(id, RDMA_OPTION_ID, name, &value, sizeof value));
}
}  // namespace

Status CmIdBase::set_type_of_service(std::uint8_t value) {
  return set_option(raw(), RDMA_OPTION_ID_TOS, value);
}
Status CmIdBase::set_reuse_address(bool allowed) {
  return set_option(raw(), RDMA_OPTION_ID_REUSEADDR, allowed ? 1 : 0);
}
Status CmIdBase::set_ipv6_only(bool only) {
  return set_option(raw(), RDMA_OPTION_ID_AFONLY, only ? 1 : 0);
}

Status CmIdBase::resolve_route(int timeout_ms) {
  return from_minus_one("rdma_resolve_route", rdma_resolve_route(raw(), timeout_ms));
}

namespace {
// The kernel accepts the number of any queue pair. With a queue pair of another device it would
// connect the queue pair that has the same number on this one. Contexts may differ: numbers belong
// to the device.
Status check_device(const rdma_cm_id* id, const QueuePairBase& qp) {
  if (id->verbs != nullptr && id->verbs->device == qp.raw()->context->device) return {};
  return fail_call(
      Code::kInvalidArgument, "rdma_init_qp_attr", 0,
      id->verbs == nullptr
          ? "the id has no device: resolve an address first"
          : "the queue pair belongs to another device: create it on the id's device()");
}

// Refuses path parameters before anything is sent to the peer.
Status check_path_of(const CmId& id, const PathParameters& path) {
  if (path == PathParameters{}) return {};
  if (id.is_iwarp()) {
    return fail_call(Code::kUnsupported, "ibv_modify_qp", 0,
                     "an iWARP queue pair has no path: set the type of service of the id");
  }
  RKV_ASSIGN_OR_RETURN(const PortAttributes port, id.device().port(id.port_number()));
  // The kernel gives a route a GID on RoCE, and on InfiniBand where the path has a hop limit. An id
  // without a path record is checked in to_ready().
  const rdma_route& route = id.raw()->route;
  const bool by_lid = !port.ethernet && route.num_paths > 0 && route.path_rec[0].hop_limit == 0;
  return detail::check_path(path, port.ethernet, !by_lid);
}
}  // namespace

Status CmId::to_init(QueuePairBase& qp, const ConnectionParameters& parameters) {
  RKV_RETURN_IF_ERROR(detail::check(parameters));
  RKV_RETURN_IF_ERROR(check_device(raw(), qp));
  RKV_RETURN_IF_ERROR(check_path_of(*this, parameters.path));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  int mask = 0;
  RKV_RETURN_IF_ERROR(
      from_minus_one("rdma_init_qp_attr", rdma_init_qp_attr(raw(), &attributes, &mask)));
  // The kernel's proposal grants remote WRITE; use the rights that the program requested.
  attributes.qp_access_flags = std::to_underlying(parameters.remote_access);
  return qp.modify(attributes, mask | IBV_QP_ACCESS_FLAGS);
}

Status CmId::to_ready(QueuePairBase& qp, const ConnectionParameters& parameters,
                      ReadDepths depths) {
  RKV_RETURN_IF_ERROR(detail::check(parameters));
  RKV_RETURN_IF_ERROR(check_device(raw(), qp));
  // The kernel moves an iWARP queue pair when the connection is made. It has none of the timers.
  if (is_iwarp()) return {};
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  int mask = 0;
  RKV_RETURN_IF_ERROR(
      from_minus_one("rdma_init_qp_attr", rdma_init_qp_attr(raw(), &receive, &mask)));
  bool roce = false;
  if (parameters.path.hop_limit) {
    RKV_ASSIGN_OR_RETURN(const PortAttributes port, device().port(port_number()));
    roce = port.ethernet;
  }
  RKV_RETURN_IF_ERROR(detail::set_path(parameters.path, roce, receive.ah_attr));
  receive.max_dest_rd_atomic = depths.responder;
  receive.min_rnr_timer = parameters.rnr_timer.code();
  // Set again: the queue pair may have been moved to INIT with other rights.
  receive.qp_access_flags = std::to_underlying(parameters.remote_access);
  RKV_RETURN_IF_ERROR(qp.modify(
      receive, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS));

  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  mask = 0;
  RKV_RETURN_IF_ERROR(from_minus_one("rdma_init_qp_attr", rdma_init_qp_attr(raw(), &send, &mask)));
  send.max_rd_atomic = depths.initiator;
  // Our own timers on both sides. On the passive side the kernel proposes the value of the peer's
  // request; with a time-out code of 31 a dead peer would be noticed only after hours.
  send.timeout = parameters.ack_timeout.code();
  send.retry_cnt = std::min(parameters.retry_count, kMaxRetryCount);
  send.rnr_retry = parameters.rnr_retry;
  return qp.modify(
      send, mask | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
}

namespace {
rdma_conn_param connection_parameters(const QueuePairBase& qp,
                                      const ConnectionParameters& parameters, ReadDepths depths,
                                      Bytes private_data) {
  rdma_conn_param out{};
  out.private_data = private_data.data();
  out.private_data_len = static_cast<std::uint8_t>(private_data.size());
  out.responder_resources = depths.responder;
  out.initiator_depth = depths.initiator;
  out.retry_count = std::min(parameters.retry_count, kMaxRetryCount);
  out.rnr_retry_count = parameters.rnr_retry;
  out.srq = qp.has_shared_receive_queue() ? 1 : 0;
  out.qp_num = qp.number();
  return out;
}
}  // namespace

Status CmId::connect(const QueuePairBase& qp, const ConnectionParameters& parameters,
                     ReadDepths depths, Bytes private_data) {
  RKV_RETURN_IF_ERROR(detail::check(parameters));
  RKV_RETURN_IF_ERROR(check_device(raw(), qp));
  RKV_RETURN_IF_ERROR(detail::fits("rdma_connect", private_data, kConnectRequestBytes,
                                   "private_data of a connect request is at most 56 bytes"));
  rdma_conn_param out = connection_parameters(qp, parameters, depths, private_data);
  return from_minus_one("rdma_connect", rdma_connect(raw(), &out));
}

Status CmId::establish() {
  return from_minus_one("rdma_establish", rdma_establish(raw()));
}

Status CmId::accept(const QueuePairBase& qp, const ConnectionParameters& parameters,
                    ReadDepths depths, Bytes private_data) {
  RKV_RETURN_IF_ERROR(detail::check(parameters));
  RKV_RETURN_IF_ERROR(check_device(raw(), qp));
  RKV_RETURN_IF_ERROR(detail::fits("rdma_accept", private_data, kConnectReplyBytes,
                                   "private_data of an accept is at most 196 bytes"));
  rdma_conn_param out = connection_parameters(qp, parameters, depths, private_data);
  return from_minus_one("rdma_accept", rdma_accept(raw(), &out));
}

Status CmId::reject(Bytes reason) {
  RKV_RETURN_IF_ERROR(detail::fits("rdma_reject", reason, kRejectBytes,
                                   "the reason of a reject is at most 148 bytes"));
  return from_minus_one(
      "rdma_reject", rdma_reject(raw(), reason.data(), static_cast<std::uint8_t>(reason.size())));
}

Status CmId::notify(ibv_event_type event) {
  return from_minus_one("rdma_notify", rdma_notify(raw(), event));
}

Status CmId::disconnect() {
  const Status status = from_minus_one("rdma_disconnect", rdma_disconnect(raw()));
  // EINVAL and ENOTCONN mean that the connection is already down.
  if (!status && (status.error().sys_errno == EINVAL || status.error().sys_errno == ENOTCONN)) {
    return {};
  }
  return status;
}

Status CmIdBase::migrate(const EventChannel& channel) {
  RKV_RETURN_IF_ERROR(from_minus_one("rdma_migrate_id", rdma_migrate_id(raw(), channel.raw())));
  state_->channel = channel.state_;
  return {};
}

SocketAddress CmIdBase::local_address() const {
  return SocketAddress::from(rdma_get_local_addr(raw()));
}
SocketAddress CmIdBase::peer_address() const {
  return SocketAddress::from(rdma_get_peer_addr(raw()));
}

}  // namespace rkv::rdma
