// A stream of TCP over loopback, as most programs use it: blocking sockets, Nagle's algorithm off,
// the system's buffer sizes.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "bench/verbs/streams.h"

namespace rkv::bench {
namespace {

int good(const char* what, int returned) {
  if (returned < 0) throw std::system_error(errno, std::generic_category(), what);
  return returned;
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

int tcp_socket() {
  return good("socket", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

}  // namespace

json tcp(const Flow& flow) {
  const Socket listener(tcp_socket());
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  good("bind", bind(listener.fd(), raw, length));
  good("listen", listen(listener.fd(), 1));
  good("getsockname", getsockname(listener.fd(), raw, &length));
  const Socket writer(tcp_socket());
  const int on = 1;
  good("TCP_NODELAY", setsockopt(writer.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  good("connect", connect(writer.fd(), raw, length));  // succeeds through the listener's backlog
  const Socket reader(good("accept", accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)));

  const std::vector<char> from(flow.bytes, 'w');
  std::vector<char> to(flow.bytes);
  json out = move(
      [&] {
        Moved moved;
        while (moved.bytes != flow.total) {
          const std::uint64_t wanted = std::min(flow.bytes, flow.total - moved.bytes);
          const ssize_t sent = send(writer.fd(), from.data(), wanted, MSG_NOSIGNAL);
          if (sent < 0) throw std::system_error(errno, std::generic_category(), "send");
          moved.bytes += static_cast<std::uint64_t>(sent);
          ++moved.calls;
        }
        good("shutdown", shutdown(writer.fd(), SHUT_WR));
        return moved;
      },
      [&] {
        Moved moved;
        for (;;) {
          const ssize_t got = recv(reader.fd(), to.data(), to.size(), 0);
          if (got < 0) throw std::system_error(errno, std::generic_category(), "recv");
          if (got == 0) return moved;
          moved.bytes += static_cast<std::uint64_t>(got);
          ++moved.calls;
        }
      });
  out.erase("sleeps");  // sleeps are in the kernel and not counted
  return out;
}

}  // namespace rkv::bench
