// Checks of a pair of the index.
#include <fmt/format.h>

#include <array>
#include <bit>

#include "server/index/index.h"

namespace rkv::server {

// Checks one group and its slots.
std::string Index::check_group(GroupPlace place, std::uint32_t depth,
                               const CheckSlot& check) const {
  const Group& group = *memory_.group(place);
  if (!verify_group(group, memory_.epoch(), place))
    return "the group's checksum does not verify (INDEX-1)";
  const GroupHeader header = GroupHeader::decode(group.header);
  const GroupHeader other = GroupHeader::decode(memory_.group(place.neighbour())->header);
  if (header.depth != depth || header.prefix != other.prefix)
    return "the group's depth or prefix is wrong (INDEX-6)";
  if (header.overflow != (guests(place.neighbour()) != 0))
    return "the overflow flag is wrong (INDEX-2)";
  for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
    const Slot slot{group.slots[i]};
    const bool guest = (guests(place) >> i & 1U) != 0;
    if (slot.empty() && guest)
      return fmt::format("slot {}: empty, but marked as a guest (INDEX-2)", i);
    if (slot.empty()) continue;
    const std::string wrong = check(guest ? place.neighbour() : place, slot);
    if (!wrong.empty()) return fmt::format("slot {}: {}", i, wrong);
  }
  return {};
}

std::string Index::check_pair(GroupPlace even, std::uint32_t depth, const CheckSlot& check,
                              std::uint64_t& stashed) const {
  const std::array<GroupPlace, 2> places = {even, even.neighbour()};
  std::uint32_t chain = 0;
  std::array<bool, 2> spilled = {all_spilled(), all_spilled()};
  const auto at = [](GroupPlace place, const std::string& wrong) {
    return fmt::format("group {} of extent {}: {}", place.number, place.extent, wrong);
  };
  for (auto entry = stashed_at(even); entry != Stash::kNone; entry = stash_.next(entry)) {
    const std::uint32_t side = stash_.side(entry);
    if (side > 1) return at(even, "a stashed key belongs to neither group of the pair");
    if (++chain > kLongestChain) return at(even, "too many stashed keys (INDEX-8)");
    spilled[side] = true;
    ++stashed;
    const std::string wrong = check(places[side], stash_.slot(entry));
    if (!wrong.empty()) return at(places[side], "stashed: " + wrong);
  }
  for (const GroupPlace place : places) {
    if (const std::string wrong = check_group(place, depth, check); !wrong.empty())
      return at(place, wrong);
    if (GroupHeader::decode(memory_.group(place)->header).spilled != spilled[side(place)])
      return at(place, "the spilled flag is wrong (INDEX-3)");
    if (!free_slot(place)) continue;
    if (stashed_at(place) != Stash::kNone)
      return at(place, "a free slot although keys are stashed (INDEX-4)");
    if (guests(place.neighbour()) != 0)
      return at(place, "a free slot although the neighbour holds guests (INDEX-5)");
  }
  return {};
}

}  // namespace rkv::server
