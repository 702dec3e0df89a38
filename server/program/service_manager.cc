#include "server/program/service_manager.h"

#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/log.h"
#include "common/parse.h"

namespace rkv::server {

ServiceManager::ServiceManager(const Environment& environment, const Clock& clock) : clock_(clock) {
  const char* name = environment("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') return;
  if (!set_address(name)) {
    log_warn(EventName("systemd_not_told"),
             "NOTIFY_SOCKET={} is neither a path nor an abstract name: systemd gets no reports",
             name);
    return;
  }
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) {
    log_warn(EventName("systemd_not_told"), "socket: {}: systemd gets no reports",
             std::strerror(errno));
    return;
  }
  const timeval longest{.tv_sec = kStoppingMs / 1000,
                        .tv_usec = suseconds_t{kStoppingMs % 1000} * 1000};
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  set_watchdog(environment);
}

ServiceManager::~ServiceManager() {
  if (socket_ >= 0) close(socket_);
}

// Accepts a path, or '@' and an abstract name. An abstract name has a zero in place of the '@' and
// is not zero-terminated.
bool ServiceManager::set_address(std::string_view name) {
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof address_.sun_path) return false;
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path, name.data(), name.size());
  if (name[0] == '@') address_.sun_path[0] = '\0';
  address_length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (name[0] == '/') ++address_length_;
  return true;
}

// WATCHDOG_PID, if set, names the process that the watchdog is meant for.
void ServiceManager::set_watchdog(const Environment& environment) {
  const char* usec = environment("WATCHDOG_USEC");
  const char* pid = environment("WATCHDOG_PID");
  if (usec == nullptr) return;
  if (pid != nullptr && parse_number<int>(pid) != getpid()) return;
  constexpr std::int64_t kLongest = std::int64_t{366} * 24 * 3600 * 1'000'000;
  const auto time = parse_number<std::int64_t>(usec, 1, kLongest);
  if (!time) {
    log_warn(EventName("no_watchdog"),
             "WATCHDOG_USEC={} is not a number of microseconds: the watchdog is off", usec);
    return;
  }
  period_ = *time * 1000 / 2;
}

void ServiceManager::ready() {
  next_ = clock_.now() + period_;
  ready_to_tell_ = !send("READY=1", MSG_DONTWAIT);
}

// Also restarts the watchdog's interval: saving everything may take that long.
void ServiceManager::stopping() {
  ready_to_tell_ = false;
  send(period_ == 0 ? "STOPPING=1" : "STOPPING=1\nWATCHDOG=1", 0);
}

void ServiceManager::tick() {
  if (ready_to_tell_) ready_to_tell_ = !send("READY=1", MSG_DONTWAIT);
  if (period_ == 0 || clock_.now() < next_) return;
  if (send("WATCHDOG=1", MSG_DONTWAIT)) next_ = clock_.now() + period_;
}

// Returns true if the datagram was sent, or there is no manager.
bool ServiceManager::send(std::string_view text, int flags) {
  if (socket_ < 0) return true;
  const auto* address = reinterpret_cast<const sockaddr*>(&address_);
  ssize_t sent = 0;
  do {
    sent =
        sendto(socket_, text.data(), text.size(), MSG_NOSIGNAL | flags, address, address_length_);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && !failing_) {
    log_warn(EventName("systemd_not_told"), "cannot send systemd the report {}: {}", text,
             std::strerror(errno));
  }
  failing_ = sent < 0;
  return sent >= 0;
}

}  // namespace rkv::server
