#include "rkv/rdma/group/barrier.h"

#include <algorithm>

#include "common/bytes.h"
#include "rdma/extras/group/barrier_state.h"

namespace rkv::rdma {
namespace detail {

// All ranks use the same region layout: `in` by rank, then `out` by rank.
Status BarrierState::send(std::uint32_t to, const Deadline& deadline) {
  const std::size_t out = (remote.size() + to) * kSlotBytes;
  auto* const words = reinterpret_cast<std::uint64_t*>(region.bytes().data() + out);
  words[0] = ++sent[to];
  words[1] = ~sent[to];
  const auto slot = remote[to].subspan(rank * kSlotBytes, kSlotBytes);
  if (!slot) return fail(Code::kCorrupt, "a rank's barrier memory has slots for fewer ranks");
  const Work work = Work::write(region.local(out, kSlotBytes), *slot);
  ChannelState& toward = channel(to);
  ChannelState::NodeRef node;
  Status posted = toward.post({&work, 1}, {&node, 1});
  // A scope around the barrier may have filled the queue. A completion of that work frees a slot.
  while (!posted && posted.error().code == Code::kBusy && toward.pending() != 0) {
    const std::uint32_t before = toward.pending();
    if (!wait_until(toward, deadline, [&] { return toward.pending() < before; })) {
      return fail(Code::kTimeout, "the deadline passed before a member's channel had a free slot");
    }
    posted = toward.post({&work, 1}, {&node, 1});
  }
  RKV_RETURN_IF_ERROR(posted);
  flying.push_back({.channel = &toward, .node = node});
  return {};
}

Status BarrierState::await(std::uint32_t from, const Deadline& deadline) {
  ++awaited[from];
  if (skip_awaits) return {};
  const auto* const words =
      reinterpret_cast<const std::uint64_t*>(region.bytes().data() + from * kSlotBytes);
  AdaptiveWait policy(kFewCores);
  for (;;) {
    // Acquire: data that the device wrote before the counter is visible after this load.
    const std::uint64_t counter = load_word(words, std::memory_order_acquire);
    const std::uint64_t complement = load_word(words + 1, std::memory_order_acquire);
    if (counter == ~complement && counter >= awaited[from]) return {};
    channel(from).reap();
    if (channel(from).broken()) return std::unexpected(channel(from).cause());
    if (deadline.passed()) {
      return fail(Code::kTimeout, "the deadline passed before all members had entered the barrier");
    }
    policy.pause();
  }
}

Status BarrierState::land(const Deadline& deadline) {
  Status out;
  for (const Flying& one : flying) {
    if (!wait_until(*one.channel, deadline, [&] { return one.channel->is_done(one.node); })) {
      const Error late = timed_out(WorkOp::kWrite);
      cut_off(*one.channel, late);
      if (out) out = std::unexpected(late);
    }
    if (const Result<Done> done = one.channel->take(one.node); !done && out) {
      out = std::unexpected(done.error());
    }
  }
  flying.clear();
  return out;
}

Status BarrierState::round(std::span<const std::uint32_t> members, const Deadline& deadline) {
  const auto count = static_cast<std::uint32_t>(members.size());
  const auto self =
      static_cast<std::uint32_t>(std::ranges::lower_bound(members, rank) - members.begin());
  Status went;
  const std::uint32_t steps = barrier_step_count(kind, count, self);
  for (std::uint32_t i = 0; i < steps && went; ++i) {
    const BarrierStep step = barrier_step(kind, count, self, i);
    const std::uint32_t peer = members[step.peer];
    went = step.action == BarrierStep::Action::kSend ? send(peer, deadline) : await(peer, deadline);
  }
  // Also after an error: when round() returns, no device may refer to the slots.
  const Status landed = land(deadline);
  return went ? landed : went;
}

}  // namespace detail

Barrier::Barrier(std::unique_ptr<detail::BarrierState> state) : state_(std::move(state)) {}
Barrier::Barrier(Barrier&&) noexcept = default;
Barrier& Barrier::operator=(Barrier&&) noexcept = default;
Barrier::~Barrier() = default;

Result<Barrier> Barrier::create(Node& node, BarrierKind kind, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(
      MemoryRegion region,
      MemoryRegion::allocate(node.domain(), std::size_t{2} * node.size() * detail::kSlotBytes,
                             AccessFlags::kLocalWrite | AccessFlags::kRemoteWrite));
  // A slot that was never written holds counter 0, whose complement is all ones.
  for (std::uint32_t rank = 0; rank < node.size(); ++rank) {
    store_le<std::uint64_t>(region.bytes().data() + rank * detail::kSlotBytes + 8,
                            ~std::uint64_t{0});
  }
  RKV_ASSIGN_OR_RETURN(std::vector<RemoteSpan> slots, node.share(region.remote(), deadline));
  return Barrier(std::make_unique<detail::BarrierState>(node.peers(), kind, node.rank(),
                                                        std::move(region), std::move(slots)));
}

detail::BarrierState& Barrier::state() const {
  RKV_CHECK(state_ != nullptr, "the barrier was moved from");
  return *state_;
}

Status Barrier::wait(const Deadline& deadline) {
  return wait_unchecked(state().everyone, deadline);
}

Status Barrier::wait(std::span<const std::uint32_t> members, const Deadline& deadline) {
  RKV_RETURN_IF_ERROR(
      check_members(members, state().rank, static_cast<std::uint32_t>(state().remote.size())));
  return wait_unchecked(members, deadline);
}

Status Barrier::wait_unchecked(std::span<const std::uint32_t> members, const Deadline& deadline) {
  if (state().poisoned) {
    return fail(Code::kDisconnected, "the barrier is poisoned by an earlier error: create another");
  }
  const Status went = state().round(members, deadline);
  state().poisoned = !went;
  return went;
}

bool Barrier::poisoned() const {
  return state().poisoned;
}

}  // namespace rkv::rdma
