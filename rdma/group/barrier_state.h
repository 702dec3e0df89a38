// A barrier's slots and counters.
//
// Invariants:
//  1. Slot i of `in` is written by rank i alone; slot i of `out` is the source of writes to rank i,
//     and is changed only when the one before has completed.
//  2. sent[i] and awaited[i] count the messages to and from rank i since the barrier was made. Rank
//     i counts the same the other way round, because both do the same barriers in the same order.
//  3. A slot's counter never exceeds what was awaited by more than the messages that a rank can be
//     ahead: it cannot leave the next barrier before we have entered it.
//
// Thread safety: one thread at a time; `in` is written by the device.
#pragma once

#include <numeric>
#include <vector>

#include "rdma/group/channel_state.h"
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
  // All writes of the round have completed, or are cut off.
  Status land(const Deadline& deadline);

  MultiChannel* peers;
  BarrierKind kind;
  std::uint32_t rank;
  MemoryRegion region;
  std::vector<RemoteSpan> remote;  // of each rank, its whole region
  std::vector<std::uint32_t> everyone;
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> awaited;
  std::vector<Flying> flying;
  bool poisoned = false;
  bool skip_awaits = false;  // a broken barrier, for a test of its test
};

struct BarrierAccess {
  static BarrierState& state(Barrier& barrier) { return barrier.state(); }
};

}  // namespace rkv::rdma::detail
