// Expiries: a heap of notes {when, hash, version} about records that expire. A note is a hint: the
// caller compares it with the record before acting. A note whose record has been replaced or
// removed has no effect.
//
// The size is bounded by drop_stale(), which keeps only notes whose record is still there. It is
// due when there are more than twice as many notes as these records, plus a constant.
//
// Thread safety: all operations from any thread, except that only one may call drop_stale().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

struct Expiry {
  std::uint64_t at_ms = 0;  // Unix milliseconds
  std::uint64_t hash = 0;
  Version version;
};

class Expiries {
 public:
  // Adds a note. Returns true if no other record expires earlier. Returns false if there is no
  // memory for the note: the record then expires at the next start of the server.
  bool add(const Expiry& expiry);
  // Removes and returns the earliest note, if it is due.
  std::optional<Expiry> take_due(std::uint64_t now_ms);
  std::optional<std::uint64_t> earliest_ms() const;
  std::size_t size() const;

  // Drops the notes for which `is_stale` returns true. Calls it without a lock, so that it may take
  // locks. Keeps notes that are added meanwhile. One thread.
  template <class IsStale>
  void drop_stale(IsStale is_stale) {
    std::vector<Expiry> all = take_all();
    std::erase_if(all, is_stale);
    put_back(all);
  }

 private:
  std::vector<Expiry> take_all();
  void put_back(const std::vector<Expiry>& notes);

  mutable Mutex mutex_;
  std::vector<Expiry> heap_ RKV_GUARDED_BY(mutex_);  // the earliest first
};

}  // namespace rkv::server
