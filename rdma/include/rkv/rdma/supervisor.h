// Asynchronous events of a device to those whom they concern: a port that goes down, a queue pair
// or a queue that broke, a shared receive queue that runs low, a device that is lost.
//
//   Supervisor supervisor(device);
//   auto ports = supervisor.watch_ports([&](const AsyncEvent& e) { if (is_loss(e.type)) ... });
//   auto mine = supervisor.watch(qp.raw(), [&](const AsyncEvent& e) { fail_pending(e); });
//   ... when supervisor.fd() is readable, or now and then:
//   RKV_RETURN_IF_ERROR(supervisor.run());
//
// Driven by the caller's loop: no thread of its own. A lost device (IBV_EVENT_DEVICE_FATAL) is told
// to every watcher, so that pending work fails at once instead of by its deadline.
//
// A handler may add watches and end any, its own too. Watches may outlive the supervisor.
// Thread safety: one thread. One supervisor, and no other reader of its events, on a context.
// Source: ibv_get_async_event(3).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

// What an event is about.
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
// Whether what it is about works no more: QP_FATAL, PORT_ERR, DEVICE_FATAL ...
RKV_EXPORT bool is_loss(ibv_event_type type);

namespace detail {
struct Watchers;
}

// Ends with its destruction: afterwards its handler is not called.
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

  // Of one object: raw() of a queue pair, completion queue or shared receive queue. End the watch
  // before the object: its address is given again.
  [[nodiscard]] Watch watch(const void* object, Handler handler);
  [[nodiscard]] Watch watch_ports(Handler handler);
  // The device itself, and everything that nobody else watches.
  [[nodiscard]] Watch watch_device(Handler handler);

  int fd() const { return device_.async_fd(); }
  // Takes all pending events and calls the handlers; how many events there were. Does not block.
  Result<std::size_t> run();
  // Calls the handlers of one event, wherever it is from; how many were called.
  std::size_t dispatch(const AsyncEvent& event);

 private:
  Device device_;
  std::shared_ptr<detail::Watchers> watchers_;
};

}  // namespace rkv::rdma
