// Barriers: nobody leaves before everybody has entered.
//
//   RKV_ASSIGN_OR_RETURN(Barrier barrier,
//       Barrier::create(node, BarrierKind::kDissemination, deadline));        // collective
//   RKV_RETURN_IF_ERROR(barrier.wait(deadline));                              // all ranks
//   const std::array<std::uint32_t, 3> some = {0, 2, 5};
//   RKV_RETURN_IF_ERROR(barrier.wait(some, deadline));                        // those alone
//
// One-sided: a rank WRITEs a counter into a slot of another rank's memory, which looks there; no
// receive is consumed and no processor of the other side is needed to deliver. Between two ranks
// there is one slot in each direction, and its counter grows by one for each message, so barriers
// of any members may follow each other without anything being cleared. Members call the same
// barriers, with the same members, in the same order.
//
// A slot holds its counter and the counter's complement, and is believed when the two match:
// nothing rests on 16 bytes arriving at once.
//
// What was written to a member before the barrier and has completed there (a WRITE whose blocking
// call returned) is in that member's memory when it leaves.
//
// After an error - a time-out is one - a barrier is poisoned: who has entered what is no longer
// known, so every later call fails at once with kDisconnected. The others find out by their own
// deadlines. Make a new one, and keep the old one until all have left it (Exchange::meet()): what a
// late member writes to memory that is gone breaks its channel to us.
//
// To leave says that all have entered, not that all have left: before a node or a barrier ends,
// meet().
//
// Waiting looks at memory, for which there is no event: some rounds of looking, then sleeps that
// grow up to a millisecond, until the deadline. Cost: see BarrierKind; n is the number of members.
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
  kCentralized,    // the first member counts: 2 messages deep, but n - 1 at one rank
  kTree,           // a binary tree, up and down: 2 log2(n) deep, at most 3 messages at a rank
  kDissemination,  // log2(n) rounds, in each a message to the member 2^k further: log2(n) deep
};

// ---- topology: pure functions of kind, number of members, and one's own index among them ----

// Members are named by their index here, from 0 to members - 1.
struct BarrierStep {
  enum class Action : unsigned char { kSend, kAwait };
  Action action;
  std::uint32_t peer;
  friend bool operator==(const BarrierStep&, const BarrierStep&) = default;
};

// How many rounds double 1 to at least `members`.
constexpr std::uint32_t dissemination_rounds(std::uint32_t members) {
  return members <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(members - 1));
}
constexpr std::uint32_t tree_children(std::uint32_t members, std::uint32_t self) {
  const std::uint64_t first = std::uint64_t{2} * self + 1;
  return first >= members ? 0 : first + 1 >= members ? 1 : 2;
}
RKV_EXPORT std::uint32_t barrier_step_count(BarrierKind kind, std::uint32_t members,
                                            std::uint32_t self);
// Steps are done in their order. REQUIRES: self < members, index < barrier_step_count().
RKV_EXPORT BarrierStep barrier_step(BarrierKind kind, std::uint32_t members, std::uint32_t self,
                                    std::uint32_t index);
// Of ranks in a group of `size`: sorted, none twice, none too large, `self` among them.
// kInvalidArgument says which.
RKV_EXPORT Status check_members(std::span<const std::uint32_t> members, std::uint32_t self,
                                std::uint32_t size);

namespace detail {
struct BarrierAccess;
struct BarrierState;
}  // namespace detail

class RKV_EXPORT Barrier {
 public:
  // Collective: registers the slots and tells the others. The node must outlive the barrier; it may
  // be moved.
  static Result<Barrier> create(Node& node, BarrierKind kind, const Deadline& deadline);
  // What was moved from may be assigned to or destroyed; any other call on it ends the process with
  // a sentence.
  Barrier(Barrier&&) noexcept;
  Barrier& operator=(Barrier&&) noexcept;
  ~Barrier();

  // Blocks until all ranks are here. kTimeout; the error of a WRITE; kDisconnected: poisoned.
  Status wait(const Deadline& deadline);
  // Until all of `members` are here; kInvalidArgument as check_members(), and nothing is poisoned.
  Status wait(std::span<const std::uint32_t> members, const Deadline& deadline);
  // For members that have been checked: a mistake is a time-out, or worse, a barrier that is none.
  Status wait_unchecked(std::span<const std::uint32_t> members, const Deadline& deadline);
  bool poisoned() const;

 private:
  friend struct detail::BarrierAccess;
  explicit Barrier(std::unique_ptr<detail::BarrierState> state);
  detail::BarrierState& state() const;
  std::unique_ptr<detail::BarrierState> state_;
};

}  // namespace rkv::rdma
