// LagMeter: the age of the oldest write that a mark has not reached, such as the sync mark. Writes
// carry no time. Instead the owner calls note() ten times a second to record how far writing has
// come. age() finds the first note that the mark has not passed. So an age is too low by at most
// the time between two notes.
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

namespace rkv {

class LagMeter {
 public:
  // Beyond this many notes, every second note is dropped. Ages are then too low by up to twice as
  // much.
  static constexpr std::size_t kMost = 1024;

  // `begun`: no write so far has a sequence above it.
  void note(Nanos now, std::uint64_t begun, std::uint64_t mark) {
    forget(mark);
    if (begun <= mark || (!notes_.empty() && notes_.back().begun >= begun)) return;
    notes_.push_back({.at = now, .begun = begun});
    if (notes_.size() > kMost) thin_out();
  }
  // Returns 0 if every noted write is at or below the mark.
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
  // Keeps the oldest note: age() returns its age.
  void thin_out() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < notes_.size(); i += 2)
      notes_[kept++] = notes_[i];
    notes_.resize(kept);
  }

  std::deque<Note> notes_;
};

}  // namespace rkv
