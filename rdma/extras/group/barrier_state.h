// The slots and counters of a barrier.
//
// Invariants:
//   1. Only rank i writes slot i of `in`. Slot i of `out` is the source of WRITEs to rank i, and
//      changes only after the previous WRITE has completed.
//   2. sent[i] and awaited[i] count the messages to and from rank i since the barrier was created.
//      Rank i counts the same messages in the other direction, because both run the same barriers
//      in the same order.
//   3. A slot's counter exceeds awaited[i] by at most the messages that rank i can be ahead: rank i
//      cannot leave the next barrier before this rank has entered it.
//
// Thread safety: one thread at a time; the device writes `in`.
#pragma once

#include <numeric>
#include <vector>

#include "rdma/extras/group/channel_state.h"
#include "rkv/rdma/group/barrier.h"

namespace rkv::rdma::detail {

inline constexpr std::size_t kSlotBytes = 16;  // a counter and its complement

struct BarrierState {
  BarrierState(MultiChannel& group, BarrierKind what, std::uint32_t own, MemoryRegion memory,
               std::vector<RemoteSpan> slots)
      : peers(&group),
        kind(what),
        rank(own),
        region(std::move(memory)),
        remote(std::move(slots)),
        everyone(remote.size()),
        sent(remote.size()),
        awaited(remote.size()) {
    std::iota(everyone.begin(), everyone.end(), 0);
    flying.reserve(remote.size());
  }

  struct Flying {
    ChannelState* channel;
    ChannelState::NodeRef node;
  };

  ChannelState& channel(std::uint32_t of_rank) const {
    return ChannelAccess::state((*peers)[of_rank < rank ? of_rank : of_rank - 1]);
  }
  Status round(std::span<const std::uint32_t> members, const Deadline& deadline);
  Status send(std::uint32_t to, const Deadline& deadline);
  Status await(std::uint32_t from, const Deadline& deadline);
  // Waits until all WRITEs of the round have completed; cuts off the rest at the deadline.
  Status land(const Deadline& deadline);

  MultiChannel* peers;
  BarrierKind kind;
  std::uint32_t rank;
  MemoryRegion region;
  std::vector<RemoteSpan> remote;  // by rank: the whole region of that rank
  std::vector<std::uint32_t> everyone;
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> awaited;
  std::vector<Flying> flying;
  bool poisoned = false;
  bool skip_awaits = false;  // breaks the barrier, so that a test can prove its check fails
};

struct BarrierAccess {
  static BarrierState& state(Barrier& barrier) { return barrier.state(); }
};

}  // namespace rkv::rdma::detail
