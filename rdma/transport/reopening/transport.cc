#include "rdma/transport/reopening/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "rdma/transport/reopening/parts.h"
#include "rkv/rdma/pages.h"

namespace rkv::rdma {

using reopening::KeptAtomics;
using reopening::KeptListener;
using reopening::KeptQueue;
using reopening::KeptRegion;
using reopening::Parts;

namespace {

// Pauses between two attempts to open a device. The first is short because people wait for it. The
// longest keeps a machine that has lost its adapter for good from being busy.
constexpr std::int64_t kFirstPauseMs = 100;
constexpr std::int64_t kLongestPauseMs = 1000;

const SteadyClock& steady() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace

const char* to_string(DeviceState state) {
  switch (state) {
    case DeviceState::kServing:
      return "serving";
    case DeviceState::kPortDown:
      return "port-down";
    case DeviceState::kGone:
      return "gone";
    case DeviceState::kWaiting:
      return "waiting";
  }
  return "?";
}

Result<std::unique_ptr<ReopeningTransport>> ReopeningTransport::wrap(
    std::unique_ptr<Transport>&& first, OpenTransport open) {
  RKV_ASSIGN_OR_RETURN(auto watch, first->watch_device());
  if (watch == nullptr) return fail(Code::kUnsupported, "this transport has no device to watch");
  return std::unique_ptr<ReopeningTransport>(
      new ReopeningTransport(std::move(first), std::move(open), std::move(watch)));
}

ReopeningTransport::ReopeningTransport(std::unique_ptr<Transport> first, OpenTransport open,
                                       std::unique_ptr<DeviceWatch> watch)
    : open_(std::move(open)),
      has_atomics_(first->has_atomics()),
      tells_refusals_(first->tells_refusals()),
      enforces_grants_(first->enforces_grants()),
      parts_(std::make_shared<Parts>(std::move(first))),
      watch_(std::move(watch)) {
  report_.why = parts_->describe();
}

ReopeningTransport::~ReopeningTransport() = default;

// ---- state ----

DeviceReport ReopeningTransport::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

void ReopeningTransport::tell(DeviceState state, std::string why, bool new_keys) {
  DeviceReport now;
  {
    const MutexLock lock(mutex_);
    if (state == report_.state && !new_keys && why == report_.why) return;
    if (state == DeviceState::kGone) ++report_.losses;
    if (new_keys) ++report_.keys;
    report_.state = state;
    report_.why = std::move(why);
    now = report_;
  }
  if (observer_) observer_(now);
}

void ReopeningTransport::wake() {
  const MutexLock lock(mutex_);
  wake_ = true;
  woken_.notify_all();
  if (watch_ != nullptr) watch_->wake();
  parts_->emptied();
}

void ReopeningTransport::end_registrations() {
  parts_->end_registrations();
}

void ReopeningTransport::step(const Deadline& deadline) {
  {
    const MutexLock lock(mutex_);
    wake_ = false;
  }
  if (!lost_) return on_event(watch_->next(deadline));
  report().state == DeviceState::kGone ? let_go(deadline) : look_for_device(deadline);
}

void ReopeningTransport::on_event(const DeviceEvent& event) {
  switch (event.kind) {
    case DeviceEvent::Kind::kNothing:
      return;
    case DeviceEvent::Kind::kWell:
      return tell(DeviceState::kServing, parts_->describe());
    case DeviceEvent::Kind::kDown:
      return tell(DeviceState::kPortDown, event.what);
    case DeviceEvent::Kind::kLost:
      return lose(event.what);
  }
}

void ReopeningTransport::lose(std::string why) {
  lost_ = true;
  last_failure_ = why;
  tell(DeviceState::kGone, std::move(why));
  parts_->lose();
}

void ReopeningTransport::let_go(const Deadline& deadline) {
  std::unique_ptr<DeviceWatch> ended;
  {
    const MutexLock lock(mutex_);
    ended = std::move(watch_);
  }
  // The watch must end before its transport.
  ended.reset();
  if (!parts_->let_go(deadline)) return;
  pause_ms_ = kFirstPauseMs;
  next_look_ = steady().now();
  tell(DeviceState::kWaiting, last_failure_);
}

void ReopeningTransport::look_for_device(const Deadline& deadline) {
  const Nanos until = std::min(next_look_, deadline.at());
  {
    const MutexLock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(Deadline(steady(), until).left_ms());
    while (!wake_ && woken_.wait_until(mutex_, end)) {
    }
    if (wake_) return;
  }
  if (steady().now() < next_look_) return;
  const Status opened = reopen();
  if (opened) return;
  pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
  next_look_ = steady().now() + pause_ms_ * kNanosPerMs;
  tell(DeviceState::kWaiting,
       fmt::format("{}; since then: {}", last_failure_, to_string(opened.error())));
}

Status ReopeningTransport::reopen() {
  RKV_ASSIGN_OR_RETURN(auto fresh, open_());
  RKV_ASSIGN_OR_RETURN(auto watch, fresh->watch_device());
  if (watch == nullptr) return fail(Code::kUnsupported, "this transport has no device to watch");
  std::string what = fresh->describe();
  // (REOPEN-2) take() calls this between the new keys and the first connection request.
  const Status taken = parts_->take(std::move(fresh), [&] {
    lost_ = false;
    {
      const MutexLock lock(mutex_);
      watch_ = std::move(watch);
    }
    tell(DeviceState::kServing, std::move(what), true);
  });
  return taken;
}

// ---- objects for users ----

std::string ReopeningTransport::describe() const {
  return parts_->describe();
}

bool ReopeningTransport::pins_receive_buffers() const {
  return true;
}

namespace {
// Uses huge pages if the pool has enough: fewer entries in the translation tables of processor and
// adapter.
Result<Pages> pages_for(std::size_t length) {
  constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  return Pages::map(length,
                    {.size = length % kHugePageBytes == 0 ? PageSize::k2MiB : PageSize::kSmall});
}
}  // namespace

Result<std::unique_ptr<Region>> ReopeningTransport::allocate(std::size_t length, Access access) {
  RKV_ASSIGN_OR_RETURN(Pages pages, pages_for(length));
  auto owner = std::make_shared<Pages>(std::move(pages));
  const MutableBytes memory = owner->bytes().first(length);
  return enroll(memory, access, std::move(owner));
}

Result<std::unique_ptr<Region>> ReopeningTransport::attach(MutableBytes memory, Access access) {
  return enroll(memory, access, nullptr);
}

Result<std::unique_ptr<Region>> ReopeningTransport::enroll(MutableBytes memory, Access access,
                                                           std::shared_ptr<void> owner) {
  auto region = std::make_unique<KeptRegion>(parts_, memory, access, std::move(owner));
  const Status enrolled = parts_->with_transport([&](Transport* transport) -> Status {
    if (transport != nullptr) RKV_RETURN_IF_ERROR(region->enroll(*transport));
    parts_->add(*region);
    return {};
  });
  if (!enrolled) return std::unexpected(enrolled.error());
  return std::unique_ptr<Region>(std::move(region));
}

Result<std::unique_ptr<Atomics>> ReopeningTransport::create_atomics(const Region& region) {
  const auto* const kept = dynamic_cast<const KeptRegion*>(&region);
  RKV_CHECK(kept != nullptr, "the region belongs to another transport");
  auto atomics = std::make_unique<KeptAtomics>(parts_, *kept);
  const Status enrolled = parts_->with_transport([&](Transport* transport) -> Status {
    if (transport == nullptr) return fail(Code::kNoDevice, "the RDMA device is lost");
    RKV_RETURN_IF_ERROR(atomics->enroll(*transport));
    parts_->add(*atomics);
    return {};
  });
  if (!enrolled) return std::unexpected(enrolled.error());
  return std::unique_ptr<Atomics>(std::move(atomics));
}

Result<std::unique_ptr<Queue>> ReopeningTransport::create_queue(const QueueOptions& options) {
  auto queue = std::make_unique<KeptQueue>(parts_, options);
  RKV_RETURN_IF_ERROR(queue->open());
  const Status made = parts_->with_transport([&](Transport* transport) -> Status {
    if (transport == nullptr) return fail(Code::kNoDevice, "the RDMA device is lost");
    RKV_RETURN_IF_ERROR(queue->prepare(*transport));
    queue->take_prepared();
    parts_->add(*queue);
    return {};
  });
  if (!made) return std::unexpected(made.error());
  return std::unique_ptr<Queue>(std::move(queue));
}

Result<std::unique_ptr<Listener>> ReopeningTransport::listen(const std::string& address) {
  using Made = Result<std::unique_ptr<KeptListener>>;
  auto listener = parts_->with_transport([&](Transport* transport) -> Made {
    if (transport == nullptr) return fail(Code::kNoDevice, "the RDMA device is lost");
    RKV_ASSIGN_OR_RETURN(auto first, transport->listen(address));
    auto kept = std::make_unique<KeptListener>(parts_, std::move(first), address);
    parts_->add(*kept);
    return kept;
  });
  if (!listener) return std::unexpected(listener.error());
  RKV_RETURN_IF_ERROR((*listener)->open());
  return std::unique_ptr<Listener>(std::move(*listener));
}

// The device is not released while the guest is inside.
Result<std::unique_ptr<Connection>> ReopeningTransport::connect(
    Queue& queue, const ConnectionOptions& options, const std::string& address, Bytes private_data,
    const Deadline& deadline, Rejection* rejection) {
  auto* const kept = dynamic_cast<KeptQueue*>(&queue);
  RKV_CHECK(kept != nullptr, "the connection and its queue belong to different transports");
  KeptQueue::Guest guest(*kept);
  Queue* const inner = guest.enter();
  if (inner == nullptr) return fail(Code::kNoDevice, "the RDMA device is lost");
  return parts_->transport_of_guest().connect(*inner, options, address, private_data, deadline,
                                              rejection);
}

}  // namespace rkv::rdma
