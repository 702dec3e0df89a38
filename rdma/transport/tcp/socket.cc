#include "rdma/transport/tcp/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace rkv::rdma::tcp {

namespace {

constexpr const char* kTimedOut = "the server did not answer in time";

// An IPv4 address in IPv6 form is shown in its IPv4 form.
std::string name_of(const sockaddr_storage& storage) {
  const auto* const raw = reinterpret_cast<const sockaddr*>(&storage);
  const auto* const six = reinterpret_cast<const sockaddr_in6*>(&storage);
  if (storage.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
    return SocketAddress::from(raw).to_string();
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six->sin6_port;
  std::memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, sizeof four.sin_addr);
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&four)).to_string();
}

template <class Call>
std::string name_by(Call call, int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  return call(socket, reinterpret_cast<sockaddr*>(&storage), &length) == 0 ? name_of(storage) : "?";
}

Result<Fd> make_socket(const SocketAddress& address) {
  Fd socket(::socket(address.raw()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) {
    return fail_call(Code::kBusy, "socket", errno,
                     errno == EMFILE ? "raise the limit of open files (ulimit -n)" : nullptr);
  }
  return socket;
}

// Returns false if the deadline has passed.
bool wait_for(int socket, short events, const Deadline& deadline) {
  while (!deadline.passed()) {
    pollfd waiting{.fd = socket, .events = events, .revents = 0};
    if (::poll(&waiting, 1, deadline.left_ms()) > 0) return true;
  }
  return false;
}

std::unexpected<Error> call_error(int error) {
  const bool times_out = error == ETIMEDOUT || error == EAGAIN;
  return fail_call(times_out ? Code::kTimeout : Code::kUnreachable, "connect", error,
                   error == ECONNREFUSED
                       ? "no server listens there over TCP; one that has an RDMA device "
                         "does so with --transport tcp only"
                       : nullptr);
}

void set(int socket, int level, int name, int value) {
  (void)setsockopt(socket, level, name, &value, sizeof value);
}

}  // namespace

void set_options(int socket) {
  constexpr int kNoticedWithinMs = 3000;
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 2);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kNoticedWithinMs);
}

std::string name_of_peer(int socket) {
  return name_by(getpeername, socket);
}

std::string name_of_own_end(int socket) {
  return name_by(getsockname, socket);
}

Result<Fd> listen_on(const SocketAddress& address) {
  RKV_ASSIGN_OR_RETURN(Fd socket, make_socket(address));
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // connections of the last server may linger
  if (bind(socket.get(), address.raw(), address.length()) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {  // all clients may reconnect at once
    const int error = errno;
    if (error == EADDRINUSE) {
      return fail_call(Code::kConflict, "bind", error,
                       "another program on this host has this port: stop it, or choose another "
                       "port");
    }
    const bool is_denied = error == EACCES || error == EPERM;
    return fail_call(is_denied ? Code::kPermission : Code::kUnreachable, "bind", error,
                     error == EADDRNOTAVAIL
                         ? "this host does not have the address: `ip addr` lists those that it has"
                         : nullptr);
  }
  return socket;
}

Result<Fd> call(const SocketAddress& address, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(Fd socket, make_socket(address));
  if (::connect(socket.get(), address.raw(), address.length()) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return call_error(errno);
    if (!wait_for(socket.get(), POLLOUT, deadline)) return fail(Code::kTimeout, kTimedOut);
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return call_error(error);
  }
  // If nobody listens on a port of this host, the system may draw that very port for the caller
  // itself.
  if (name_of_own_end(socket.get()) == name_of_peer(socket.get())) return call_error(ECONNREFUSED);
  set_options(socket.get());
  return socket;
}

Status send_all(int socket, Bytes bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return fail_call(Code::kDisconnected, "send", errno);
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      return fail(Code::kTimeout, kTimedOut);
    }
  }
  return {};
}

Status receive_all(int socket, MutableBytes bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return fail(Code::kDisconnected, "the other end has closed the connection");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return fail_call(Code::kDisconnected, "recv", errno);
    } else if (!wait_for(socket, POLLIN, deadline)) {
      return fail(Code::kTimeout, kTimedOut);
    }
  }
  return {};
}

}  // namespace rkv::rdma::tcp
