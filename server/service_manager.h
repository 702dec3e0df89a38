// Tells systemd how the server is, where it was started with Type=notify: by datagrams to the
// socket that NOTIFY_SOCKET names (sd_notify(3)). Elsewhere every call does nothing.
//
//   ServiceManager manager([](const char* name) { return std::getenv(name); }, clock);
//   manager.ready();
//   while (...) manager.tick();   // more often than half of WatchdogSec=
//   manager.stopping();
//
// The manager's queue of datagrams is short and shared by all services: what finds no room is tried
// again by tick(), so that neither "ready" nor a sign of life gets lost.
//
// Thread safety: one owner. No call blocks but stopping(), behind which there is no tick: for
// kStoppingMs at most.
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
  // Says in the log when there is a manager that cannot be told.
  ServiceManager(const Environment& environment, const Clock& clock);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  void ready();
  void stopping();
  // "Alive", whenever half of the watchdog's time has passed; nothing where it set none. And
  // "ready", if that could not be told yet.
  void tick();

 private:
  bool set_address(std::string_view name);
  void set_watchdog(const Environment& environment);
  bool send(std::string_view text, int flags);

  const Clock& clock_;
  int socket_ = -1;  // -1: nobody to tell
  sockaddr_un address_{};
  socklen_t address_length_ = 0;
  Nanos period_ = 0;  // of "alive"; 0: not asked for
  Nanos next_ = 0;
  bool ready_to_tell_ = false;
  bool failing_ = false;  // the last datagram was not taken, and the log has said so
};

}  // namespace rkv::server
