// The parts of a channel before it is connected. Not public.
#pragma once

#include "rdma/extras/channel/channel_state.h"
#include "rkv/rdma/channel.h"

namespace rkv::rdma::detail {

struct ChannelParts {
  CompletionChannel events;
  CompletionQueue queue;
  PreparedQueuePair<> qp;
};
// kInvalidArgument names the option that is out of range.
Result<ChannelParts> make_parts(const ProtectionDomain& pd, const ChannelOptions& options);

}  // namespace rkv::rdma::detail
