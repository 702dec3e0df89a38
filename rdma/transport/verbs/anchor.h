// Anchor: a connection-manager id that is bound to a device and serves two purposes. It receives
// the event of the device's removal, which a listener on every address does not. While it exists,
// librdmacm keeps the device's context open.
//
// After a removal, even one whose event nobody has read yet, the Anchor's destructor closes the
// descriptors of that context. librdmacm closes them only when it next finds a different list of
// devices, and never when the list is empty. A driver without disassociation (rxe) removes its
// device only when the last context is closed. Without a removal the descriptors stay open:
// librdmacm may use the context again.
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
  // Returns nullptr if no id can be bound to the GID: the GID is not an address of this host
  // (InfiniBand without IP of that GID), or it is link-local.
  static std::shared_ptr<Anchor> drop(const Device& device, const GidEntry& gid);
  Anchor(EventChannel events, CmId id) : events_(std::move(events)), id_(std::move(id)) {}
  ~Anchor();
  Anchor(const Anchor&) = delete;
  Anchor& operator=(const Anchor&) = delete;

  EventChannel& events() { return events_; }
  // Records that the connection manager reported the device's removal.
  void note_removal() { removed_ = true; }

 private:
  void read_removal();

  bool removed_ = false;
  EventChannel events_;
  CmId id_;
};

}  // namespace rkv::rdma::verbs
