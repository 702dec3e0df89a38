#include "rkv/rdma/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "common/mutex.h"
#include "common/thread.h"

namespace rkv::rdma {
namespace {

std::string join(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::unexpected<Error> resolver_error(int code, int sys_errno) {
  switch (code) {
    case EAI_NONAME:
      return fail_call(Code::kUnreachable, "getaddrinfo", 0, "no host has this name");
    case EAI_AGAIN:
      return fail_call(Code::kUnreachable, "getaddrinfo", EAGAIN,
                       "the name server does not answer: try again, or use a numeric address");
    case EAI_MEMORY:
      return fail_call(Code::kOutOfMemory, "getaddrinfo", ENOMEM);
    case EAI_SYSTEM:
      return fail_call(Code::kInternal, "getaddrinfo", sys_errno);
    default:
      return fail_call(Code::kInvalidArgument, "getaddrinfo", 0,
                       "the host has no IPv4 or IPv6 address");
  }
}

const sockaddr_in& as_v4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in&>(storage);
}
const sockaddr_in6& as_v6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6&>(storage);
}

// `flags` as for getaddrinfo(3). With AI_NUMERICHOST it does not block.
Result<std::vector<SocketAddress>> look_up(const HostPort& where, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV | (where.host.empty() ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string port = std::to_string(where.port);
  const int code =
      getaddrinfo(where.host.empty() ? nullptr : where.host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) return resolver_error(code, errno);
  std::vector<SocketAddress> out;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const SocketAddress address = SocketAddress::from(entry->ai_addr);
    if (!address.empty()) out.push_back(address);
  }
  freeaddrinfo(found);
  if (out.empty()) return resolver_error(EAI_ADDRFAMILY, 0);
  return out;
}

}  // namespace

std::string HostPort::to_string() const {
  return join(host, port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return fail(Code::kInvalidArgument, "the port is missing: an address is HOST:PORT");
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') != host.ends_with(']')) {
    return fail(Code::kInvalidArgument, "an address is HOST:PORT or [IPV6]:PORT");
  }
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
    in6_addr ignored{};
    const std::string plain(host.substr(0, host.find('%')));  // may have a zone such as %eth0
    if (inet_pton(AF_INET6, plain.c_str(), &ignored) != 1) {
      return fail(Code::kInvalidArgument, "the text between the brackets is not an IPv6 address");
    }
  } else if (host.find(':') != std::string_view::npos) {
    return fail(Code::kInvalidArgument, "an IPv6 address needs brackets: [IPV6]:PORT");
  }
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc{} || end != port.data() + port.size() || number > 65535) {
    return fail(Code::kInvalidArgument, "the port is not a number from 0 to 65535");
  }
  return HostPort{.host = std::string(host), .port = static_cast<std::uint16_t>(number)};
}

SocketAddress SocketAddress::from(const sockaddr* address) {
  SocketAddress out;
  if (address->sa_family == AF_INET) std::memcpy(&out.storage_, address, sizeof(sockaddr_in));
  if (address->sa_family == AF_INET6) std::memcpy(&out.storage_, address, sizeof(sockaddr_in6));
  return out;
}

bool SocketAddress::is_wildcard() const {
  if (storage_.ss_family == AF_INET) return as_v4(storage_).sin_addr.s_addr == INADDR_ANY;
  if (storage_.ss_family == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&as_v6(storage_).sin6_addr);
  return false;
}

std::uint16_t SocketAddress::port() const {
  if (storage_.ss_family == AF_INET) return ntohs(as_v4(storage_).sin_port);
  if (storage_.ss_family == AF_INET6) return ntohs(as_v6(storage_).sin6_port);
  return 0;
}

void SocketAddress::set_port(std::uint16_t port) {
  // Both families have the port at the same offset, right after the family.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage_.ss_family == AF_INET) {
    inet_ntop(AF_INET, &as_v4(storage_).sin_addr, text, sizeof text);
  } else if (storage_.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &as_v6(storage_).sin6_addr, text, sizeof text);
  }
  return text;
}

std::string SocketAddress::to_string() const {
  return join(host(), port());
}

socklen_t SocketAddress::length() const {
  return storage_.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

Result<std::vector<SocketAddress>> resolve(const HostPort& where, const Deadline& deadline) {
  if (auto numeric = look_up(where, AI_NUMERICHOST); numeric || where.host.empty()) return numeric;
  // Shared with a thread that may outlive the caller's wait.
  struct Lookup {
    Mutex mutex;
    ConditionVariable ended;
    std::optional<Result<std::vector<SocketAddress>>> found RKV_GUARDED_BY(mutex);
  };
  const auto lookup = std::make_shared<Lookup>();
  auto thread = start_without_signals([lookup, where] {
    auto found = look_up(where, 0);
    const MutexLock lock(lookup->mutex);
    lookup->found = std::move(found);
    lookup->ended.notify_one();
  });
  if (!thread) {
    return fail_call(Code::kPermission, "pthread_create", thread.error().sys_errno,
                     "the thread for name resolution cannot be started: raise ulimit -u, or use a "
                     "numeric address");
  }
  thread->detach();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline.left_ms());
  const MutexLock lock(lookup->mutex);
  while (!lookup->found && lookup->ended.wait_until(lookup->mutex, end)) {
  }
  if (!lookup->found) {
    return fail_call(Code::kTimeout, "getaddrinfo", 0,
                     "the name server does not answer in time: use a numeric address");
  }
  return std::move(*lookup->found);
}

bool is_this_host(const SocketAddress& address) {
  if (address.is_wildcard() || address.host().starts_with("127.")) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  bool found = false;
  for (const ifaddrs* each = interfaces; each != nullptr && !found; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const SocketAddress own = SocketAddress::from(each->ifa_addr);
    found = !own.empty() && own.host() == address.host();
  }
  freeifaddrs(interfaces);
  return found;
}

}  // namespace rkv::rdma
