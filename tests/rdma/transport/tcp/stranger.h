// A peer without any of our code in the way: a TCP socket, and whatever bytes a test sends.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "rdma/transport/tcp/protocol.h"
#include "rdma/transport/tcp/socket.h"
#include "tests/contract/link.h"

namespace rkv::rdma::tcp::test {

inline constexpr Nanos kPatience = 30 * kNanosPerSecond;

inline Deadline soon() {
  static const SteadyClock clock;
  return Deadline(clock, clock.now() + kPatience);
}

inline SocketAddress loopback(std::uint16_t port) {
  return contract::need(resolve({.host = "127.0.0.1", .port = port}, soon())).front();
}

class Stranger {
 public:
  explicit Stranger(std::uint16_t port) {
    auto socket = call(loopback(port), soon());
    EXPECT_TRUE(socket) << to_string(socket.error());
    if (socket) socket_ = std::move(*socket);
  }

  int fd() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }
  // Sends the bytes that the kernel takes at once, and returns their number.
  std::size_t offer(Bytes bytes) const {
    const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  bool say(Bytes bytes) const { return send_all(socket_.get(), bytes, soon()).has_value(); }
  bool greet(std::uint32_t receive_bytes = 4096) const {
    return say(encode(Hello{.receive_bytes = receive_bytes}));
  }
  // The next bytes; fewer: the other end has ended the connection.
  std::vector<std::byte> hear(std::size_t length) const {
    std::vector<std::byte> bytes(length);
    std::size_t got = 0;
    while (got != length) {
      pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, soon().left_ms()) == 0) {
        ADD_FAILURE() << "nothing came";
        break;
      }
      const ssize_t part = ::recv(socket_.get(), bytes.data() + got, length - got, MSG_DONTWAIT);
      if (part < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (part <= 0) break;
      got += static_cast<std::size_t>(part);
    }
    bytes.resize(got);
    return bytes;
  }
  bool is_at_the_end() const { return hear(1).empty(); }

 private:
  Fd socket_;
};

// The bytes of a frame.
inline std::vector<std::byte> frame(Kind kind, std::uint32_t length, Bytes behind = {}) {
  std::vector<std::byte> bytes(kHeaderBytes);
  encode(Header{.kind = kind, .length = length}, bytes.data());
  bytes.insert(bytes.end(), behind.begin(), behind.end());
  return bytes;
}
inline std::vector<std::byte> read_frame(const Target& target, std::uint32_t length) {
  std::array<std::byte, kTargetBytes> behind{};
  encode(target, behind.data());
  return frame(Kind::kRead, length, behind);
}
inline std::vector<std::byte> atomic_frame(Kind kind, const AtomicRequest& request) {
  std::array<std::byte, kAtomicBytes> behind{};
  encode(request, behind.data());
  return frame(kind, 8, behind);
}

}  // namespace rkv::rdma::tcp::test
