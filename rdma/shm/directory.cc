#include "rdma/shm/directory.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "rkv/rdma/address.h"

namespace rkv::rdma::shm {
namespace {

constexpr const char* kSystemDirectory = "/run/rkv";

std::string own_directory() {
  return fmt::format("/tmp/rkv-{}", geteuid());
}

std::string chosen_directory(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const char* named = std::getenv("RKV_SHM_DIR");
  return named == nullptr ? std::string() : std::string(named);
}

}  // namespace

Result<std::string> server_directory(const std::string& chosen) {
  std::string path = chosen_directory(chosen);
  const bool system = path.empty() && geteuid() == 0;
  if (path.empty()) path = system ? kSystemDirectory : own_directory();
  if (mkdir(path.c_str(), system ? 0755 : 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    return fail_call(
        error == EACCES || error == EPERM || error == EROFS ? Code::kPermission : Code::kIo,
        "mkdir", error,
        "the directory of the shared-memory sockets cannot be made: choose another "
        "with RKV_SHM_DIR");
  }
  // lstat: a link could lead anywhere by the time the socket is made.
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return fail_call(Code::kPermission, "lstat", errno);
  if (!S_ISDIR(status.st_mode) || (status.st_uid != geteuid() && status.st_uid != 0) ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Code::kPermission,
                "the directory of the shared-memory sockets must be a directory that belongs to "
                "this user or root and that nobody else can write: correct it, or choose another "
                "with RKV_SHM_DIR");
  }
  return path;
}

std::vector<std::string> client_directories(const std::string& chosen) {
  if (const std::string path = chosen_directory(chosen); !path.empty()) return {path};
  return {kSystemDirectory, own_directory()};
}

std::string socket_path(const std::string& directory, std::uint16_t port) {
  return fmt::format("{}/shm-{}.sock", directory, port);
}

std::string lock_path(const std::string& directory, std::uint16_t port) {
  return fmt::format("{}/shm-{}.lock", directory, port);
}

Result<std::uint16_t> local_port(const std::string& address, const Deadline& deadline,
                                 const char* elsewhere) {
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
  if (where.host.empty() || where.host == "localhost") return where.port;
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, deadline));
  if (std::ranges::none_of(all, is_this_host)) {
    return fail(Code::kUnreachable, elsewhere);
  }
  return where.port;
}

Result<PeerProcess> trusted_peer(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return fail_call(Code::kPermission, "getsockopt(SO_PEERCRED)", errno);
  }
  if (peer.uid != 0 && peer.uid != geteuid()) {
    return fail(Code::kPermission,
                "over shared memory a client and a server trust each other only when they run as "
                "the same user, or the other one is root");
  }
  return PeerProcess{.pid = peer.pid};
}

}  // namespace rkv::rdma::shm
