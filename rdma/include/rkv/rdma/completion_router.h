// Finds the owner of a completion in constant time, for a completion queue of many queue pairs.
//
//   CompletionRouter<Connection> router(/*most=*/1024);
//   RKV_ASSIGN_OR_RETURN(std::uint16_t generation, router.add(qp.number(), &connection));
//   QueuePairWork work({.generation = generation, ...});         // makes wr_ids that carry it
//   router.dispatch(done, [](Connection& c, const WorkCompletion& wc) { c.on(wc); },
//                   [](const WorkCompletion& stray) { ... });
//
// A device reuses the numbers of destroyed queue pairs, and completions of the old queue pair may
// still be in the queue. A generation in the upper 16 bits of each wr_id distinguishes them. A
// completion whose generation is not that of the number's current owner is a stray.
//
// Only the constructor allocates. Thread safety: one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rkv/check.h"
#include "rkv/rdma/completion.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The layout of a wr_id: generation 16 bits, one bit for receives, 15 unused, number 32 bits. 32
// bits are enough: at most as many requests are outstanding as there are slots.
struct WorkId {
  std::uint16_t generation = 0;
  bool receive = false;
  std::uint32_t number = 0;

  constexpr std::uint64_t wr_id() const {
    return std::uint64_t{generation} << 48 | std::uint64_t{receive} << 47 | number;
  }
  static constexpr WorkId from(std::uint64_t wr_id) {
    return {.generation = static_cast<std::uint16_t>(wr_id >> 48),
            .receive = (wr_id >> 47 & 1) != 0,
            .number = static_cast<std::uint32_t>(wr_id)};
  }
  friend constexpr bool operator==(const WorkId&, const WorkId&) = default;
};

template <class Target>
class CompletionRouter {
 public:
  // `most`: the number of queue pairs at a time.
  explicit CompletionRouter(std::size_t most)
      : most_(most), slots_(std::bit_ceil(most * 2 + 2)), shift_(64 - std::countr_zero(slots())) {}

  // Adds a queue pair; returns the generation for its wr_ids. The generation is never 0 and does
  // not repeat in the next 65,534 calls. kConflict: the number already has a target; kBusy: `most`
  // queue pairs are present. REQUIRES: target != nullptr; it lives until remove().
  Result<std::uint16_t> add(std::uint32_t qp_num, Target* target) {
    RKV_CHECK(target != nullptr, "a route to nothing");
    Slot& slot = slots_[place_of(qp_num)];
    if (slot.target != nullptr) {
      return fail(Code::kConflict, "this queue pair number has a target already: remove it first");
    }
    if (count_ == most_) {
      return fail(Code::kBusy, "the completion router is full: make it for more queue pairs");
    }
    ++count_;
    if (++generation_ == 0) ++generation_;
    slot = {.target = target, .qp_num = qp_num, .generation = generation_};
    return generation_;
  }
  // Removes a queue pair; its later completions are strays. Returns false if the number had no
  // target.
  bool remove(std::uint32_t qp_num) {
    std::size_t hole = place_of(qp_num);
    if (slots_[hole].target == nullptr) return false;
    --count_;
    // Linear probing without tombstones: an entry behind the hole moves into it if the hole would
    // stop the search for that entry.
    for (std::size_t next = after(hole); slots_[next].target != nullptr; next = after(next)) {
      const std::size_t home = home_of(slots_[next].qp_num);
      if (((next - home) & (slots() - 1)) < ((next - hole) & (slots() - 1))) continue;
      slots_[hole] = slots_[next];
      hole = next;
    }
    slots_[hole] = {};
    return true;
  }
  // The target of a completion; nullptr if the number is unknown or the generation is a
  // predecessor's.
  Target* find(std::uint32_t qp_num, std::uint64_t wr_id) const {
    const Slot& slot = slots_[place_of(qp_num)];
    return slot.generation == WorkId::from(wr_id).generation ? slot.target : nullptr;
  }
  // Finds by number alone, for wr_ids without a generation: receives of a shared queue.
  Target* find_any_generation(std::uint32_t qp_num) const {
    return slots_[place_of(qp_num)].target;
  }
  // Passes each completion to its target or to `stray`. A callback may add and remove. Returns the
  // number of completions that had a target.
  template <class Own, class Stray>
  std::size_t dispatch(std::span<const WorkCompletion> completions, Own&& own, Stray&& stray) {
    std::size_t routed = 0;
    for (const WorkCompletion& completion : completions) {
      if (Target* target = find(completion.qp_num, completion.wr_id)) {
        ++routed;
        own(*target, completion);
      } else {
        stray(completion);
      }
    }
    return routed;
  }
  std::size_t size() const { return count_; }

 private:
  struct Slot {
    Target* target = nullptr;
    std::uint32_t qp_num = 0;
    std::uint16_t generation = 0;
  };
  std::size_t slots() const { return slots_.size(); }
  std::size_t after(std::size_t place) const { return (place + 1) & (slots() - 1); }
  // Fibonacci hashing: drivers number queue pairs in sequence or in strides.
  std::size_t home_of(std::uint32_t qp_num) const {
    return static_cast<std::size_t>(qp_num * 0x9E37'79B9'7F4A'7C15U >> shift_);
  }
  // Returns the entry of qp_num, or the free entry where it would be stored. At least half of the
  // entries are free.
  std::size_t place_of(std::uint32_t qp_num) const {
    std::size_t place = home_of(qp_num);
    while (slots_[place].target != nullptr && slots_[place].qp_num != qp_num)
      place = after(place);
    return place;
  }

  std::size_t most_;
  std::vector<Slot> slots_;
  int shift_;
  std::size_t count_ = 0;
  std::uint16_t generation_ = 0;
};

}  // namespace rkv::rdma
