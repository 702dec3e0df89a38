// Two programs, or two threads, that connect by address. The server sends the address and key of
// its memory as private data; the client READs that memory.
//
//   connection_manager                         both, over this machine's own device
//   connection_manager server HOST:PORT        one of them
//   connection_manager client HOST:PORT
#include <rkv/rdma/connect.h>

#include <algorithm>
#include <thread>

#include "pair.h"

namespace {

using namespace example;

constexpr std::string_view kOffered = "read me without asking";
constexpr std::uint8_t kDepth = 16;  // READs outstanding at a time

// The parts of a connection on either side, on the device that the address resolved to.
struct Parts {
  ProtectionDomain pd;
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;

  static Result<Parts> make(const Device& device) {
    RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
    RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
    RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                         CompletionQueue::create(device, {.channel = &channel}));
    RKV_ASSIGN_OR_RETURN(
        MemoryRegion memory,
        MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite | AccessFlags::kRemoteRead));
    return Parts{std::move(pd), std::move(channel), std::move(queue), std::move(memory)};
  }
};

// Accepts one client, and returns when the client has disconnected. The memory belongs to this
// function.
Status serve(CmListener& listener) {
  RKV_ASSIGN_OR_RETURN(ConnectRequest request, listener.wait(soon()));
  RKV_ASSIGN_OR_RETURN(Parts parts, Parts::make(request.device()));
  std::ranges::copy(rkv::as_bytes(kOffered), parts.memory.bytes().begin());
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair qp,
                       QueuePair::create(parts.pd, parts.queue, parts.queue, {}));
  // Private data arrives padded with zeros: the client uses the first 20 bytes.
  const auto offer = parts.memory.remote().subspan(0, kOffered.size())->to_bytes();
  RKV_ASSIGN_OR_RETURN(
      CmConnection link,
      std::move(request).accept(
          std::move(qp), {.remote_access = AccessFlags::kRemoteRead, .reads_as_responder = kDepth},
          offer));
  RKV_RETURN_IF_ERROR(link.wait_established(soon()));
  std::printf("server: a client is there\n");
  while (link.check()) {  // a program with an event loop watches channel.fd() instead
    RKV_RETURN_IF_ERROR(wait_readable(link.channel.fd(), soon()));
  }
  std::printf("server: the client has left\n");
  return {};
}

Status ask(const SocketAddress& server) {
  RKV_ASSIGN_OR_RETURN(Connector connector, Connector::resolve(server, {}, soon()));
  RKV_ASSIGN_OR_RETURN(Parts parts, Parts::make(connector.device()));
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair qp,
                       QueuePair::create(parts.pd, parts.queue, parts.queue, {}));
  PrivateData refusal;
  RKV_ASSIGN_OR_RETURN(CmConnection link,
                       std::move(connector).connect(std::move(qp), {.reads_as_initiator = kDepth},
                                                    rkv::as_bytes("hello"), soon(), &refusal));
  const RemoteSpan offered =
      RemoteSpan::from_bytes(link.peer_data.bytes().first<RemoteSpan::kWireBytes>());
  // The peer's data is not trusted: the READ is limited to the length of the buffer.
  const std::size_t length = std::min<std::uint64_t>(offered.length, parts.memory.size());
  const auto wanted = offered.subspan(0, length);
  if (!wanted) return rkv::fail(rkv::Code::kCorrupt, "the server offers an invalid span");
  Batch batch = link.qp.batch();
  batch.read(1, OpFlags::kSignaled, parts.memory.local(0, length), *wanted);
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_RETURN_IF_ERROR(parts.queue.wait_one(soon()));
  std::printf("client: read \"%.*s\", %u READs may be outstanding\n", static_cast<int>(length),
              reinterpret_cast<const char*>(parts.memory.bytes().data()), link.depths.initiator);
  return link.disconnect();
}

Result<SocketAddress> parse(const char* text) {
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(text));
  return resolve_one(where);
}

Status both() {
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, address_of_first_active());
  RKV_ASSIGN_OR_RETURN(CmListener listener, CmListener::listen(address));
  Status asked;
  std::thread client([&] { asked = ask(listener.address()); });
  const Status served = serve(listener);
  client.join();
  return asked ? served : asked;
}

Status run(int argc, char** argv) {
  if (argc != 3) return both();
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, parse(argv[2]));
  if (std::string_view(argv[1]) == "client") return ask(address);
  RKV_ASSIGN_OR_RETURN(CmListener listener, CmListener::listen(address));
  return serve(listener);
}

}  // namespace

int main(int argc, char** argv) {
  return example::report(run(argc, argv));
}
