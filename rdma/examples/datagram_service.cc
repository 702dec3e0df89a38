// A datagram service found by address and port. The client's lookup carries its queue pair number
// to the service and returns the service's address. Then one question and one answer are sent,
// without a connection.
//
//   datagram_service                         both, over this machine's own device
//   datagram_service server HOST:PORT        one of them
//   datagram_service client HOST:PORT
#include <arpa/inet.h>
#include <rkv/rdma/datagram_service.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <thread>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kBytes = 256;  // per receive: 40 bytes of routing header and the message

using Number = std::array<std::byte, 4>;  // a queue pair's number, in network byte order

// A queue pair and its resources; it receives after activate(). An answer may arrive before the
// completion of the question's send, so each direction has its own completion queue.
struct Node {
  ProtectionDomain pd;
  Room incoming;
  Room outgoing;
  PreparedQueuePair<Ud> prepared;
  std::optional<BasicQueuePair<Ud>> qp = std::nullopt;

  static Result<Node> make(const Device& device) {
    RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
    RKV_ASSIGN_OR_RETURN(Room incoming, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(Room outgoing, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(
        auto prepared,
        BasicQueuePair<Ud>::create(pd, outgoing.queue, incoming.queue, {.inline_bytes = 64}));
    return Node{std::move(pd), std::move(incoming), std::move(outgoing), std::move(prepared)};
  }
  // REQUIRES: the queue pair is in INIT; prepare() of a resolver or of a request moves it there.
  Status activate(std::uint32_t qkey) {
    const ReceiveRequest receive{.wr_id = 1, .buffer = incoming.memory.local(0, kBytes)};
    RKV_RETURN_IF_ERROR(prepared.post_receives({&receive, 1}));
    RKV_ASSIGN_OR_RETURN(qp, std::move(prepared).activate(qkey));
    return {};
  }

  Status send(const AddressHandle& to, std::uint32_t qp_num, std::uint32_t qkey,
              std::string_view text) {
    auto batch = qp->batch();
    batch.op(2).signaled().to(to, qp_num, qkey).send(inlined(rkv::as_bytes(text)));
    RKV_RETURN_IF_ERROR(std::move(batch).submit());
    RKV_RETURN_IF_ERROR(outgoing.queue.wait_one(soon()));
    return {};
  }
  Result<ReceivedDatagram> receive(const char* who) {
    RKV_ASSIGN_OR_RETURN(const WorkCompletion done, incoming.queue.wait_one(soon()));
    RKV_ASSIGN_OR_RETURN(
        const ReceivedDatagram got,
        ReceivedDatagram::from(incoming.memory.local(0, kBytes), done.byte_length));
    const std::string_view text = rkv::as_text(got.payload());
    std::printf("%s got \"%.*s\"\n", who, static_cast<int>(text.size()), text.data());
    return got;
  }
};

Status serve(DatagramListener& listener) {
  RKV_ASSIGN_OR_RETURN(DatagramRequest request, listener.wait(soon()));
  RKV_ASSIGN_OR_RETURN(Node node, Node::make(request.device()));
  RKV_RETURN_IF_ERROR(request.prepare(node.prepared));
  RKV_ASSIGN_OR_RETURN(const std::uint32_t qkey, request.qkey());
  RKV_RETURN_IF_ERROR(node.activate(qkey));
  Number number;
  if (request.private_data().size() < sizeof number) {
    return std::move(request).reject(
        rkv::as_bytes("the request lacks the client's queue pair number"));
  }
  std::ranges::copy(request.private_data().first<sizeof number>(), number.begin());
  const DatagramSource client{.qp_num = ntohl(std::bit_cast<std::uint32_t>(number)),
                              .has_grh = true};  // always present on RoCE
  const std::uint8_t port = request.port_number();
  RKV_RETURN_IF_ERROR(std::move(request).accept(*node.qp, rkv::as_bytes("welcome")));

  RKV_ASSIGN_OR_RETURN(const ReceivedDatagram question, node.receive("server"));
  RKV_ASSIGN_OR_RETURN(const AddressHandle back,
                       AddressHandle::reply(node.pd, port, client, question));
  return node.send(back, client.qp_num, qkey, "answer");
}

Status ask(const SocketAddress& server) {
  RKV_ASSIGN_OR_RETURN(DatagramResolver resolver, DatagramResolver::resolve(server, {}, soon()));
  RKV_ASSIGN_OR_RETURN(Node node, Node::make(resolver.device()));
  RKV_RETURN_IF_ERROR(resolver.prepare(node.prepared));
  const auto number = std::bit_cast<Number>(htonl(node.prepared.number()));
  RKV_ASSIGN_OR_RETURN(const DatagramPeer service,
                       std::move(resolver).look_up(node.pd, number, soon()));
  std::printf("client: the service says \"%.7s\"\n",
              reinterpret_cast<const char*>(service.peer_data.bytes().data()));
  RKV_RETURN_IF_ERROR(node.activate(service.qkey));
  RKV_RETURN_IF_ERROR(node.send(service.handle, service.qp_num, service.qkey, "question"));
  RKV_RETURN_IF_ERROR(node.receive("client"));
  return {};
}

Status both() {
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, address_of_first_active());
  RKV_ASSIGN_OR_RETURN(DatagramListener listener, DatagramListener::listen(address));
  Status asked;
  std::thread client([&] { asked = ask(listener.address()); });
  const Status served = serve(listener);
  client.join();
  return asked ? served : asked;
}

Status run(int argc, char** argv) {
  if (argc != 3) return both();
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(argv[2]));
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, resolve_one(where));
  if (std::string_view(argv[1]) == "client") return ask(address);
  RKV_ASSIGN_OR_RETURN(DatagramListener listener, DatagramListener::listen(address));
  return serve(listener);
}

}  // namespace

int main(int argc, char** argv) {
  return example::report(run(argc, argv));
}
