// Keeps a shared receive queue from running empty: counts its receives, refills it when it falls
// below a threshold, and arms the device's limit event as a second warning.
//
//   SrqRefill keeper(srq, {.low = 64, .full = 256});
//   RKV_RETURN_IF_ERROR(keeper.refill(supply));            // initial fill
//   keeper.consumed(receives_polled);                      // in the poll loop
//   if (keeper.is_low()) RKV_RETURN_IF_ERROR(keeper.refill(supply));
//   if (keeper.is_mine(event)) RKV_RETURN_IF_ERROR(keeper.refill(supply));   // asynchronous event
//
// Neither warning alone is enough: a loop that is busy elsewhere does not count, and the event is
// raised once and late under load. `supply` is called with a span of ReceiveRequest, fills it from
// its front, and returns the number filled; 0 if no buffer is available. Those buffers then belong
// to SrqRefill. If the device refuses some, it keeps them and posts them first at the next
// refill(), so none is lost or posted twice. held() returns them, for shutdown.
//
// Thread safety: one thread. Source: ibv_modify_srq(3).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "rkv/check.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/srq.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct SrqRefillOptions {
  std::uint32_t low = 0;   // refill below this many receives; 0: a quarter of `full`
  std::uint32_t full = 0;  // refill up to this many receives; 0: the queue's length
};

class SrqRefill {
 public:
  // `queue` must outlive this.
  SrqRefill(SharedReceiveQueue& queue, const SrqRefillOptions& options)
      : queue_(queue),
        full_(options.full == 0 ? queue.length() : std::min(options.full, queue.length())),
        low_(options.low == 0 ? full_ / 4 : std::min(options.low, full_)) {}
  SrqRefill(const SrqRefill&) = delete;
  SrqRefill& operator=(const SrqRefill&) = delete;

  // Records that `count` receives have completed and left the queue.
  void consumed(std::uint32_t count) {
    RKV_CHECK(count <= posted_, "more receives have completed than were posted");
    posted_ -= count;
  }
  bool is_low() const { return posted_ < low_; }
  bool is_mine(const AsyncEvent& event) {
    const bool mine = event.type == IBV_EVENT_SRQ_LIMIT_REACHED && event.object == queue_.raw();
    if (mine) armed_ = false;
    return mine;
  }
  // Posts until the queue is full or `supply` has none, then arms the limit. A limit armed while
  // the queue is below it fires at once or at the next receive, hence this order. If too few
  // buffers are supplied the limit stays unarmed: call again when buffers are available. Returns
  // the number posted; after an error posted() has the count so far.
  template <class Supply>
  Result<std::uint32_t> refill(Supply&& supply) {
    const std::uint32_t before = posted_;
    while (posted_ < full_) {
      if (held_.empty()) {
        const std::size_t room = std::min<std::size_t>(requests_.size(), full_ - posted_);
        const std::size_t filled = supply(std::span(requests_).first(room));
        RKV_CHECK(filled <= room, "a supply of receives filled more than it was given");
        if (filled == 0) break;
        held_ = std::span(requests_).first(filled);
      }
      std::size_t done = 0;
      const Status posted = queue_.post(held_, &done);
      held_ = held_.subspan(done);
      posted_ += static_cast<std::uint32_t>(done);
      RKV_RETURN_IF_ERROR(posted);
    }
    if (!armed_ && low_ != 0 && posted_ >= low_) {
      RKV_RETURN_IF_ERROR(queue_.arm_limit(low_));
      armed_ = true;
    }
    return posted_ - before;
  }

  std::uint32_t posted() const { return posted_; }
  // Buffers that `supply` filled in and the device has refused so far.
  std::span<const ReceiveRequest> held() const { return held_; }
  std::uint32_t low() const { return low_; }
  bool armed() const { return armed_; }  // last known state; cleared by is_mine()

 private:
  SharedReceiveQueue& queue_;
  std::uint32_t full_;
  std::uint32_t low_;
  std::uint32_t posted_ = 0;
  bool armed_ = false;
  std::array<ReceiveRequest, 32> requests_;
  std::span<const ReceiveRequest> held_;  // in requests_
};

}  // namespace rkv::rdma
