// Steps that connections and look-ups of datagram services share.
//
// Thread safety: as of the ids and channels that are given.
#pragma once

#include <cstdint>
#include <optional>

#include "rkv/rdma/cm.h"

namespace rkv::rdma::detail {

// Whether an event only informs: what waits for another one goes on waiting.
bool is_hint(rdma_cm_event_type type);
// Waits for one kind of event. A hint is passed over; any other event is the failure of this step,
// and what the peer said with it goes to `failed`.
Result<CmEvent> expect(EventChannel& channel, rdma_cm_event_type wanted, const Deadline& deadline,
                       PrivateData* failed = nullptr);
// From an address to a device, and from there to a path. Options of the id come in between.
Status find_device(EventChannel& channel, CmIdBase& id, const SocketAddress& peer,
                   const SocketAddress* source, const Deadline& deadline);
Status find_path(EventChannel& channel, CmIdBase& id,
                 const std::optional<std::uint8_t>& type_of_service, const Deadline& deadline);
// kInvalidArgument with `text`; librdmacm itself would cut the length down to a byte.
Status fits(const char* call, Bytes private_data, std::size_t most, const char* text);

}  // namespace rkv::rdma::detail
