// Steps shared by connections and by lookups of datagram services.
//
// Thread safety: that of the ids and channels passed in.
#pragma once

#include <cstdint>
#include <optional>

#include "rkv/rdma/cm.h"

namespace rkv::rdma::detail {

// Whether an event is only informative, so that a wait for another event continues.
bool is_hint(rdma_cm_event_type type);
// Waits for an event of one kind. Skips hints; any other event fails this step, and its private
// data goes to `failed`.
Result<CmEvent> expect(EventChannel& channel, rdma_cm_event_type wanted, const Deadline& deadline,
                       PrivateData* failed = nullptr);
// The same without waiting: nothing if the event has not arrived yet.
Result<std::optional<CmEvent>> next_expected(EventChannel& channel, rdma_cm_event_type wanted,
                                             PrivateData* failed = nullptr);
// Resolve an address to a device, then a device to a path. The caller sets options of the id in
// between.
Status find_device(EventChannel& channel, CmIdBase& id, const SocketAddress& peer,
                   const SocketAddress* source, const Deadline& deadline);
Status find_path(EventChannel& channel, CmIdBase& id,
                 const std::optional<std::uint8_t>& type_of_service, const Deadline& deadline);
// kInvalidArgument with `text` if `private_data` is longer than `most`. librdmacm itself would
// truncate the length to a byte.
Status fits(const char* call, Bytes private_data, std::size_t most, const char* text);

}  // namespace rkv::rdma::detail
