// ReopeningTransport: a transport that survives the loss of its device. When the device is lost,
// its connections end. When a device is available again, regions, queues, listeners and atomics are
// recreated on it behind the same objects.
//
//   auto transport = ReopeningTransport::wrap(std::move(first), [] { return open_verbs(...); });
//   transport->observe([&](const DeviceReport& now) { ... });
//   ... on a thread of its own: while (running) transport->step(Deadline::after_ms(clock, 1000));
//
// Users see a loss as follows: connections end with kDisconnected, no connection requests arrive,
// and queues deliver nothing. Region::bytes() stays the same. When the device is back, every region
// has new local and remote keys. By then no connection that knew the old keys is left.
//
// Invariants
//  REOPEN-1  Everything created on a lost device is released before a new device is opened:
//      connections by their owners, queues and listeners by their threads, atomics and regions
//      here. Until then the driver may be waiting for the release (rxe).
//  REOPEN-2  Keys change after REOPEN-1 and before the first connection request of the new device.
//      The observer is called between these two (DeviceReport::keys), so the keys that it publishes
//      are valid when peers read them.
//  REOPEN-3  Words of a kRemoteReadAtomic region are changed either by one device or, while no
//      device has the region registered, by this processor. Never by both: the registration ends
//      before the processor begins, and the processor's last change comes before the next
//      registration. In between, Atomics fail without effect.
//
// Thread safety: as Transport. Call observe() before the first step(). step(): one thread. wake()
// and report(): any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma {

// State of the device under a transport.
enum class DeviceState : std::uint8_t {
  kServing,
  kPortDown,  // present but carries no traffic
  kGone,      // lost; everything created on it is being released
  kWaiting,   // everything is released; opening a device is tried repeatedly
};
inline constexpr std::size_t kDeviceStates = 4;
const char* to_string(DeviceState state);  // "serving", "port-down", "gone", "waiting"

struct DeviceReport {
  DeviceState state = DeviceState::kServing;
  std::string why{};         // a sentence without a full stop; for kServing: the device in use
  std::uint64_t losses = 0;  // so far
  std::uint64_t keys = 0;    // how often the regions' keys have changed
};

using OpenTransport = std::function<Result<std::unique_ptr<Transport>>()>;

namespace reopening {
class Parts;
}

class ReopeningTransport final : public Transport {
 public:
  // step() calls `open`, which blocks as open_verbs() does. On error `first` is unchanged.
  static Result<std::unique_ptr<ReopeningTransport>> wrap(std::unique_ptr<Transport>&& first,
                                                          OpenTransport open);
  ~ReopeningTransport() override;
  ReopeningTransport(const ReopeningTransport&) = delete;
  ReopeningTransport& operator=(const ReopeningTransport&) = delete;

  // step() calls the observer after each change.
  void observe(std::function<void(const DeviceReport&)> observer) {
    observer_ = std::move(observer);
  }
  // Waits for an event and handles it. Returns at the deadline, plus the time that opening a device
  // and registering all regions take.
  void step(const Deadline& deadline);
  void wake();
  DeviceReport report() const;
  // For a program that ends: ends the registration of every region that a peer may access, whatever
  // the state of the device. From then on Atomics are done by the processor and need no device
  // (REOPEN-3). Blocks as long as the driver takes. REQUIRES: no connection whose peer may access a
  // region is left or about to be accepted; step() does not run and is not called again.
  void end_registrations();

  std::string describe() const override;
  bool pins_receive_buffers() const override;
  bool has_atomics() const override { return has_atomics_; }
  bool tells_refusals() const override { return tells_refusals_; }
  bool enforces_grants() const override { return enforces_grants_; }
  Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) override;
  Result<std::unique_ptr<Region>> attach(MutableBytes memory, Access access) override;
  Result<std::unique_ptr<Atomics>> create_atomics(const Region& region) override;
  Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address) override;
  Result<std::unique_ptr<Connection>> connect(Queue& queue, const ConnectionOptions& options,
                                              const std::string& address, Bytes private_data,
                                              const Deadline& deadline,
                                              Rejection* rejection) override;

 private:
  ReopeningTransport(std::unique_ptr<Transport> first, OpenTransport open,
                     std::unique_ptr<DeviceWatch> watch);
  Result<std::unique_ptr<Region>> enroll(MutableBytes memory, Access access,
                                         std::shared_ptr<void> owner);
  void on_event(const DeviceEvent& event);
  void lose(std::string why);
  void let_go(const Deadline& deadline);
  void look_for_device(const Deadline& deadline);
  Status reopen();
  void tell(DeviceState state, std::string why, bool new_keys = false);

  const OpenTransport open_;
  const bool has_atomics_;  // of the first device
  const bool tells_refusals_;
  const bool enforces_grants_;
  const std::shared_ptr<reopening::Parts> parts_;
  std::function<void(const DeviceReport&)> observer_;
  std::unique_ptr<DeviceWatch> watch_;  // of the thread in step(); wake() reads it under mutex_
  bool lost_ = false;                   // of the thread in step()
  Nanos next_look_ = 0;                 // of the thread in step()
  std::int64_t pause_ms_ = 0;           // of the thread in step()
  std::string last_failure_{};          // of the thread in step()

  mutable Mutex mutex_;
  ConditionVariable woken_;
  bool wake_ RKV_GUARDED_BY(mutex_) = false;
  DeviceReport report_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::rdma
