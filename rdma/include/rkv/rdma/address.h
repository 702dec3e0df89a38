// Socket addresses as text (HOST:PORT and [v6]:PORT) and as sockaddr.
//
//   RKV_ASSIGN_OR_RETURN(HostPort where, parse_host_port("[2001:db8::1]:7471"));
//   RKV_ASSIGN_OR_RETURN(std::vector<SocketAddress> all, resolve(where, deadline));
//
// Thread safety: values and free functions; any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct RKV_EXPORT HostPort {
  std::string host;  // a name or a numeric address, without brackets; empty: every local address
  std::uint16_t port = 0;
  std::string to_string() const;  // brackets around IPv6
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Parses "example.org:7471", "192.0.2.1:0", "[::1]:7471" or ":7471". The port is required, decimal,
// at most 65535. An IPv6 address without brackets is refused because the end of the address cannot
// be distinguished from a port. kInvalidArgument: the error text names the fault. Does not block.
RKV_EXPORT Result<HostPort> parse_host_port(std::string_view text);

// An IPv4 or IPv6 socket address.
class RKV_EXPORT SocketAddress {
 public:
  SocketAddress() = default;
  // Copies `address`. For a family other than IPv4 and IPv6 the result is empty.
  static SocketAddress from(const sockaddr* address);

  bool empty() const { return storage_.ss_family == AF_UNSPEC; }
  bool is_wildcard() const;  // 0.0.0.0 or ::
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  std::string host() const;       // numeric, without brackets
  std::string to_string() const;  // "192.0.2.1:7471"

  // librdmacm takes non-const pointers but does not write through them.
  sockaddr* raw() const { return reinterpret_cast<sockaddr*>(&storage_); }
  socklen_t length() const;

 private:
  mutable sockaddr_storage storage_{};
};

// Returns every address of a name, in the order of getaddrinfo(3). For an empty host these are the
// wildcard addresses, for listening. A numeric address is only parsed. For a name the call blocks
// until the deadline at most: the system's resolver has no deadline, so it runs in a thread that
// may outlive the call. kUnreachable: no such name; kTimeout; kInvalidArgument: not an address;
// kPermission: that thread cannot be started.
RKV_EXPORT Result<std::vector<SocketAddress>> resolve(const HostPort& where,
                                                      const Deadline& deadline);

// Whether `address` belongs to this host: a wildcard, a loopback address, or the address of a local
// interface.
RKV_EXPORT bool is_this_host(const SocketAddress& address);

}  // namespace rkv::rdma
