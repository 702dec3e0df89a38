// Barriers: no member leaves before all members have entered.
//
//   RKV_ASSIGN_OR_RETURN(Barrier barrier,
//       Barrier::create(node, BarrierKind::kDissemination, deadline));        // collective
//   RKV_RETURN_IF_ERROR(barrier.wait(deadline));                              // all ranks
//   const std::array<std::uint32_t, 3> some = {0, 2, 5};
//   RKV_RETURN_IF_ERROR(barrier.wait(some, deadline));                        // those alone
//
// A barrier is one-sided: a rank WRITEs a counter into a slot in another rank's memory, and that
// rank polls the slot. No receive is consumed, and delivery does not need the peer's processor.
// Each pair of ranks has one slot per direction, whose counter grows by one per message. So
// barriers of any members may follow each other, and no slot is ever cleared. Members call the same
// barriers, with the same members, in the same order.
//
// A slot holds its counter and the counter's complement, and is valid when the two match. So no
// step depends on 16 bytes arriving at once.
//
// Visibility: a WRITE to a member that completed before the barrier (its blocking call returned) is
// in that member's memory when the member leaves the barrier.
//
// After an error, a time-out included, a barrier is poisoned, because it is not known which members
// have entered. Every later call fails at once with kDisconnected; the other members reach their
// own deadlines. Create a new barrier, and keep the old one until all ranks have left it
// (Exchange::meet()): a late member's WRITE to memory that was freed fails and breaks that member's
// channel to this rank.
//
// Leaving a barrier means that all members have entered it, not that all have left it. Call meet()
// before a node or a barrier is destroyed.
//
// Waiting polls memory, which raises no event: some polling rounds, then sleeps that grow to a
// millisecond, until the deadline. For the cost see BarrierKind; n is the number of members.
//
// Thread safety: one thread at a time, the node's channels included.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/rdma/group/node.h"

namespace rkv::rdma {

enum class BarrierKind : unsigned char {
  // The first member counts. Latency: 2 messages. That member sends and receives n - 1 each.
  kCentralized,
  // A binary tree, up and down. Latency: 2 log2(n) messages. A rank sends at most 3.
  kTree,
  // log2(n) rounds, in round k to the member 2^k further. Latency: log2(n) messages.
  kDissemination,
};

// ---- topology: pure functions of kind, member count and the caller's own index among them ----

// Members are identified by index, from 0 to members - 1.
struct BarrierStep {
  enum class Action : unsigned char { kSend, kAwait };
  Action action;
  std::uint32_t peer;
  friend bool operator==(const BarrierStep&, const BarrierStep&) = default;
};

// The number of rounds that double 1 to at least `members`.
constexpr std::uint32_t dissemination_rounds(std::uint32_t members) {
  return members <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(members - 1));
}
constexpr std::uint32_t tree_children(std::uint32_t members, std::uint32_t self) {
  const std::uint64_t first = std::uint64_t{2} * self + 1;
  return first >= members ? 0 : first + 1 >= members ? 1 : 2;
}
RKV_EXPORT std::uint32_t barrier_step_count(BarrierKind kind, std::uint32_t members,
                                            std::uint32_t self);
// Steps run in index order. REQUIRES: self < members, index < barrier_step_count().
RKV_EXPORT BarrierStep barrier_step(BarrierKind kind, std::uint32_t members, std::uint32_t self,
                                    std::uint32_t index);
// Checks a list of ranks in a group of `size` ranks: sorted, no rank twice, each below `size`,
// `self` included. kInvalidArgument: the error text names the violated rule.
RKV_EXPORT Status check_members(std::span<const std::uint32_t> members, std::uint32_t self,
                                std::uint32_t size);

namespace detail {
struct BarrierAccess;
struct BarrierState;
}  // namespace detail

class RKV_EXPORT Barrier {
 public:
  // Collective: registers the slots and shares their addresses with all ranks. The node must
  // outlive the barrier; the node may be moved.
  static Result<Barrier> create(Node& node, BarrierKind kind, const Deadline& deadline);
  // A moved-from barrier may only be assigned to or destroyed; any other call aborts with a
  // message.
  Barrier(Barrier&&) noexcept;
  Barrier& operator=(Barrier&&) noexcept;
  ~Barrier();

  // Blocks until all ranks have entered. kTimeout; the error of a WRITE; kDisconnected: poisoned.
  Status wait(const Deadline& deadline);
  // Blocks until all of `members` have entered. kInvalidArgument from check_members() does not
  // poison.
  Status wait(std::span<const std::uint32_t> members, const Deadline& deadline);
  // For members that were checked before. With a wrong list the call times out, or returns although
  // members are missing.
  Status wait_unchecked(std::span<const std::uint32_t> members, const Deadline& deadline);
  bool poisoned() const;

 private:
  friend struct detail::BarrierAccess;
  explicit Barrier(std::unique_ptr<detail::BarrierState> state);
  detail::BarrierState& state() const;
  std::unique_ptr<detail::BarrierState> state_;
};

}  // namespace rkv::rdma
