// Descriptions as text, for logs and terminals: of devices with all their limits, ports and GIDs,
// and of domains, completion queues and queue pairs.
//
//   puts(describe(device).c_str());        // many lines, a superset of ibv_devinfo -v
//   log(describe(queue_pair));             // state, peer, limits: some lines
//
// Domains, queues and queue pairs appear with the kernel's handle: the number of the object within
// its context, that is, the device as it was opened. `rdma resource show` has other numbers.
//
// The description of a small object is one line without a line break. That of a device or a queue
// pair has several lines, each terminated by a line break. The wording may change: do not parse it.
// Where a query fails, the text of its error appears instead. Thread safety: as the object's.
// Queries of devices and queue pairs are system calls.
#pragma once

#include <concepts>
#include <string>

#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/domain.h"
#include "rkv/rdma/extended_device.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {

// Devices. A Device gives identity, limits, extended attributes, and each port with its GIDs and
// the GID to use.
RKV_EXPORT std::string describe(const Device& device);
RKV_EXPORT std::string describe(const DeviceInfo& info);
RKV_EXPORT std::string describe(const DeviceAttributes& limits);
RKV_EXPORT std::string describe(const ExtendedAttributes& attributes);
RKV_EXPORT std::string describe(const PortAttributes& port);
RKV_EXPORT std::string describe(const GidEntry& gid);

// Rights and domains.
RKV_EXPORT std::string describe(AccessFlags access);  // "local write, remote read"; "read only"
RKV_EXPORT std::string describe(const ProtectionDomain& domain);

// Queues.
RKV_EXPORT std::string describe(WcField fields);  // "byte length, queue pair number"
RKV_EXPORT std::string describe(const CompletionQueue& queue);

// Queue pairs of any transport.
RKV_EXPORT std::string describe_queue_pair(const ibv_qp* queue_pair);
template <class Qp>
  requires requires(const Qp& qp) {
    { qp.raw() } -> std::convertible_to<const ibv_qp*>;
  }
std::string describe(const Qp& queue_pair) {
  return describe_queue_pair(queue_pair.raw());
}

}  // namespace rkv::rdma
