// VerbsWatch: translates the events of a device into DeviceEvents. It reads the asynchronous events
// and those of the connection manager.
//
// If the connection manager cannot report a removal (no Anchor), a driver may remove the device
// without any event. The list of devices is then checked once a second.
#pragma once

#include <deque>
#include <memory>

#include "common/clock.h"
#include "rdma/transport/verbs/shared.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::verbs {

class VerbsWatch final : public DeviceWatch {
 public:
  static Result<std::unique_ptr<DeviceWatch>> create(std::shared_ptr<const Shared> shared);

  DeviceEvent next(const Deadline& deadline) override;
  void wake() override { waker_.wake(); }

 private:
  explicit VerbsWatch(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  void take_device_events();
  void take_manager_events();
  void on_event(const AsyncEvent& event);
  void look_at_list();
  void look_at_port();
  void lost(std::string what);
  bool is_listed() const;

  const std::shared_ptr<const Shared> shared_;
  Waker waker_;
  const SteadyClock clock_;
  Nanos next_look_ = 0;  // time of the next check of the list
  bool lost_ = false;
  std::deque<DeviceEvent> found_;
};

}  // namespace rkv::rdma::verbs
