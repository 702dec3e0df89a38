#include "rdma/transport/verbs/watch.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rdma/transport/verbs/queue.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/supervisor.h"

namespace rkv::rdma::verbs {

namespace {
constexpr Nanos kLookEvery = 1000 * kNanosPerMs;
}  // namespace

Result<std::unique_ptr<DeviceWatch>> VerbsWatch::create(std::shared_ptr<const Shared> shared) {
  std::unique_ptr<VerbsWatch> watch(new VerbsWatch(std::move(shared)));
  RKV_RETURN_IF_ERROR(watch->waker_.open());
  return std::unique_ptr<DeviceWatch>(std::move(watch));
}

DeviceEvent VerbsWatch::next(const Deadline& deadline) {
  for (;;) {
    if (!lost_) take_manager_events();
    if (!lost_) take_device_events();
    if (!lost_) look_at_list();
    if (!found_.empty()) {
      DeviceEvent event = std::move(found_.front());
      found_.pop_front();
      return event;
    }
    if (waker_.consume() || deadline.passed()) return {};
    const bool anchored = shared_->anchor != nullptr && !lost_;
    std::array<pollfd, 3> waiting = {
        pollfd{.fd = waker_.fd(), .events = POLLIN, .revents = 0},
        pollfd{.fd = lost_ ? -1 : shared_->device.async_fd(), .events = POLLIN, .revents = 0},
        pollfd{
            .fd = anchored ? shared_->anchor->events().fd() : -1, .events = POLLIN, .revents = 0}};
    const Deadline look(clock_, next_look_);
    const int ms = lost_ ? deadline.left_ms() : std::min(deadline.left_ms(), look.left_ms());
    (void)::poll(waiting.data(), waiting.size(), ms);
    if ((waiting[0].revents & POLLIN) != 0) waker_.drain();
    // poll(2) would report a failed descriptor at once, every time: the context is dead.
    if ((waiting[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0 && !lost_) {
      lost("its events can no longer be read");
    }
  }
}

void VerbsWatch::lost(std::string what) {
  if (std::exchange(lost_, true)) return;
  found_.clear();
  found_.push_back({.kind = DeviceEvent::Kind::kLost, .what = std::move(what)});
}

void VerbsWatch::take_manager_events() {
  if (shared_->anchor == nullptr) return;
  while (!lost_) {
    const auto event = shared_->anchor->events().next();
    if (!event) return lost("the events of the connection manager can no longer be read");
    if (!*event) return;
    if ((*event)->type() == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      shared_->anchor->note_removal();
      lost("the device was removed");
    } else if ((*event)->type() == RDMA_CM_EVENT_ADDR_CHANGE) {
      look_at_port();
    }
  }
}

void VerbsWatch::take_device_events() {
  while (!lost_) {
    const auto event = shared_->device.next_async_event();
    if (!event) return lost("its events can no longer be read");
    if (!*event) return;
    on_event(**event);
  }
}

void VerbsWatch::on_event(const AsyncEvent& event) {
  const char* const name = ibv_event_type_str(event.type);
  switch (scope_of(event.type)) {
    case AsyncScope::kDevice:
      return lost(fmt::format("the device has failed ({})", name));
    case AsyncScope::kPort:
      if (event.port == 0 || event.port == shared_->port) look_at_port();
      return;
    case AsyncScope::kQueuePair:
      if (!is_loss(event.type)) return;
      return shared_->queues->for_each([&](VerbsQueue& queue) { queue.pair_failed(event.object); });
    case AsyncScope::kCompletionQueue:
    case AsyncScope::kSharedReceiveQueue:
    case AsyncScope::kWorkQueue:
      // All connections of a worker share this queue.
      if (is_loss(event.type)) lost(fmt::format("a queue of the device has failed ({})", name));
      return;
    case AsyncScope::kUnknown:
      return;
  }
}

// Queue pairs refer to the GID by its index, so a GID that moved to another index counts as a loss.
void VerbsWatch::look_at_port() {
  const auto port = shared_->device.port(shared_->port);
  if (!port) {
    // A port event can be read before the removal that caused it.
    if (port.error().sys_errno == ENODEV) return lost("the device was removed");
    return lost(fmt::format("its port cannot be queried: {}", to_string(port.error())));
  }
  if (!port->active()) {
    found_.push_back({.kind = DeviceEvent::Kind::kDown,
                      .what = fmt::format("port {} is {}", port->number, to_string(port->state))});
    return;
  }
  const auto gid = shared_->device.gid(shared_->port, shared_->gid.index);
  if (gid && gid->gid == shared_->gid.gid) {
    found_.push_back(
        {.kind = DeviceEvent::Kind::kWell, .what = fmt::format("port {} is ACTIVE", port->number)});
    return;
  }
  const auto table = shared_->device.gid_table();
  const bool moved = table && std::ranges::any_of(*table, [&](const GidEntry& one) {
                       return one.port == shared_->port && one.type == shared_->gid.type &&
                              one.gid == shared_->gid.gid;
                     });
  if (moved) return lost("its address moved to another index of the port's GID table");
  found_.push_back({.kind = DeviceEvent::Kind::kDown,
                    .what = fmt::format("the address {} is no longer on port {}",
                                        shared_->gid.to_string(), port->number)});
}

void VerbsWatch::look_at_list() {
  if (shared_->anchor != nullptr) {
    next_look_ = clock_.now() + 3600 * kLookEvery;
    return;
  }
  const Nanos now = clock_.now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  if (!is_listed()) lost("the device is no longer listed on this machine");
}

bool VerbsWatch::is_listed() const {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr) return true;  // the list is unavailable: assume nothing
  const bool found = std::any_of(list, list + count, [&](ibv_device* one) {
    return shared_->device.name() == ibv_get_device_name(one);
  });
  ibv_free_device_list(list);
  return found;
}

}  // namespace rkv::rdma::verbs
