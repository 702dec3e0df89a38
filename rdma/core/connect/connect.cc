#include "rkv/rdma/connect.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "rdma/core/connect/cm_steps.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace detail {

// An address change does not end the connection: a bond has failed over and already uses its new
// hardware address. Source: rdma_get_cm_event(3), RDMA_CM_EVENT_ADDR_CHANGE.
bool is_hint(rdma_cm_event_type type) {
  return type == RDMA_CM_EVENT_ADDR_CHANGE;
}

Result<std::optional<CmEvent>> next_expected(EventChannel& channel, rdma_cm_event_type wanted,
                                             PrivateData* failed) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, channel.next());
    if (!event || (event->type() == wanted && event->status() == 0)) return event;
    if (is_hint(event->type())) continue;
    const std::size_t least = event->type() == RDMA_CM_EVENT_REJECTED ? kRejectBytes : 0;
    if (failed != nullptr) *failed = PrivateData(event->private_data(), least);
    return std::unexpected(event->error());
  }
}

namespace {
// Blocks until the channel has an event.
Status wait_event(const EventChannel& channel, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const bool readable, wait_readable(channel.fd(), deadline));
  if (readable) return {};
  return fail_call(Code::kTimeout, "rdma_get_cm_event", 0,
                   "the peer did not answer before the deadline");
}
}  // namespace

Result<CmEvent> expect(EventChannel& channel, rdma_cm_event_type wanted, const Deadline& deadline,
                       PrivateData* failed) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, next_expected(channel, wanted, failed));
    if (event) return std::move(*event);
    RKV_RETURN_IF_ERROR(wait_event(channel, deadline));
  }
}

Status find_device(EventChannel& channel, CmIdBase& id, const SocketAddress& peer,
                   const SocketAddress* source, const Deadline& deadline) {
  RKV_RETURN_IF_ERROR(id.resolve_address(peer, source, std::max(1, deadline.left_ms())));
  RKV_ASSIGN_OR_RETURN(const CmEvent event, expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, deadline));
  return {};
}

Status find_path(EventChannel& channel, CmIdBase& id,
                 const std::optional<std::uint8_t>& type_of_service, const Deadline& deadline) {
  if (type_of_service) RKV_RETURN_IF_ERROR(id.set_type_of_service(*type_of_service));
  RKV_RETURN_IF_ERROR(id.resolve_route(std::max(1, deadline.left_ms())));
  RKV_ASSIGN_OR_RETURN(const CmEvent event,
                       expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline));
  return {};
}

}  // namespace detail

namespace {

ReadDepths smaller(ReadDepths a, ReadDepths b) {
  return {.initiator = std::min(a.initiator, b.initiator),
          .responder = std::min(a.responder, b.responder)};
}

Result<ReadDepths> own_depths(const QueuePairBase& qp, const ConnectionParameters& parameters) {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, qp.device().attributes());
  return read_depths(parameters, limits);
}

// A program that sets reads_as_initiator needs READs, so a connection that cannot carry any is
// refused. Devices would fail such READs or never complete them. A program that leaves the depth to
// the device finds it in CmConnection::depths.
Status check_agreed(const char* verb, const ConnectionParameters& parameters, ReadDepths own,
                    ReadDepths agreed) {
  if (parameters.reads_as_initiator == 0 || agreed.initiator != 0) return {};
  return fail_call(
      Code::kUnsupported, verb, 0,
      own.initiator == 0
          ? "reads_as_initiator: the device cannot issue READs, its max_qp_init_rd_atom is 0"
          : "reads_as_initiator: the peer does not answer READs, its responder_resources are 0");
}

}  // namespace

Status CmConnection::wait_established(const Deadline& deadline) {
  while (!established && !ended) {
    RKV_ASSIGN_OR_RETURN(const CmEvent event, channel.wait(deadline));
    take(event);
  }
  return ended ? Status(std::unexpected(*ended)) : Status{};
}

Result<bool> CmConnection::try_established() {
  while (!established) {
    if (ended) return std::unexpected(*ended);
    RKV_ASSIGN_OR_RETURN(const std::optional<CmEvent> event, channel.next());
    if (!event) return false;
    take(*event);
  }
  return true;
}

Status CmConnection::check() {
  while (!ended) {
    RKV_ASSIGN_OR_RETURN(const std::optional<CmEvent> event, channel.next());
    if (!event) return {};
    take(*event);
  }
  return std::unexpected(*ended);
}

void CmConnection::take(const CmEvent& event) {
  if (event.type() == RDMA_CM_EVENT_ESTABLISHED && event.status() == 0) {
    established = true;
  } else if (event.type() == RDMA_CM_EVENT_REJECTED && established) {
    // The peer ended before this side's last handshake message had come (CmId::disconnect()).
    ended = {.code = Code::kDisconnected, .call = "rdma_cm", .text = "the peer disconnected"};
    peer_left = true;
  } else if (!detail::is_hint(event.type())) {
    ended = event.error();
    peer_left = event.type() == RDMA_CM_EVENT_DISCONNECTED;
  }
}

Status CmConnection::disconnect() {
  RKV_RETURN_IF_ERROR(qp.to_error());
  return id.disconnect();
}

struct Connector::Pending {
  PreparedQueuePair<> qp;
  ConnectionParameters parameters;
  ReadDepths own;
};

Connector::Connector(EventChannel channel, CmId id, const ResolveOptions& options, int timeout_ms)
    : channel_(std::move(channel)),
      id_(std::move(id)),
      ack_timeout_(options.ack_timeout),
      type_of_service_(options.type_of_service),
      timeout_ms_(timeout_ms) {}
Connector::Connector(Connector&&) noexcept = default;
Connector& Connector::operator=(Connector&&) noexcept = default;
// The queue pair ends before the id: pending_ is the last field.
Connector::~Connector() = default;

Result<Connector> Connector::start(const SocketAddress& peer, const ResolveOptions& options,
                                   int timeout_ms) {
  RKV_ASSIGN_OR_RETURN(EventChannel channel, EventChannel::create());
  RKV_ASSIGN_OR_RETURN(CmId id, CmId::create(channel));
  RKV_RETURN_IF_ERROR(id.resolve_address(peer, options.source, timeout_ms));
  return Connector(std::move(channel), std::move(id), options, timeout_ms);
}

Status Connector::start_route() {
  // The kernel uses the time-out for the path it resolves next. Kernels before 5.1 lack the option
  // and keep their own time-out; they notice a dead peer later, which is acceptable.
  const Status timeout = id_.set_ack_timeout(ack_timeout_);
  if (!timeout && timeout.error().sys_errno != ENOSYS) return std::unexpected(timeout.error());
  if (type_of_service_) RKV_RETURN_IF_ERROR(id_.set_type_of_service(*type_of_service_));
  return id_.resolve_route(timeout_ms_);
}

Result<bool> Connector::try_resolve() {
  if (stage_ == Stage::kAddress) {
    {
      RKV_ASSIGN_OR_RETURN(const std::optional<CmEvent> event,
                           detail::next_expected(channel_, RDMA_CM_EVENT_ADDR_RESOLVED));
      if (!event) return false;
    }
    RKV_RETURN_IF_ERROR(start_route());
    stage_ = Stage::kRoute;
  }
  if (stage_ == Stage::kRoute) {
    RKV_ASSIGN_OR_RETURN(const std::optional<CmEvent> event,
                         detail::next_expected(channel_, RDMA_CM_EVENT_ROUTE_RESOLVED));
    if (!event) return false;
    stage_ = Stage::kResolved;
  }
  return true;
}

Result<Connector> Connector::resolve(const SocketAddress& peer, const ResolveOptions& options,
                                     const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(Connector out, start(peer, options, std::max(1, deadline.left_ms())));
  for (;;) {
    RKV_ASSIGN_OR_RETURN(const bool done, out.try_resolve());
    if (done) return out;
    RKV_RETURN_IF_ERROR(detail::wait_event(out.channel_, deadline));
  }
}

Status Connector::prepare(PreparedQueuePair<>& qp, const ConnectionParameters& parameters) {
  return id_.to_init(qp, parameters);
}

Status Connector::start_connect(PreparedQueuePair<> qp, const ConnectionParameters& parameters,
                                Bytes private_data) {
  RKV_CHECK(stage_ == Stage::kResolved && pending_ == nullptr,
            "start_connect() needs a resolved address, and is called once");
  RKV_ASSIGN_OR_RETURN(const ReadDepths own, own_depths(qp, parameters));
  RKV_RETURN_IF_ERROR(id_.to_init(qp, parameters));
  RKV_RETURN_IF_ERROR(id_.connect(qp, parameters, own, private_data));
  pending_ = std::make_unique<Pending>(std::move(qp), parameters, own);
  return {};
}

Result<std::optional<CmConnection>> Connector::try_connect(PrivateData* rejection) {
  RKV_CHECK(pending_ != nullptr, "try_connect() without start_connect(), or after its result");
  const bool iwarp = id_.is_iwarp();
  // iWARP has two messages: the reply establishes the connection.
  const rdma_cm_event_type answer =
      iwarp ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE;
  Result<std::optional<CmEvent>> event = detail::next_expected(channel_, answer, rejection);
  if (event && !*event) return std::optional<CmConnection>{};
  // The queue pair leaves this object here: an error destroys it.
  auto [qp, parameters, own] = std::move(*std::exchange(pending_, nullptr));
  if (!event) return std::unexpected(event.error());
  const PrivateData reply((*event)->private_data(), kConnectReplyBytes);
  const ReadDepths depths = smaller(own, (*event)->peer_depths());
  event->reset();  // acknowledged
  RKV_RETURN_IF_ERROR(check_agreed("rdma_connect", parameters, own, depths));
  RKV_RETURN_IF_ERROR(id_.to_ready(qp, parameters, depths));
  RKV_ASSIGN_OR_RETURN(QueuePair ready, std::move(qp).into_queue_pair());
  if (!iwarp) RKV_RETURN_IF_ERROR(id_.establish());
  return std::optional<CmConnection>(CmConnection{.channel = std::move(channel_),
                                                  .id = std::move(id_),
                                                  .qp = std::move(ready),
                                                  .peer_data = reply,
                                                  .depths = depths,
                                                  .established = true});
}

Result<CmConnection> Connector::connect(PreparedQueuePair<> qp,
                                        const ConnectionParameters& parameters, Bytes private_data,
                                        const Deadline& deadline, PrivateData* rejection) && {
  RKV_RETURN_IF_ERROR(start_connect(std::move(qp), parameters, private_data));
  for (;;) {
    Result<std::optional<CmConnection>> connected = try_connect(rejection);
    if (!connected) return std::unexpected(connected.error());
    if (*connected) return std::move(**connected);
    if (const Status arrived = detail::wait_event(channel_, deadline); !arrived) {
      pending_.reset();
      return std::unexpected(arrived.error());
    }
  }
}

Status ConnectRequest::prepare(PreparedQueuePair<>& qp, const ConnectionParameters& parameters) {
  return id().to_init(qp, parameters);
}

Result<CmConnection> ConnectRequest::accept(PreparedQueuePair<> qp,
                                            const ConnectionParameters& parameters,
                                            Bytes private_data, const EventChannel* channel) && {
  RKV_ASSIGN_OR_RETURN(const ReadDepths own, own_depths(qp, parameters));
  const ReadDepths depths = smaller(own, depths_);
  RKV_RETURN_IF_ERROR(check_agreed("rdma_accept", parameters, own, depths));
  RKV_ASSIGN_OR_RETURN(EventChannel events, channel != nullptr
                                                ? Result<EventChannel>(channel->share())
                                                : EventChannel::create());
  RKV_RETURN_IF_ERROR(id().migrate(events));
  RKV_RETURN_IF_ERROR(id().to_init(qp, parameters));
  RKV_RETURN_IF_ERROR(id().to_ready(qp, parameters, depths));
  RKV_ASSIGN_OR_RETURN(QueuePair ready, std::move(qp).into_queue_pair());
  RKV_RETURN_IF_ERROR(id().accept(ready, parameters, depths, private_data));
  CmId answered = std::move(id());
  id_.reset();
  return CmConnection{.channel = std::move(events),
                      .id = std::move(answered),
                      .qp = std::move(ready),
                      .peer_data = data_,
                      .depths = depths};
}

namespace {

// Retries, because the kernel does not report when a device gets an address.
Status bind(CmIdBase& id, const SocketAddress& local, const std::optional<Deadline>& until) {
  constexpr int kPauseMs = 10;
  for (;;) {
    const Status bound = id.bind(local);
    if (bound || !until || until->passed()) return bound;
    const Error& why = bound.error();
    if (why.sys_errno != ENODEV && why.sys_errno != EADDRNOTAVAIL) return bound;
    if (why.code == Code::kConflict) return bound;
    ::poll(nullptr, 0, std::min(kPauseMs, until->left_ms()));
  }
}

}  // namespace

Status CmListenerBase::start(CmIdBase& id, const SocketAddress& local,
                             const ListenOptions& options) {
  if (options.type_of_service) {
    RKV_RETURN_IF_ERROR(id.set_type_of_service(*options.type_of_service));
  }
  if (options.reuse_address) RKV_RETURN_IF_ERROR(id.set_reuse_address(true));
  if (options.ipv6_only) RKV_RETURN_IF_ERROR(id.set_ipv6_only(*options.ipv6_only));
  RKV_RETURN_IF_ERROR(bind(id, local, options.until));
  return id.listen(options.backlog);
}

Result<std::optional<CmEvent>> CmListenerBase::next_request() {
  while (!lost_) {
    RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, channel_.next());
    if (!event || event->type() == RDMA_CM_EVENT_CONNECT_REQUEST) return event;
    // Other events concern a request that its peer abandoned before the answer, unless the event is
    // about the listening id itself.
    const bool is_own = event->raw()->id == id_.raw();
    if (is_own && event->type() == RDMA_CM_EVENT_DEVICE_REMOVAL) lost_ = event->error();
  }
  return std::unexpected(*lost_);
}

Result<CmEvent> CmListenerBase::wait_request(const Deadline& deadline) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, next_request());
    if (event) return std::move(*event);
    RKV_ASSIGN_OR_RETURN(const bool readable, wait_readable(fd(), deadline));
    if (!readable) return fail(Code::kTimeout, "no connection request arrived before the deadline");
  }
}

Result<CmListener> CmListener::listen(const SocketAddress& local, int backlog) {
  return listen(local, ListenOptions{.backlog = backlog});
}

Result<CmListener> CmListener::listen(const SocketAddress& local, const ListenOptions& options) {
  RKV_ASSIGN_OR_RETURN(EventChannel channel, EventChannel::create());
  RKV_ASSIGN_OR_RETURN(CmId id, CmId::create(channel));
  RKV_RETURN_IF_ERROR(start(id, local, options));
  return CmListener(std::move(channel), std::move(id));
}

ConnectRequest CmListener::taken(CmEvent event) {
  CmId id = event.take_request();
  return {std::move(id), event.private_data(), event.peer_depths()};
}

Result<std::optional<ConnectRequest>> CmListener::next() {
  RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, next_request());
  if (!event) return std::optional<ConnectRequest>{};
  return std::optional<ConnectRequest>(taken(std::move(*event)));
}

Result<ConnectRequest> CmListener::wait(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(CmEvent event, wait_request(deadline));
  return taken(std::move(event));
}

}  // namespace rkv::rdma
