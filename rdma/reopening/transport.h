// ReopeningTransport: a transport that outlives its device. When the device is lost, everything
// made from it ends; when one is there again, regions, queues, listeners and atomics are made on it
// once more, behind the same objects.
//
//   auto transport = ReopeningTransport::wrap(std::move(first), [] { return open_verbs(...); });
//   transport->observe([&](const DeviceReport& now) { ... });
//   ... on a thread of its own: while (running) transport->step(Deadline::after_ms(clock, 1000));
//
// What its users see of a loss: connections end with kDisconnected, no request for one comes, and
// queues are quiet. Region::bytes() stays. When the device is back, local and remote keys of every
// region are other ones: no connection that knew the old ones is left by then.
//
// Invariants
//  R1  What was made from a lost device is let go wholly - connections by their owners, queues and
//      listeners by their threads, atomics and regions here - before a device is looked for. Until
//      then the driver may be waiting for it (rxe).
//  R2  Keys change between R1 and the first connection request of the new device, and the observer
//      is called in between (DeviceReport::keys): what it publishes is true when it is read.
//  R3  Words of a kRemoteReadAtomic region are changed by one device, or, while no device has the
//      region registered, by this processor. Not by both: the registration ends before the
//      processor begins, and the processor's last change comes before the next registration. In
//      between Atomics fail, and nothing has happened.
//
// Thread safety: as Transport; observe() before the first step(); step(): one thread; wake(),
// report(): any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rdma/transport.h"

namespace rkv::rdma {

// Of the device under a transport.
enum class DeviceState : std::uint8_t {
  kServing,
  kPortDown,  // it is there and carries no traffic
  kGone,      // it is lost, and what was made from it is being given up
  kWaiting,   // nothing of it is left; one is looked for again and again
};
inline constexpr std::size_t kDeviceStates = 4;
const char* to_string(DeviceState state);  // "serving", "port-down", "gone", "waiting"

struct DeviceReport {
  DeviceState state = DeviceState::kServing;
  std::string why{};         // a sentence without a full stop; of kServing: what is served now
  std::uint64_t losses = 0;  // so far
  std::uint64_t keys = 0;    // how often the regions' keys have changed
};

using OpenTransport = std::function<Result<std::unique_ptr<Transport>>()>;

namespace reopening {
class Parts;
}

class ReopeningTransport final : public Transport {
 public:
  // `open` blocks as open_verbs() does; it is called by step(). After an error `first` is as it
  // was.
  static Result<std::unique_ptr<ReopeningTransport>> wrap(std::unique_ptr<Transport>&& first,
                                                          OpenTransport open);
  ~ReopeningTransport() override;
  ReopeningTransport(const ReopeningTransport&) = delete;
  ReopeningTransport& operator=(const ReopeningTransport&) = delete;

  // Called by step() after each change.
  void observe(std::function<void(const DeviceReport&)> observer) {
    observer_ = std::move(observer);
  }
  // Waits for something to happen, and does what follows from it. Returns at the deadline at the
  // latest, but for the time that opening a device and registering all regions take.
  void step(const Deadline& deadline);
  void wake();
  DeviceReport report() const;

  std::string describe() const override;
  bool pins_receive_buffers() const override;
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
  const std::shared_ptr<reopening::Parts> parts_;
  std::function<void(const DeviceReport&)> observer_;
  std::unique_ptr<DeviceWatch> watch_;  // of step(); guarded by mutex_ for wake()
  bool lost_ = false;                   // of step()
  Nanos next_look_ = 0;                 // likewise
  std::int64_t pause_ms_ = 0;           // likewise
  std::string last_failure_{};          // likewise

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable woken_;
  bool wake_ = false;
  DeviceReport report_;
};

}  // namespace rkv::rdma
