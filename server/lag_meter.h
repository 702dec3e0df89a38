// How long ago what a mark has not reached yet was begun: the age of the oldest write that is not
// on its way's next station. Nobody stamps writes with a time; instead somebody notes now and then
// (note(), ten times a second) how far writing had come, and age() looks for the first note that
// the mark has not passed. So an age is too low by at most the time between two notes.
//
//   LagMeter synced;
//   synced.note(now, log.last_begun(), log.sync_mark());
//   ... synced.age(now, log.sync_mark());
//
// Thread safety: one owner.
#pragma once

#include <cstdint>
#include <deque>

#include "common/clock.h"

namespace rkv::server {

class LagMeter {
 public:
  // Notes beyond this are thinned out: every second one goes, and ages are too low by twice as much
  // as before.
  static constexpr std::size_t kMost = 1024;

  // `begun`: no write begun so far has a sequence above it.
  void note(Nanos now, std::uint64_t begun, std::uint64_t mark) {
    forget(mark);
    if (begun <= mark || (!notes_.empty() && notes_.back().begun >= begun)) return;
    notes_.push_back({.at = now, .begun = begun});
    if (notes_.size() > kMost) thin_out();
  }
  // 0: nothing that was noted is behind the mark.
  Nanos age(Nanos now, std::uint64_t mark) {
    forget(mark);
    return notes_.empty() ? 0 : now - notes_.front().at;
  }

 private:
  struct Note {
    Nanos at;
    std::uint64_t begun;
  };
  void forget(std::uint64_t mark) {
    while (!notes_.empty() && notes_.front().begun <= mark)
      notes_.pop_front();
  }
  // The oldest stays: it is what age() says.
  void thin_out() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < notes_.size(); i += 2)
      notes_[kept++] = notes_[i];
    notes_.resize(kept);
  }

  std::deque<Note> notes_;
};

}  // namespace rkv::server
