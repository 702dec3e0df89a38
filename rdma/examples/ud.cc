// Unreliable datagrams: queue pairs without a connection. Each message names its receiver, and the
// receiver answers to the message's sender.
//
//   ud
#include <rkv/rdma/address_handle.h>
#include <rkv/rdma/route.h>

#include <algorithm>
#include <array>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kBytes = 256;  // per receive: 40 bytes of routing header and the message

// A queue pair that is ready to receive, and the values that its peers need.
struct Node {
  Room room;
  Endpoint self;
  BasicQueuePair<Ud> qp;

  static Result<Node> make(const ProtectionDomain& pd, std::uint8_t port, const GidEntry& gid) {
    RKV_ASSIGN_OR_RETURN(Room room, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(auto prepared, BasicQueuePair<Ud>::create(pd, room.queue, room.queue,
                                                                   {.inline_bytes = 64}));
    RKV_ASSIGN_OR_RETURN(const Endpoint self, prepared.endpoint(port, gid));
    const ReceiveRequest receive{.wr_id = 1, .buffer = room.memory.local(0, kBytes)};
    RKV_RETURN_IF_ERROR(prepared.post_receives({&receive, 1}));
    RKV_ASSIGN_OR_RETURN(auto qp, std::move(prepared).activate(self.qkey));
    return Node{std::move(room), self, std::move(qp)};
  }

  Status send(const AddressHandle& to, const Endpoint& peer, std::string_view text) {
    auto batch = qp.batch();
    batch.op(2).signaled().to(to, peer.qp_num, peer.qkey).send(inlined(rkv::as_bytes(text)));
    RKV_RETURN_IF_ERROR(std::move(batch).submit());
    RKV_RETURN_IF_ERROR(
        room.queue.wait_one(soon()));  // it was sent; its arrival is never confirmed
    return {};
  }
  Result<ReceivedDatagram> receive() {
    RKV_ASSIGN_OR_RETURN(const WorkCompletion done, room.queue.wait_one(soon()));
    return ReceivedDatagram::from(room.memory.local(0, kBytes), done.byte_length);
  }
};

void show(const char* who, const ReceivedDatagram& datagram) {
  const std::string_view text = rkv::as_text(datagram.payload());
  std::printf("%s got \"%.*s\"\n", who, static_cast<int>(text.size()), text.data());
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, device.first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, device.routable_gid(port));
  RKV_ASSIGN_OR_RETURN(Node client, Node::make(pd, port, gid));
  RKV_ASSIGN_OR_RETURN(Node server, Node::make(pd, port, gid));
  std::printf("a datagram is at most %u bytes long\n", client.qp.max_datagram_bytes());

  // The route to a peer is created once, and serves all queue pairs behind that address.
  RKV_ASSIGN_OR_RETURN(const Route route, choose_route(port, gid, client.self, server.self));
  RKV_ASSIGN_OR_RETURN(const AddressHandle there, AddressHandle::create(pd, route.address));
  RKV_RETURN_IF_ERROR(client.send(there, server.self, "question"));
  RKV_ASSIGN_OR_RETURN(const ReceivedDatagram question, server.receive());
  show("server", question);

  // The 40 bytes before the message name its source address. The completion names the source queue
  // pair; here the server knows its only client.
  const DatagramSource source{.qp_num = client.self.qp_num, .has_grh = true};
  RKV_ASSIGN_OR_RETURN(const AddressHandle back, AddressHandle::reply(pd, port, source, question));
  RKV_RETURN_IF_ERROR(server.send(back, client.self, "answer"));
  RKV_ASSIGN_OR_RETURN(const ReceivedDatagram answer, client.receive());
  show("client", answer);
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
