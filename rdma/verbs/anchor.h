// An id of the connection manager that is bound to a device and is used for nothing else.
//
// It is told when the device is removed, which a listener on every address is not. And while it is
// there librdmacm keeps the device's context open.
//
// When the device was removed, the anchor's end closes the descriptors of that context. librdmacm
// itself closes them when it next finds another list of devices, and never when that is empty. A
// driver without disassociation (rxe) removes its device when the last context is closed, not
// before.
//
// Thread safety: one thread reads its events.
#pragma once

#include <memory>
#include <utility>

#include "rkv/rdma/cm.h"
#include "rkv/rdma/device.h"

namespace rkv::rdma::verbs {

class Anchor {
 public:
  // nullptr where no id can be bound to the GID: it is not an address of this host (InfiniBand,
  // where it is not that of IP), or it is of the link alone.
  static std::shared_ptr<Anchor> drop(const Device& device, const GidEntry& gid);
  Anchor(EventChannel events, CmId id) : events_(std::move(events)), id_(std::move(id)) {}
  ~Anchor();
  Anchor(const Anchor&) = delete;
  Anchor& operator=(const Anchor&) = delete;

  EventChannel& events() { return events_; }
  // The connection manager has told that the device was removed.
  void note_removal() { removed_ = true; }

 private:
  bool removed_ = false;
  EventChannel events_;
  CmId id_;
};

}  // namespace rkv::rdma::verbs
