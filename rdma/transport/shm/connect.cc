#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma/transport/shm/directory.h"
#include "rdma/transport/shm/incoming.h"

namespace rkv::rdma {
namespace shm {
namespace {

constexpr const char* kTimedOut = "the server did not answer in time";

std::unexpected<Error> call_error(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:  // the server that created the socket was killed
      return fail_call(Code::kUnreachable, "connect", error,
                       "no server on this host listens on that port over shared memory");
    case EACCES:
    case EPERM:
      return fail_call(Code::kPermission, "connect", error,
                       "the server's shared-memory socket is for another user: a server accepts "
                       "its own user, root, and the group of --shm-group");
    case EAGAIN:
      return fail_call(Code::kTimeout, "connect", error, kTimedOut);
    default:
      return fail_call(Code::kUnreachable, "connect", error);
  }
}

// Blocks while the server's queue of callers is full, until the deadline at most.
Result<Fd> call(const ClientDirectory& directory, std::uint16_t port, const Deadline& deadline) {
  const std::string path = socket_path(directory.path, port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(Code::kInvalidArgument,
                "the path of the directory of the shared-memory sockets is too long");
  }
  RKV_RETURN_IF_ERROR(trusted_directory(directory));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return fail_call(Code::kBusy, "socket", errno);
  const long left_ms = std::max(1, deadline.left_ms());  // 0 would mean no limit
  const timeval limit{.tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int result = 0;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR && !deadline.passed());
  if (result != 0) return call_error(errno);
  RKV_RETURN_IF_ERROR(trusted_server(socket.get(), directory));
  return socket;
}

Result<Fd> call_any(const std::string& chosen, std::uint16_t port, const Deadline& deadline) {
  Result<Fd> best = fail(Code::kUnreachable, "no directory of shared-memory sockets was found");
  bool first = true;
  for (const ClientDirectory& directory : client_directories(chosen)) {
    Result<Fd> made = call(directory, port, deadline);
    if (made) return made;
    // The error of a later directory counts only if it says more than "nobody listens here".
    if (first || made.error().code != Code::kUnreachable) best = std::move(made);
    first = false;
  }
  return best;
}

struct Answer {
  std::vector<std::byte> packet;
  std::vector<Fd> descriptors;
};

Result<Answer> wait_for_answer(int socket, const Deadline& deadline) {
  Answer answer;
  answer.packet.resize(kMaxPacketBytes);
  for (;;) {
    const Packet packet = receive_packet(socket, answer.packet, &answer.descriptors);
    if (packet.result == Packet::Result::kEnd) {
      return fail(
          Code::kUnreachable,
          "the server closed the connection: it is shutting down, or accepts no more clients");
    }
    if (packet.lost_descriptors) return fail_call(Code::kBusy, "recvmsg", EMFILE, kRaiseLimit);
    if (packet.result == Packet::Result::kPacket) {
      answer.packet.resize(std::min(packet.length, answer.packet.size()));
      return answer;
    }
    if (deadline.passed()) return fail(Code::kTimeout, kTimedOut);
    pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, deadline.left_ms());
  }
}

// Waits for the announced regions: without them the first READ would come before its memory.
Status wait_for_regions(RegionTable& regions, std::size_t count, int socket,
                        const Deadline& deadline) {
  while (regions.heard() < count) {
    RKV_ASSIGN_OR_RETURN(Answer news, wait_for_answer(socket, deadline));
    if (!regions.take_in(news.packet, news.descriptors)) {
      return fail(Code::kCorrupt, "the server's list of regions is invalid");
    }
  }
  return {};
}

std::unexpected<Error> refusal(Bytes packet, Rejection* rejection) {
  Header header;
  if (has_header(packet, &header) && header.version != kVersion) {
    return fail(
        Code::kVersionMismatch,
        "the server uses another version of shared memory: update the older of the two programs");
  }
  Reject reject;
  if (!decode(packet, PacketKind::kReject, &reject) || reject.length > kRejectDataBytes) {
    return fail(Code::kCorrupt, "the server's answer is invalid");
  }
  if (rejection != nullptr) {
    rejection->length = reject.length;
    std::copy_n(reject.reason.begin(), reject.length, rejection->reason);
  }
  return fail(Code::kRejected, "the server refused the connection");
}

Result<Link> make_link(Answer answer, const Accept& accept) {
  // A mistake of the server must not crash the client.
  if (answer.descriptors.size() != 3 || !is_sound(accept)) {
    return fail(Code::kCorrupt, "the server's answer is invalid");
  }
  const std::size_t bytes = link_bytes(accept.to_server_bytes, accept.to_client_bytes);
  Link link{.to_server_bytes = accept.to_server_bytes,
            .to_client_bytes = accept.to_client_bytes,
            .peer_receive_bytes = accept.receive_bytes,
            .peer_data = std::vector<std::byte>(accept.data.begin(), accept.data.end())};
  RKV_ASSIGN_OR_RETURN(link.memory, map_received(answer.descriptors[0].get(), bytes, true));
  RKV_ASSIGN_OR_RETURN(link.peer_page,
                       map_received(answer.descriptors[1].get(), kPageBytes, false));
  RKV_ASSIGN_OR_RETURN(Mapping host, map_received(answer.descriptors[2].get(), kPageBytes, false));
  link.host = HostView(std::move(host));
  return link;
}

}  // namespace

Result<std::unique_ptr<Connection>> connect(ShmQueue& queue, const ConnectionOptions& options,
                                            const std::string& address, Bytes private_data,
                                            const Deadline& deadline, Rejection* rejection) {
  if (private_data.size() > kRequestDataBytes) {
    return fail(Code::kInvalidArgument,
                "the private data of a connection request is at most 56 bytes");
  }
  if (options.grant == Access::kRemoteReadAtomic) {
    return fail(Code::kUnsupported,
                "over shared memory, only the connecting side can use atomic operations");
  }
  RKV_ASSIGN_OR_RETURN(const std::uint16_t port,
                       local_port(address, deadline, "shm reaches only servers on this host"));
  RKV_ASSIGN_OR_RETURN(auto reservation, ShmConnection::Reservation::make(queue, options));
  RKV_ASSIGN_OR_RETURN(Fd socket, call_any(queue.shared().directory, port, deadline));
  Hello hello{.receive_bytes = queue.receive_bytes()};
  std::ranges::copy(private_data, hello.data.begin());
  if (const int error = send_packet(socket.get(), packet_of(hello)); error != 0) {
    return fail_call(Code::kUnreachable, "sendmsg", error, "the server closed the connection");
  }
  RKV_ASSIGN_OR_RETURN(Answer answer, wait_for_answer(socket.get(), deadline));
  Accept accept;
  if (!decode(answer.packet, PacketKind::kAccept, &accept)) {
    if (rejection != nullptr) rejection->called = called_text(port);
    return refusal(answer.packet, rejection);
  }
  RKV_ASSIGN_OR_RETURN(Link link, make_link(std::move(answer), accept));
  RKV_RETURN_IF_ERROR(wait_for_regions(link.regions, accept.regions, socket.get(), deadline));
  if (options.grant != Access::kLocal) {
    RKV_RETURN_IF_ERROR(queue.shared().exporter.share(socket.get(), options.grant));
  }
  link.socket = PeerSocket(std::move(socket));
  link.peer = address;
  auto connection =
      std::make_unique<ShmConnection>(std::move(reservation), options, std::move(link));
  connection->attach();
  return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace shm

bool listens_over_shm(const ShmOptions& options, const std::string& address,
                      const Deadline& deadline) {
  const auto port = shm::local_port(address, deadline, "another host");
  if (!port) return false;
  return shm::call_any(options.directory, *port, deadline).has_value();
}

}  // namespace rkv::rdma
