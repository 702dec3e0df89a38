#include "rkv/rdma/supervisor.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace rkv::rdma {
namespace detail {

struct Watcher {
  std::size_t id;
  AsyncScope scope;    // kPort or kDevice; otherwise matched by object
  const void* object;  // nullptr for kPort and kDevice
  std::shared_ptr<Supervisor::Handler> handler;
};
struct Watchers {
  std::size_t last_id = 0;
  std::vector<Watcher> all;
};

}  // namespace detail

AsyncScope scope_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return AsyncScope::kQueuePair;
    case IBV_EVENT_CQ_ERR:
      return AsyncScope::kCompletionQueue;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return AsyncScope::kSharedReceiveQueue;
    case IBV_EVENT_WQ_FATAL:
      return AsyncScope::kWorkQueue;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return AsyncScope::kPort;
    case IBV_EVENT_DEVICE_FATAL:
      return AsyncScope::kDevice;
  }
  return AsyncScope::kUnknown;
}

bool is_loss(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_WQ_FATAL:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      return true;
    default:
      return false;
  }
}

Watch::Watch(Watch&& other) noexcept
    : watchers_(std::move(other.watchers_)), id_(std::exchange(other.id_, 0)) {}

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    end();
    watchers_ = std::move(other.watchers_);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}

void Watch::end() {
  const std::size_t id = std::exchange(id_, 0);
  if (id == 0) return;
  if (const auto watchers = watchers_.lock()) {
    std::erase_if(watchers->all, [&](const detail::Watcher& one) { return one.id == id; });
  }
  watchers_.reset();
}

Supervisor::Supervisor(const Device& device)
    : device_(device.share()), watchers_(std::make_shared<detail::Watchers>()) {}

namespace {

std::size_t enroll(detail::Watchers& watchers, AsyncScope scope, const void* object,
                   Supervisor::Handler handler) {
  watchers.all.push_back({.id = ++watchers.last_id,
                          .scope = scope,
                          .object = object,
                          .handler = std::make_shared<Supervisor::Handler>(std::move(handler))});
  return watchers.last_id;
}

}  // namespace

Watch Supervisor::watch(const void* object, Handler handler) {
  return {watchers_, enroll(*watchers_, AsyncScope::kUnknown, object, std::move(handler))};
}
Watch Supervisor::watch_ports(Handler handler) {
  return {watchers_, enroll(*watchers_, AsyncScope::kPort, nullptr, std::move(handler))};
}
Watch Supervisor::watch_device(Handler handler) {
  return {watchers_, enroll(*watchers_, AsyncScope::kDevice, nullptr, std::move(handler))};
}

std::size_t Supervisor::dispatch(const AsyncEvent& event) {
  const AsyncScope scope = scope_of(event.type);
  const auto concerned = [&](const detail::Watcher& one) {
    if (scope == AsyncScope::kDevice) return true;
    if (event.object != nullptr) return one.object == event.object;
    return scope == AsyncScope::kPort && one.scope == AsyncScope::kPort;
  };
  // Copied, because a handler may change the list and end watches that are still to be called.
  const auto watchers = watchers_;
  std::vector<detail::Watcher> called;
  std::ranges::copy_if(watchers->all, std::back_inserter(called), concerned);
  if (called.empty()) {
    std::ranges::copy_if(watchers->all, std::back_inserter(called),
                         [](const auto& one) { return one.scope == AsyncScope::kDevice; });
  }
  std::size_t count = 0;
  for (const detail::Watcher& one : called) {
    if (std::ranges::find(watchers->all, one.id, &detail::Watcher::id) == watchers->all.end()) {
      continue;
    }
    ++count;
    (*one.handler)(event);
  }
  return count;
}

Result<std::size_t> Supervisor::run() {
  for (std::size_t count = 0;; ++count) {
    RKV_ASSIGN_OR_RETURN(const auto event, device_.next_async_event());
    if (!event) return count;
    dispatch(*event);
  }
}

}  // namespace rkv::rdma
