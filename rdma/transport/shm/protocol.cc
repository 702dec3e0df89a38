#include "rdma/transport/shm/protocol.h"

#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "rdma/transport/shm/ring.h"

namespace rkv::rdma::shm {
namespace {

constexpr std::size_t kMaxDescriptors = 253;  // SCM_MAX_FD of Linux

struct alignas(cmsghdr) ControlBuffer {
  std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes;
};

}  // namespace

int send_packet(int socket, Bytes packet, std::span<const int> descriptors) {
  iovec piece{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

namespace {

// REQUIRES: `message` has no iovec; it may have a control buffer.
//
// An end is believed only if the next call reports it too. Linux looks for a packet first, and at
// the peer's state afterwards. If a peer sends its last packet and closes between the two, one call
// returns the end while that packet lies in the queue (unix_dgram_recvmsg; 107 of 2.3 million such
// packets on two processors). Once a peer has closed, all its packets are in the queue.
Packet receive(int socket, MutableBytes buffer, msghdr& message, int flags) {
  iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const std::size_t control_bytes = message.msg_controllen;
  bool ended = false;
  for (;;) {
    message.msg_controllen = control_bytes;
    const ssize_t got =
        recvmsg(socket, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC | flags);
    if (got > 0)
      return {.result = Packet::Result::kPacket, .length = static_cast<std::size_t>(got)};
    if (got < 0) {
      if (errno == EINTR) continue;
      message.msg_controllen = 0;  // nothing was received
      const bool nothing = errno == EAGAIN || errno == EWOULDBLOCK;
      return {.result = nothing ? Packet::Result::kNothing : Packet::Result::kEnd};
    }
    // A packet without bytes, which only an attacker sends, looks like an end and may have
    // descriptors.
    if (ended || message.msg_controllen != 0) return {.result = Packet::Result::kEnd};
    ended = true;
  }
}

}  // namespace

Packet receive_packet(int socket, MutableBytes buffer, std::vector<Fd>* descriptors) {
  msghdr message{};
  ControlBuffer control;
  if (descriptors != nullptr) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
  }
  Packet packet = receive(socket, buffer, message, 0);
  packet.lost_descriptors = descriptors != nullptr && (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); descriptors != nullptr && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      descriptors->emplace_back(fd);
    }
  }
  return packet;
}

Peeked peek_packet(int socket, MutableBytes buffer) {
  msghdr message{};
  const Packet packet = receive(socket, buffer, message, MSG_PEEK);
  return {.packet = packet, .has_descriptors = (message.msg_flags & MSG_CTRUNC) != 0};
}

void drop_packet(int socket) {
  [[maybe_unused]] const Packet dropped = receive_packet(socket, {});
}

bool has_header(Bytes packet, Header* header) {
  if (packet.size() < sizeof *header) return false;
  std::memcpy(header, packet.data(), sizeof *header);
  return header->magic == kMagic;
}

std::optional<Regions> decode_regions(Bytes packet) {
  Regions said;
  if (packet.size() < offsetof(Regions, entries) || packet.size() > sizeof said)
    return std::nullopt;
  std::memcpy(&said, packet.data(), packet.size());
  if (said.header.magic != kMagic || said.header.version != kVersion ||
      said.header.kind != PacketKind::kRegions || said.count > kRegionsPerPacket ||
      said.bytes() != packet.size()) {
    return std::nullopt;
  }
  return said;
}

bool is_sound(const Hello& hello) {
  return hello.receive_bytes > 0 && hello.receive_bytes <= kMaxReceiveBytes;
}

bool is_sound(const Accept& accept) {
  const auto is_ring = [](std::uint64_t bytes) {
    return std::has_single_bit(bytes) && bytes >= ring_bytes(0) &&
           bytes <= ring_bytes(kMaxReceiveBytes);
  };
  return is_ring(accept.to_server_bytes) && is_ring(accept.to_client_bytes) &&
         accept.receive_bytes <= kMaxReceiveBytes &&
         accept.to_server_bytes >= ring_bytes(accept.receive_bytes);
}

void send_wake(int socket) {
  const std::byte one{1};
  [[maybe_unused]] const ssize_t sent = send(socket, &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace rkv::rdma::shm
