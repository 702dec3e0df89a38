// Counts the slots of send, receive and completion queues, so that none of them overruns.
//
//   SendSlots slots({.slots = qp.send_length(), .signal_every = 16});
//   while (slots.free() > 0) {
//     const SendSlots::Slot slot = slots.take();
//     batch.read(slot.number, slot.signaled ? OpFlags::kSignaled : OpFlags::kNone, to, from);
//   }
//   ... for each completion c of a send: slots.complete(c.wr_id) ...
//
// An unsignaled request produces no completion. Its slot is freed by the completion of a later
// signaled request. At least one request in a full queue must therefore be signaled, or no slot is
// ever freed: take() ensures this.
//
// When a queue pair enters the error state, requests that have not ended complete as flushed,
// signaled or not. Reserve completion queue entries for all of them.
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
  std::uint32_t slots = 0;         // slots of the send queue: QueuePair::send_length(). At least 1
  std::uint32_t signal_every = 1;  // at most `slots`, larger values mean `slots`; 0 means 1
  std::uint32_t first_number = 0;  // number of the first request
};

// The slots of one send queue. Invariants:
//  1. completed <= posted <= completed + slots.
//  2. At least one of any `signal_every` consecutive requests is signaled. So when all slots are
//     taken, one of the outstanding requests is signaled.
class SendSlots {
 public:
  explicit SendSlots(const SendSlotsOptions& options)
      : slots_(options.slots),
        every_(std::clamp<std::uint32_t>(options.signal_every, 1, std::max(options.slots, 1U))),
        first_(options.first_number) {
    RKV_CHECK(options.slots != 0, "a send queue without slots");
  }

  // Requests are numbered consecutively from first_number. `number` is the low 32 bits, for use as
  // (part of) a wr_id.
  struct Slot {
    std::uint32_t number;
    bool signaled;  // the request must be posted as signaled
  };
  // Takes the next slot. `signal`: the slot is signaled in any case. REQUIRES: free() > 0.
  Slot take(bool signal = false) {
    RKV_CHECK(free() != 0, "more requests than the send queue has slots");
    const bool signaled = signal || unsignaled_ + 1 >= every_;
    const auto number = first_ + static_cast<std::uint32_t>(posted_++);
    unsignaled_ = signaled ? 0 : unsignaled_ + 1;
    if (signaled) ++signaled_;
    return {.number = number, .signaled = signaled};
  }
  // Returns the slots of the last `count` requests, which were not posted (a batch was dropped or
  // refused). They count as never taken. The next request taken is signaled. REQUIRES: count <=
  // outstanding().
  void give_back(std::uint32_t count) {
    RKV_CHECK(count <= outstanding(), "more requests are given back than were taken");
    posted_ -= count;
    // The last signaled request among the remaining ones is unknown, so the next one is signaled.
    if (count != 0) unsignaled_ = every_ - 1;
  }
  // Handles the completion of request `number`: frees its slot and the slots of all earlier
  // requests. Returns the number of slots freed; 0 if `number` is not outstanding (a stale
  // completion).
  std::uint32_t complete(std::uint32_t number) {
    const std::uint32_t through = number - first_ - static_cast<std::uint32_t>(completed_) + 1;
    if (through == 0 || through > outstanding()) return 0;
    completed_ += through;
    return through;
  }

  std::uint32_t slots() const { return slots_; }
  std::uint32_t outstanding() const { return static_cast<std::uint32_t>(posted_ - completed_); }
  std::uint32_t free() const { return slots_ - outstanding(); }
  std::uint32_t unsignaled() const { return unsignaled_; }  // requests since the last signaled one
  std::uint64_t posted() const { return posted_; }
  std::uint64_t completed() const { return completed_; }
  // Total taken as signaled, including those given back.
  std::uint64_t signaled() const { return signaled_; }

 private:
  std::uint32_t slots_;
  std::uint32_t every_;
  std::uint32_t first_;
  std::uint32_t unsignaled_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t signaled_ = 0;
};

// The entries of one completion queue, shared by its queue pairs. Before a queue pair is created,
// the caller reserves an entry for each request that it may have outstanding: send slots and
// receives. A shared receive queue reserves its length once.
class CompletionBudget {
 public:
  // `full`: the error text of reserve() when too few entries are free; static, a sentence without a
  // full stop.
  explicit CompletionBudget(
      std::uint32_t entries,
      const char* full =
          "the completion queue has no room for what this queue pair may have "
          "outstanding: raise its entries or lower send_length and receive_length")
      : entries_(entries), full_(full) {}
  CompletionBudget(const CompletionBudget&) = delete;
  CompletionBudget& operator=(const CompletionBudget&) = delete;
  ~CompletionBudget() { RKV_CHECK(reserved() == 0, "a budget ends before its reservations"); }

  // Reserved entries; the destructor returns them. REQUIRES: all completions they were reserved for
  // have been polled before destruction.
  class Reservation {
   public:
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), entries_(other.entries_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      Reservation taken(std::move(other));  // releases the old reservation now
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
  // Reserves `entries`. kBusy if fewer are free: raise the queue's entries or lower the outstanding
  // work. Relaxed order suffices: the count alone is shared here, and the data it guards is
  // published by other means.
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
