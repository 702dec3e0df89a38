#include "rdma/transport/reopening/parts.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace rkv::rdma::reopening {

std::string Parts::describe() const {
  const MutexLock lock(mutex_);
  return transport_ != nullptr ? transport_->describe() : description_;
}

void Parts::lose() {
  const MutexLock lock(mutex_);
  lost_ = true;
  description_ = transport_->describe();
  for (KeptListener* const listener : listeners_)
    listener->lose();
  for (KeptQueue* const queue : queues_)
    queue->lose();
  for (KeptAtomics* const atomics : atomics_)
    atomics->lose();
}

bool Parts::is_empty() {
  const MutexLock lock(mutex_);
  return std::ranges::all_of(queues_, [](const KeptQueue* queue) { return queue->is_empty(); }) &&
         std::ranges::all_of(listeners_,
                             [](const KeptListener* listener) { return listener->is_empty(); });
}

bool Parts::let_go(const Deadline& deadline) {
  if (!is_empty()) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline.left_ms());
    {
      const MutexLock lock(emptied_mutex_);
      while (!emptied_ && changed_.wait_until(emptied_mutex_, end)) {
      }
      emptied_ = false;
    }
    if (!is_empty()) return false;
  }
  const MutexLock lock(mutex_);
  end_all();
  transport_.reset();
  return true;
}

void Parts::end_registrations() {
  const MutexLock lock(mutex_);
  end_all(Ending::kForPeers);
}

// (REOPEN-3) Ends all registrations before the processor may change words.
void Parts::end_all(Ending ending) {
  for (KeptAtomics* const atomics : atomics_)
    atomics->lose();
  for (KeptRegion* const region : regions_) {
    if (ending == Ending::kWhole || !region->is_local()) region->end();
  }
  for (KeptAtomics* const atomics : atomics_)
    atomics->own();
}

Status Parts::prepare_all(Transport& transport) {
  for (KeptAtomics* const atomics : atomics_)
    atomics->disown();
  for (KeptRegion* const region : regions_)
    RKV_RETURN_IF_ERROR(region->enroll(transport));
  for (KeptAtomics* const atomics : atomics_)
    RKV_RETURN_IF_ERROR(atomics->enroll(transport));
  for (KeptQueue* const queue : queues_)
    RKV_RETURN_IF_ERROR(queue->prepare(transport));
  for (KeptListener* const listener : listeners_)
    RKV_RETURN_IF_ERROR(listener->prepare(transport));
  return {};
}

Status Parts::take(std::unique_ptr<Transport> fresh, const std::function<void()>& publish) {
  {
    const MutexLock lock(mutex_);
    if (const Status prepared = prepare_all(*fresh); !prepared) {
      for (KeptQueue* const queue : queues_)
        queue->lose();
      for (KeptListener* const listener : listeners_)
        listener->lose();
      end_all();
      return prepared;
    }
    transport_ = std::move(fresh);
    lost_ = false;
  }
  publish();
  const MutexLock lock(mutex_);
  for (KeptQueue* const queue : queues_)
    queue->offer();
  for (KeptListener* const listener : listeners_)
    listener->offer();
  return {};
}

}  // namespace rkv::rdma::reopening
