#include "rdma/transport/verbs/anchor.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/clock.h"
#include "rkv/rdma/address.h"

namespace rkv::rdma::verbs {

std::shared_ptr<Anchor> Anchor::drop(const Device& device, const GidEntry& gid) {
  // The clock is not used: the address is numeric.
  const SteadyClock clock;
  const auto found = resolve({.host = gid.to_string(), .port = 0}, Deadline::after_ms(clock, 0));
  if (!found || found->empty()) return nullptr;
  auto events = EventChannel::create();
  if (!events) return nullptr;
  auto id = CmId::create(*events);
  if (!id || !id->bind(found->front()) || !id->has_device()) return nullptr;
  if (id->device().name() != device.name()) return nullptr;
  return std::make_shared<Anchor>(std::move(*events), std::move(*id));
}

// The watch stops reading when the device is lost. A device that failed may have been removed
// afterwards.
void Anchor::read_removal() {
  while (!removed_) {
    const auto event = events_.next();
    if (!event || !*event) return;
    removed_ = (*event)->type() == RDMA_CM_EVENT_DEVICE_REMOVAL;
  }
}

// The descriptor numbers stay in use, so that librdmacm, which closes them later, does not close
// descriptors of others.
Anchor::~Anchor() {
  read_removal();
  if (!removed_) return;
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  const ibv_context& context = *id_.raw()->verbs;
  for (const int descriptor : {context.cmd_fd, context.async_fd})
    (void)dup3(nothing, descriptor, O_CLOEXEC);
  close(nothing);
}

}  // namespace rkv::rdma::verbs
