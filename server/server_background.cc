// Server: background work. Growing, removing expired records, evicting and following the wall
// clock.
#include "common/log.h"
#include "server/server.h"

namespace rkv::server {

// Growing has a thread of its own: registering an extent takes longer than any operation may.
void Server::start_growing() {
  grower_ = std::make_unique<StoreMaintenance>("rkv-grow", clock_, [this] { return grow(); });
  store_->growth().on_low_memory([this] { grower_->call(); });
  grower_->start();
}

// If no memory is available (the limit on locked memory, a full machine), grow() logs it once and
// retries every second.
Nanos Server::grow() {
  constexpr Nanos kRetry = 1000 * kNanosPerMs;
  constexpr Nanos kUntilCalled = 3600 * 1000 * kNanosPerMs;
  const auto grown = store_->growth().grow();
  if (!grown && !told_that_it_cannot_grow_) {
    log_warn(EventName("cannot_grow"), "the store cannot grow: {}", to_string(grown.error()));
  }
  told_that_it_cannot_grow_ = !grown;
  return clock_.now() + (grown ? kUntilCalled : kRetry);
}

// Records that expired while the server was down are not loaded, so the store need not remove them.
void Server::start_expiring() {
  expirer_ = std::make_unique<StoreMaintenance>("rkv-expire", clock_,
                                                [this] { return store_->expirer().expire(); });
  store_->expirer().on_earlier_expiry([this] { expirer_->call(); });
  expirer_->start();
}

// Once memory cannot grow any more, the evictor runs 100 times a second so that operations find
// free memory.
void Server::start_evicting() {
  if (engine_ == nullptr) return;
  evictor_ =
      std::make_unique<StoreMaintenance>("rkv-evict", clock_, [this] { return evict_for_space(); });
  store_->evictor().on_no_room([this] { evictor_->call(); });
  evictor_->start();
}

Nanos Server::evict_for_space() {
  constexpr Nanos kPeriod = 10 * kNanosPerMs;
  constexpr Nanos kWhileItGrows = 1000 * kNanosPerMs;
  if (!store_->evictor().is_needed()) return clock_.now() + kWhileItGrows;
  if (store_->evictor().evict_for_space()) {
    disk_fetcher_->room_made();
  } else {
    // Records that are not synced cannot be evicted. If only that prevents eviction, sync now.
    if (store_->evictor().evicts_after_sync()) applier_->request_sync(log_->last_begun());
    if (store_->evictor().has_nothing_to_evict()) return clock_.now() + kWhileItGrows;
  }
  return clock_.now() + kPeriod;
}

void Server::follow_wall_clock() {
  if (const std::int64_t step = wall_->follow(WallClock::look(clock_)); step != 0) {
    log_warn(EventName("clock_set"),
             "the wall clock was adjusted by {} s: keys expire by the new time",
             field("seconds", static_cast<double>(step) / 1e3));
  }
  store_->expiry_clock().set(wall_->unix_ms_at_0());
}

}  // namespace rkv::server
