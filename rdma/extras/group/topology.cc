#include <algorithm>

#include "rkv/rdma/group/barrier.h"

namespace rkv::rdma {
namespace {

using Action = BarrierStep::Action;

BarrierStep centralized(std::uint32_t members, std::uint32_t self, std::uint32_t index) {
  if (self != 0) return {index == 0 ? Action::kSend : Action::kAwait, 0};
  const std::uint32_t others = members - 1;
  return index < others ? BarrierStep{Action::kAwait, 1 + index}
                        : BarrierStep{Action::kSend, 1 + index - others};
}

// A member awaits its children, exchanges messages with its parent, then releases its children.
BarrierStep tree(std::uint32_t members, std::uint32_t self, std::uint32_t index) {
  const std::uint32_t children = tree_children(members, self);
  if (index < children) return {Action::kAwait, 2 * self + 1 + index};
  index -= children;
  if (self != 0) {
    if (index < 2) return {index == 0 ? Action::kSend : Action::kAwait, (self - 1) / 2};
    index -= 2;
  }
  return {Action::kSend, 2 * self + 1 + index};
}

// The distances 1, 2, 4 ... are below `members`, so no two rounds join the same two members in the
// same direction.
BarrierStep dissemination(std::uint32_t members, std::uint32_t self, std::uint32_t index) {
  const std::uint32_t distance = 1U << (index / 2);
  if (index % 2 == 0) return {Action::kSend, (self + distance) % members};
  return {Action::kAwait, (self + members - distance) % members};
}

}  // namespace

std::uint32_t barrier_step_count(BarrierKind kind, std::uint32_t members, std::uint32_t self) {
  RKV_CHECK(self < members, "a member's index is below the number of members");
  if (members == 1) return 0;
  switch (kind) {
    case BarrierKind::kCentralized:
      return self == 0 ? 2 * (members - 1) : 2;
    case BarrierKind::kTree:
      return 2 * tree_children(members, self) + (self == 0 ? 0 : 2);
    case BarrierKind::kDissemination:
      break;
  }
  return 2 * dissemination_rounds(members);
}

BarrierStep barrier_step(BarrierKind kind, std::uint32_t members, std::uint32_t self,
                         std::uint32_t index) {
  RKV_CHECK(index < barrier_step_count(kind, members, self), "the barrier has no such step");
  switch (kind) {
    case BarrierKind::kCentralized:
      return centralized(members, self, index);
    case BarrierKind::kTree:
      return tree(members, self, index);
    case BarrierKind::kDissemination:
      break;
  }
  return dissemination(members, self, index);
}

Status check_members(std::span<const std::uint32_t> members, std::uint32_t self,
                     std::uint32_t size) {
  const auto unordered =
      std::ranges::adjacent_find(members, [](std::uint32_t a, std::uint32_t b) { return a >= b; });
  if (unordered != members.end()) {
    return fail(Code::kInvalidArgument, *unordered == *std::next(unordered)
                                            ? "a member of the barrier is named twice"
                                            : "the members of a barrier are not in order");
  }
  if (!members.empty() && members.back() >= size) {
    return fail(Code::kInvalidArgument, "a member of the barrier is not a rank of the group");
  }
  if (!std::ranges::binary_search(members, self)) {
    return fail(Code::kInvalidArgument, "this rank is not a member of the barrier that it enters");
  }
  return {};
}

}  // namespace rkv::rdma
