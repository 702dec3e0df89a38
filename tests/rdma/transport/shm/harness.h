// Shared memory between two transports of one process, in a directory of their own; and a client
// that does the handshake properly and then has everything in its own hands.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "rdma/transport/shm/directory.h"
#include "rdma/transport/shm/protocol.h"
#include "rdma/transport/shm/ring.h"
#include "tests/contract/link.h"

namespace rkv::rdma::shm {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/rkv-shm-test-XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ShmHarness final : public contract::Harness {
 public:
  ShmHarness()
      : server_(*open_shm({.directory = directory_.path()})),
        client_(*open_shm({.directory = directory_.path()})) {}
  Transport& server() override { return *server_; }
  Transport& client() override { return *client_; }
  std::string listen_address() override { return "127.0.0.1:0"; }
  std::string connect_address(std::uint16_t port) override {
    return "127.0.0.1:" + std::to_string(port);
  }
  const std::string& directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
};

// Descriptors of this process, and the few of the count itself.
inline std::size_t count_descriptors() {
  std::size_t count = 0;
  DIR* all = opendir("/proc/self/fd");
  while (readdir(all) != nullptr)
    ++count;
  closedir(all);
  return count;
}

// A connected socket to a listener, and nothing said yet. Empty when nobody listens.
inline Fd call(const std::string& directory, std::uint16_t port) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path(directory, port);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(socket.get(), name, sizeof address) == 0 ? std::move(socket) : Fd();
}

// Blocks for the next packet of the server.
inline Packet await_packet(const Fd& socket, MutableBytes buffer, std::vector<Fd>* descriptors) {
  for (;;) {
    const Packet packet = receive_packet(socket.get(), buffer, descriptors);
    if (packet.result != Packet::Result::kNothing) return packet;
    pollfd waiting{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, contract::kPatienceMs) == 0) return packet;
  }
}

// A client after its handshake, without any of our code in the way.
struct RawClient {
  Fd socket;
  Accept accept{};
  std::vector<Fd> descriptors{};  // link, queue page, host page
  Mapping memory{};
  bool connected = false;

  // The server must be accepting on another thread, or afterwards call finish().
  RawClient(const std::string& directory, std::uint16_t port, std::uint64_t receive_bytes = 4096)
      : socket(call(directory, port)) {
    Hello hello{.receive_bytes = receive_bytes};
    EXPECT_EQ(send_packet(socket.get(), packet_of(hello)), 0);
  }
  void finish() {
    std::array<std::byte, kMaxPacketBytes> buffer;
    const Packet packet = await_packet(socket, buffer, &descriptors);
    ASSERT_EQ(packet.result, Packet::Result::kPacket);
    ASSERT_TRUE(decode(Bytes(buffer).first(packet.length), PacketKind::kAccept, &accept));
    ASSERT_EQ(descriptors.size(), 3U);
    auto mapped = map_received(descriptors[0].get(),
                               link_bytes(accept.to_server_bytes, accept.to_client_bytes), true);
    ASSERT_TRUE(mapped) << to_string(mapped.error());
    memory = std::move(*mapped);
    connected = true;
  }
  LinkHeader& header() const { return *memory.as<LinkHeader>(); }
  std::uint64_t* to_server() const { return memory.as<std::uint64_t>(kLinkHeaderBytes); }
};

// A TCP socket whose last close waits for `seconds`: it lingers, and what it has sent is not taken.
struct LingeringSocket {
  Fd trap;
  Fd reader;  // never reads

  explicit LingeringSocket(int seconds) {
    const Fd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* name = reinterpret_cast<sockaddr*>(&address);
    const int small = 4096;
    setsockopt(listening.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    EXPECT_EQ(bind(listening.get(), name, sizeof address), 0);
    EXPECT_EQ(listen(listening.get(), 1), 0);
    EXPECT_EQ(getsockname(listening.get(), name, &length), 0);
    trap = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(trap.get(), name, sizeof address), 0);
    reader = Fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> bytes(65536);
    while (send(trap.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger lingering{.l_onoff = 1, .l_linger = seconds};
    EXPECT_EQ(setsockopt(trap.get(), SOL_SOCKET, SO_LINGER, &lingering, sizeof lingering), 0);
  }
  // After this the descriptor lies in a socket only, or we close it, without waiting.
  void let_go() { trap.reset(); }
};

// Accepts the next caller on `end`'s queue.
inline std::unique_ptr<Connection> accept_on(Listener& listener, contract::End& end,
                                             Access grant = Access::kRemoteRead) {
  auto incoming = contract::need(listener.next(end.soon()));
  if (incoming == nullptr) return nullptr;
  return contract::need(incoming->accept(*end.queue, {.grant = grant}, {}, end.soon()));
}

}  // namespace rkv::rdma::shm
