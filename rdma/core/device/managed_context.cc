#include "rdma/core/device/managed_context.h"

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "common/mutex.h"
#include "rdma/core/device/reserved_key.h"

namespace rkv::rdma::detail {
namespace {

struct HeldContext {
  std::weak_ptr<ibv_context> context;
  std::weak_ptr<ibv_cq> key;  // reserve_key()
};

// The contexts that Devices hold now, so that another Device of a context costs no system call.
struct HeldContexts {
  Mutex mutex;
  std::map<ibv_context*, HeldContext> all RKV_GUARDED_BY(mutex);
};

// Never destroyed: handles may outlive main().
HeldContexts& held_contexts() {
  static auto& held = *new HeldContexts;
  return held;
}

std::size_t length_of(ibv_context** list) {
  std::size_t length = 0;
  while (list[length] != nullptr)
    ++length;
  return length;
}

std::shared_ptr<ibv_context> hold(HeldContexts& held, ibv_context** list, std::size_t index)
    RKV_REQUIRES(held.mutex) {
  const std::size_t length = length_of(list);
  std::swap(list[0], list[index]);
  // Releases the other contexts now: an unused device must not stay open after it is unplugged.
  // librdmacm counts by a list's entries and frees the list with free(3), so it accepts a part of a
  // list as a list. If no memory is available for the second list, the first is held whole.
  auto** others = static_cast<ibv_context**>(std::malloc(length * sizeof *list));
  if (others != nullptr) {
    std::copy(list + 1, list + length + 1, others);
    list[1] = nullptr;
    rdma_free_devices(others);
  }
  // The deleter takes no lock of this file, since the map holds only weak references.
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): rdma_free_devices() has freed `others`
  std::erase_if(held.all, [](const auto& entry) { return entry.second.context.expired(); });
  std::shared_ptr<ibv_cq> key = held.all[list[0]].key.lock();
  if (key == nullptr) key = reserve_key(list[0]);
  std::shared_ptr<ibv_context> out(list[0], [list, key](ibv_context* /*context*/) mutable {
    key.reset();
    rdma_free_devices(list);
  });
  held.all[out.get()] = {.context = out, .key = key};
  return out;
}

}  // namespace

std::shared_ptr<ibv_context> hold_listed(ibv_context** list, std::size_t index) {
  HeldContexts& held = held_contexts();
  const MutexLock lock(held.mutex);
  return hold(held, list, index);
}

std::shared_ptr<ibv_context> hold_context_of(ibv_context* context, std::shared_ptr<void> id) {
  HeldContexts& held = held_contexts();
  const MutexLock lock(held.mutex);
  const auto found = held.all.find(context);
  if (found != held.all.end()) {
    if (auto known = found->second.context.lock()) return known;
  }
  ibv_context** const list = rdma_get_devices(nullptr);
  if (list != nullptr) {
    ibv_context** const end = list + length_of(list);
    ibv_context** const place = std::find(list, end, context);
    if (place != end) return hold(held, list, static_cast<std::size_t>(place - list));
    rdma_free_devices(list);
  }
  return {std::move(id), context};
}

}  // namespace rkv::rdma::detail
