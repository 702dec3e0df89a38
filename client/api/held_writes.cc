#include "client/api/held_writes.h"

#include <algorithm>

namespace rkv::client {

void HeldWrites::note(std::uint64_t epoch, Version version, Version mark) {
  const MutexLock lock(mutex_);
  ++now_.notes;
  if (epoch != now_.epoch) {
    if (now_.holds()) now_.lost_at = now_.notes;
    now_.version = {};
    now_.cell_at = 0;
    now_.epoch = epoch;
  }
  if (version.bits == 0) {
    now_.cell_at = now_.notes;
  } else {
    now_.version = std::max(now_.version, version);
  }
  if (now_.version <= mark) now_.version = {};
}

HeldWrites::State HeldWrites::state() {
  const MutexLock lock(mutex_);
  return now_;
}

bool HeldWrites::flushed(const State& before, std::uint64_t epoch, Version version) {
  const MutexLock lock(mutex_);
  const bool is_of_other = before.holds() && before.epoch != epoch;
  if (now_.epoch == before.epoch) {
    if (now_.version <= (is_of_other ? before.version : version)) now_.version = {};
    if (now_.cell_at <= before.notes) now_.cell_at = 0;
  }
  if (now_.lost_at <= before.notes) now_.lost_at = 0;
  return before.lost_at != 0 || is_of_other;
}

}  // namespace rkv::client
