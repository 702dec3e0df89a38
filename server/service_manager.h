// Tells systemd how the server is, where it was started with Type=notify: by datagrams to the
// socket that NOTIFY_SOCKET names (sd_notify(3)). Elsewhere every call does nothing.
//
//   ServiceManager manager([](const char* name) { return std::getenv(name); }, clock);
//   manager.ready();
//   while (...) manager.tick();   // more often than half of WatchdogSec=
//   manager.stopping();
//
// Thread safety: one owner. No call blocks: a datagram that the manager has no room for is dropped;
// of these only ready() matters, and the first of all finds room.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <string_view>

#include "common/clock.h"

namespace rkv::server {

class ServiceManager {
 public:
  using Environment = std::function<const char*(const char* name)>;
  // Says in the log when there is a manager that cannot be told.
  ServiceManager(const Environment& environment, const Clock& clock);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  void ready();
  void stopping();
  // "Alive", whenever half of the watchdog's time has passed; nothing where it set none.
  void tick();

 private:
  bool set_address(std::string_view name);
  void set_watchdog(const Environment& environment);
  void send(std::string_view text);

  const Clock& clock_;
  int socket_ = -1;  // -1: nobody to tell
  sockaddr_un address_{};
  socklen_t address_length_ = 0;
  Nanos period_ = 0;  // of "alive"; 0: not asked for
  Nanos next_ = 0;
};

}  // namespace rkv::server
