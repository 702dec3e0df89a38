#include "rkv/rdma/datagram_service.h"

#include <cerrno>
#include <utility>

#include "rdma/core/connect/cm_steps.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

DatagramId CmEvent::take_datagram_request() {
  RKV_CHECK(raw_->event == RDMA_CM_EVENT_CONNECT_REQUEST && is_datagram() && id_ != nullptr,
            "take_datagram_request() was called before, or the event is not a look-up");
  return DatagramId(std::move(id_));
}

DatagramService CmEvent::datagram_service() const {
  RKV_CHECK(raw_->event == RDMA_CM_EVENT_ESTABLISHED && is_datagram(),
            "datagram_service() needs an event that answers a look-up");
  const rdma_ud_param& found = raw_->param.ud;
  return {.address = AddressAttributes::from_verbs(found.ah_attr),
          .qp_num = found.qp_num,
          .qkey = found.qkey};
}

namespace {
// The connection manager's attributes for a queue pair of this id: port, partition, Q_Key.
Result<std::pair<ibv_qp_attr, int>> initial_attributes(rdma_cm_id* id) {
  RKV_CHECK(id->verbs != nullptr, "a datagram id without a device has no Q_Key");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  int mask = 0;
  RKV_RETURN_IF_ERROR(
      from_minus_one("rdma_init_qp_attr", rdma_init_qp_attr(id, &attributes, &mask)));
  return std::pair(attributes, mask);
}
}  // namespace

Result<DatagramId> DatagramId::create(const EventChannel& channel, DatagramPorts ports) {
  RKV_ASSIGN_OR_RETURN(auto state, make(channel, static_cast<rdma_port_space>(ports)));
  return DatagramId(std::move(state));
}

Result<std::uint32_t> DatagramId::qkey() const {
  RKV_ASSIGN_OR_RETURN(const auto initial, initial_attributes(raw()));
  return initial.first.qkey;
}

Status DatagramId::to_init(PreparedQueuePair<Ud>& qp) {
  RKV_ASSIGN_OR_RETURN(const auto initial, initial_attributes(raw()));
  return qp.modify(initial.first, initial.second);
}

Status DatagramId::look_up(Bytes private_data) {
  RKV_RETURN_IF_ERROR(detail::fits("rdma_connect", private_data, kLookupRequestBytes,
                                   "private_data of a look-up is at most 180 bytes"));
  rdma_conn_param asked{};
  asked.private_data = private_data.data();
  asked.private_data_len = static_cast<std::uint8_t>(private_data.size());
  return from_minus_one("rdma_connect", rdma_connect(raw(), &asked));
}

Status DatagramId::accept(const BasicQueuePair<Ud>& qp, Bytes private_data) {
  RKV_RETURN_IF_ERROR(detail::fits("rdma_accept", private_data, kLookupReplyBytes,
                                   "private_data of an answer to a look-up is at most 136 bytes"));
  if (qp.device().name() != device().name()) {
    return fail_call(Code::kInvalidArgument, "rdma_accept", 0,
                     "qp belongs to another device than the one that received the request");
  }
  // The peer receives the port space's key. If the queue pair has another key, it would drop the
  // peer's datagrams.
  RKV_ASSIGN_OR_RETURN(const std::uint32_t own, qkey());
  RKV_ASSIGN_OR_RETURN(const auto found, qp.query(IBV_QP_QKEY | IBV_QP_PORT));
  if (found.attributes.port_num != port_number()) {
    return fail_call(Code::kInvalidArgument, "rdma_accept", 0,
                     "qp uses another port than the one that received the request");
  }
  if (found.attributes.qkey != own) {
    return fail_call(Code::kInvalidArgument, "rdma_accept", 0,
                     "qp has another Q_Key than the one sent to peers: activate() it with qkey()");
  }
  rdma_conn_param answer{};
  answer.private_data = private_data.data();
  answer.private_data_len = static_cast<std::uint8_t>(private_data.size());
  answer.qp_num = qp.number();
  return from_minus_one("rdma_accept", rdma_accept(raw(), &answer));
}

Status DatagramId::reject(Bytes reason) {
  RKV_RETURN_IF_ERROR(detail::fits("rdma_reject", reason, kLookupReplyBytes,
                                   "the reason of a refused look-up is at most 136 bytes"));
  return from_minus_one(
      "rdma_reject", rdma_reject(raw(), reason.data(), static_cast<std::uint8_t>(reason.size())));
}

Result<DatagramResolver> DatagramResolver::resolve(const SocketAddress& service,
                                                   const DatagramResolveOptions& options,
                                                   const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(EventChannel channel, EventChannel::create());
  RKV_ASSIGN_OR_RETURN(DatagramId id, DatagramId::create(channel, options.ports));
  RKV_RETURN_IF_ERROR(detail::find_device(channel, id, service, options.source, deadline));
  RKV_RETURN_IF_ERROR(detail::find_path(channel, id, options.type_of_service, deadline));
  return DatagramResolver(std::move(channel), std::move(id));
}

Result<DatagramPeer> DatagramResolver::look_up(const ProtectionDomain& pd, Bytes private_data,
                                               const Deadline& deadline,
                                               PrivateData* rejection) && {
  if (pd.device().name() != device().name()) {
    return fail(Code::kInvalidArgument,
                "pd belongs to another device than the one that leads to the service");
  }
  RKV_RETURN_IF_ERROR(id_.look_up(private_data));
  RKV_ASSIGN_OR_RETURN(const CmEvent event,
                       detail::expect(channel_, RDMA_CM_EVENT_ESTABLISHED, deadline, rejection));
  const DatagramService found = event.datagram_service();
  RKV_ASSIGN_OR_RETURN(AddressHandle handle, AddressHandle::create(pd, found.address));
  return DatagramPeer{.handle = std::move(handle),
                      .qp_num = found.qp_num,
                      .qkey = found.qkey,
                      .address = found.address,
                      .peer_data = PrivateData(event.private_data())};
}

Status DatagramRequest::accept(const BasicQueuePair<Ud>& qp, Bytes private_data) && {
  const Status status = id().accept(qp, private_data);
  if (status) id_.reset();
  return status;
}

Result<DatagramListener> DatagramListener::listen(const SocketAddress& local,
                                                  const ListenOptions& options,
                                                  DatagramPorts ports) {
  RKV_ASSIGN_OR_RETURN(EventChannel channel, EventChannel::create());
  RKV_ASSIGN_OR_RETURN(DatagramId id, DatagramId::create(channel, ports));
  RKV_RETURN_IF_ERROR(start(id, local, options));
  return DatagramListener(std::move(channel), std::move(id));
}

DatagramRequest DatagramListener::taken(CmEvent event) {
  DatagramId id = event.take_datagram_request();
  return {std::move(id), event.private_data()};
}

Result<std::optional<DatagramRequest>> DatagramListener::next() {
  RKV_ASSIGN_OR_RETURN(std::optional<CmEvent> event, next_request());
  if (!event) return std::optional<DatagramRequest>{};
  return std::optional<DatagramRequest>(taken(std::move(*event)));
}

Result<DatagramRequest> DatagramListener::wait(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(CmEvent event, wait_request(deadline));
  return taken(std::move(event));
}

}  // namespace rkv::rdma
