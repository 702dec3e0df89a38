#include "server/background/store_maintenance.h"

#include <utility>

#include "common/log.h"

namespace rkv::server {

StoreMaintenance::StoreMaintenance(Parts parts)
    : parts_(std::move(parts)),
      growing_(
          "rkv-grow", parts_.clock, [this] { return grow(); }, parts_.make_background()),
      expiring_(
          "rkv-expire", parts_.clock, [this] { return parts_.store.expirer().expire(); },
          parts_.make_background()),
      evicting_("rkv-evict", parts_.clock, [this] { return evict(); }, parts_.make_background()) {
  parts_.store.growth().on_low_memory([this] { growing_.call(); });
  parts_.store.expirer().on_earlier_expiry([this] { expiring_.call(); });
  if (evicts()) parts_.store.evictor().on_no_room([this] { evicting_.call(); });
}

// Records that expired while the server was down are not loaded, so no thread removes them.
void StoreMaintenance::start() {
  growing_.start();
  expiring_.start();
  if (evicts()) evicting_.start();
}

void StoreMaintenance::stop() {
  evicting_.stop();
  parts_.store.evictor().give_up_runs();
  growing_.stop();
  expiring_.stop();
}

// Growing has a thread of its own: registering an extent takes longer than any operation may. If no
// memory is available (the limit on locked memory, a full machine), grow() logs it once and retries
// every second.
Nanos StoreMaintenance::grow() {
  constexpr Nanos kRetry = 1000 * kNanosPerMs;
  constexpr Nanos kUntilCalled = 3600 * 1000 * kNanosPerMs;
  const auto grown = parts_.store.growth().grow();
  if (!grown && !logged_that_it_cannot_grow_) {
    log_warn(EventName("cannot_grow"), "the store cannot grow: {}", to_string(grown.error()));
  }
  logged_that_it_cannot_grow_ = !grown;
  return parts_.clock.now() + (grown ? kUntilCalled : kRetry);
}

// Once memory cannot grow any more, the evictor runs 100 times a second so that operations find
// free memory.
Nanos StoreMaintenance::evict() {
  constexpr Nanos kPeriod = 10 * kNanosPerMs;
  constexpr Nanos kWhileItGrows = 1000 * kNanosPerMs;
  Evictor& evictor = parts_.store.evictor();
  if (!evictor.is_needed()) return parts_.clock.now() + kWhileItGrows;
  if (evictor.moves()) {  // it runs only when an operation calls, and to give up runs that nobody
                          // has fetched
    (void)evictor.evict_for_space();
    return parts_.clock.now() + kWhileItGrows;
  }
  if (evictor.evict_for_space()) {
    if (parts_.room_made) parts_.room_made();
  } else {
    // Records that are not synced cannot be evicted. If only that prevents eviction, sync now.
    if (evictor.evicts_after_sync()) parts_.request_sync();
    if (evictor.has_nothing_to_evict() && !evictor.drops())
      return parts_.clock.now() + kWhileItGrows;
  }
  return parts_.clock.now() + kPeriod;
}

}  // namespace rkv::server
