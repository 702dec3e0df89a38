// Reports the server's state to systemd if it was started with Type=notify, by datagrams to the
// socket in NOTIFY_SOCKET (sd_notify(3)). Otherwise each call does nothing.
//
//   ServiceManager manager([](const char* name) { return std::getenv(name); }, clock);
//   manager.ready();
//   while (...) manager.tick();   // more often than half of WatchdogSec=
//   manager.stopping();
//
// The manager's queue of datagrams is short and shared by all services. tick() therefore retries a
// datagram that found the queue full, so that neither "ready" nor a watchdog signal is lost.
//
// Thread safety: one owner. Only stopping() blocks, for at most kStoppingMs: no tick() follows it
// that could retry.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <string_view>

#include "common/clock.h"

namespace rkv::server {

class ServiceManager {
 public:
  static constexpr int kStoppingMs = 1000;
  using Environment = std::function<const char*(const char* name)>;
  // Logs a warning if there is a manager that cannot be reached.
  ServiceManager(const Environment& environment, const Clock& clock);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  void ready();
  void stopping();
  // Sends the watchdog signal whenever half of the watchdog's interval has passed, if an interval
  // is set. Retries "ready" if that could not be sent.
  void tick();

 private:
  bool set_address(std::string_view name);
  void set_watchdog(const Environment& environment);
  bool send(std::string_view text, int flags);

  const Clock& clock_;
  int socket_ = -1;  // -1: no manager
  sockaddr_un address_{};
  socklen_t address_length_ = 0;  // interval of the watchdog signal; 0: none
  Nanos period_ = 0;              // of "alive"; 0: not asked for
  Nanos next_ = 0;
  bool ready_to_tell_ = false;
  bool failing_ = false;  // the last datagram failed, and the failure has been logged
};

}  // namespace rkv::server
