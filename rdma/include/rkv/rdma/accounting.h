// Who counts: room in a send queue, in a receive queue and in a completion queue, so that none of
// them can overrun.
//
//   SendSlots slots({.slots = qp.send_length(), .signal_every = 16});
//   while (slots.free() > 0) {
//     const SendSlots::Slot slot = slots.take();
//     batch.read(slot.number, slot.signaled ? OpFlags::kSignaled : OpFlags::kNone, to, from);
//   }
//   ... for each completion c of a send: slots.complete(c.wr_id) ...
//
// A request that is not signaled gives no completion, and its slot comes back with the completion
// of a later one. So at least one of the requests in a full queue has to be signaled, or nothing
// ever comes back: take() sees to that. When the queue pair dies, each outstanding request
// completes as flushed, signaled or not: reserve room in the completion queue for all of them.
//
// Thread safety: SendSlots: one thread. CompletionBudget: any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "rkv/check.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct SendSlotsOptions {
  std::uint32_t slots = 0;         // of the send queue: QueuePair::send_length(). At least 1
  std::uint32_t signal_every = 1;  // at most `slots`, else `slots` is taken; 0 is taken as 1
  std::uint32_t first_number = 0;  // of the first request
};

// The slots of one send queue. Invariants:
//  1. completed <= posted <= completed + slots.
//  2. Of any `signal_every` requests in a row one is signaled; so when all slots are taken, one of
//     the outstanding requests is signaled.
class SendSlots {
 public:
  explicit SendSlots(const SendSlotsOptions& options)
      : slots_(options.slots),
        every_(std::clamp<std::uint32_t>(options.signal_every, 1, std::max(options.slots, 1U))),
        first_(options.first_number) {
    RKV_CHECK(options.slots != 0, "a send queue without slots");
  }

  // Requests are numbered on from first_number; the low 32 bits are told, to be (part of) a wr_id.
  struct Slot {
    std::uint32_t number;
    bool signaled;  // must be posted so
  };
  // REQUIRES: free() > 0. `signal`: the caller wants a completion of this one in any case.
  Slot take(bool signal = false) {
    RKV_CHECK(free() != 0, "more requests than the send queue has slots");
    const bool signaled = signal || unsignaled_ + 1 >= every_;
    const auto number = first_ + static_cast<std::uint32_t>(posted_++);
    unsignaled_ = signaled ? 0 : unsignaled_ + 1;
    if (signaled) ++signaled_;
    return {.number = number, .signaled = signaled};
  }
  // The last `count` were not posted after all: a batch that was dropped or refused. They count as
  // never taken; the next one taken is signaled. REQUIRES: count <= outstanding().
  void give_back(std::uint32_t count) {
    RKV_CHECK(count <= outstanding(), "more requests are given back than were taken");
    posted_ -= count;
    // It is not known any more which of those left is the last signaled one: be on the safe side.
    if (count != 0) unsignaled_ = every_ - 1;
  }
  // The completion of the request of this number: its slot and those of all before it are free.
  // Returns how many came free; 0 for a number that is not outstanding (a stale completion).
  std::uint32_t complete(std::uint32_t number) {
    const std::uint32_t through = number - first_ - static_cast<std::uint32_t>(completed_) + 1;
    if (through == 0 || through > outstanding()) return 0;
    completed_ += through;
    return through;
  }

  std::uint32_t slots() const { return slots_; }
  std::uint32_t outstanding() const { return static_cast<std::uint32_t>(posted_ - completed_); }
  std::uint32_t free() const { return slots_ - outstanding(); }
  std::uint32_t unsignaled() const { return unsignaled_; }  // since the last signaled one
  // The next take() will be signaled: a good place to end a batch.
  bool will_signal() const { return unsignaled_ + 1 >= every_; }
  std::uint64_t posted() const { return posted_; }
  std::uint64_t completed() const { return completed_; }
  std::uint64_t signaled() const { return signaled_; }  // ever taken so, given back ones included

 private:
  std::uint32_t slots_;
  std::uint32_t every_;
  std::uint32_t first_;
  std::uint32_t unsignaled_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t signaled_ = 0;
};

// The room of one completion queue, shared by the queue pairs on it. Each reserves, before it is
// made, all that it may have outstanding: send slots and receives; a shared receive queue reserves
// its length once.
class CompletionBudget {
 public:
  // `full`: what reserve() says where there is no room; static, a sentence without a full stop.
  explicit CompletionBudget(
      std::uint32_t entries,
      const char* full =
          "the completion queue has no room for what this queue pair may have "
          "outstanding: raise its entries or lower send_length and receive_length")
      : entries_(entries), full_(full) {}
  CompletionBudget(const CompletionBudget&) = delete;
  CompletionBudget& operator=(const CompletionBudget&) = delete;
  ~CompletionBudget() { RKV_CHECK(reserved() == 0, "a budget ends before its reservations"); }

  // Given back when destroyed: not before all of its completions have been taken out.
  class Reservation {
   public:
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), entries_(other.entries_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      Reservation taken(std::move(other));  // what this one held is given back here, not later
      std::swap(budget_, taken.budget_);
      std::swap(entries_, taken.entries_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->taken_.fetch_sub(entries_, std::memory_order_relaxed);
    }
    std::uint32_t entries() const { return entries_; }

   private:
    friend class CompletionBudget;
    Reservation(CompletionBudget* budget, std::uint32_t entries)
        : budget_(budget), entries_(entries) {}
    CompletionBudget* budget_;
    std::uint32_t entries_;
  };
  // kBusy where there is no room: raise the queue's entries, or lower what may be outstanding.
  // Relaxed: only the number itself is agreed on; what it guards is passed on by other means.
  Result<Reservation> reserve(std::uint32_t entries) {
    std::uint32_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (entries > entries_ - taken) return fail(Code::kBusy, full_);
    } while (!taken_.compare_exchange_weak(taken, taken + entries, std::memory_order_relaxed));
    return Reservation(this, entries);
  }
  std::uint32_t entries() const { return entries_; }
  std::uint32_t reserved() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const std::uint32_t entries_;
  const char* const full_;
  std::atomic<std::uint32_t> taken_{0};
};

}  // namespace rkv::rdma
