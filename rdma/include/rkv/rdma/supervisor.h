// Dispatches a device's asynchronous events to their watchers: a port goes down, a queue pair or
// queue fails, a shared receive queue reaches its limit, a device is lost.
//
//   Supervisor supervisor(device);
//   auto ports = supervisor.watch_ports([&](const AsyncEvent& e) { if (is_loss(e.type)) ... });
//   auto mine = supervisor.watch(qp.raw(), [&](const AsyncEvent& e) { fail_pending(e); });
//   ... when supervisor.fd() is readable, or periodically:
//   RKV_RETURN_IF_ERROR(supervisor.run());
//
// The caller's loop drives a supervisor, which has no thread. Every watcher is notified of a lost
// device (IBV_EVENT_DEVICE_FATAL), so that pending work fails at once instead of at its deadline.
//
// A handler may add watches and end any, including its own. Watches may outlive the supervisor.
// Thread safety: one thread. A context has one supervisor, and no other reader of its events.
// Source: ibv_get_async_event(3).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The kind of object an event is about.
enum class AsyncScope : unsigned char {
  kQueuePair,
  kCompletionQueue,
  kSharedReceiveQueue,
  kWorkQueue,
  kPort,
  kDevice,
  kUnknown,
};
RKV_EXPORT AsyncScope scope_of(ibv_event_type type);
// Whether the object no longer works after the event: QP_FATAL, PORT_ERR, DEVICE_FATAL ...
RKV_EXPORT bool is_loss(ibv_event_type type);

namespace detail {
struct Watchers;
}

// A registered handler. The destructor ends the watch: the handler is not called afterwards.
class RKV_EXPORT Watch {
 public:
  Watch() = default;
  Watch(Watch&& other) noexcept;
  Watch& operator=(Watch&& other) noexcept;
  ~Watch() { end(); }
  void end();

 private:
  friend class Supervisor;
  Watch(std::weak_ptr<detail::Watchers> watchers, std::size_t id)
      : watchers_(std::move(watchers)), id_(id) {}
  std::weak_ptr<detail::Watchers> watchers_;
  std::size_t id_ = 0;
};

class RKV_EXPORT Supervisor {
 public:
  using Handler = std::function<void(const AsyncEvent&)>;

  explicit Supervisor(const Device& device);

  // Watches one object: raw() of a queue pair, completion queue or shared receive queue. End the
  // watch before destroying the object: its address may be reused.
  [[nodiscard]] Watch watch(const void* object, Handler handler);
  [[nodiscard]] Watch watch_ports(Handler handler);
  // Watches the device itself, and every event that has no other watcher.
  [[nodiscard]] Watch watch_device(Handler handler);

  int fd() const { return device_.async_fd(); }
  // Takes all pending events and calls the handlers; returns the number of events. Does not block.
  Result<std::size_t> run();
  // Calls the handlers of one event from any source; returns the number called.
  std::size_t dispatch(const AsyncEvent& event);

 private:
  Device device_;
  std::shared_ptr<detail::Watchers> watchers_;
};

}  // namespace rkv::rdma
