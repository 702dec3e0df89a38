// Which records expire when: a heap of notes, each {when, hash, version}. A note is a hint: it is
// compared with the record before anything is done, and one whose record has been replaced or
// removed meanwhile means nothing.
//
// Bounded: drop_stale() leaves only notes whose record is still there; it is due when there are
// more than twice as many notes as such records and some.
//
// Thread safety: all operations from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "common/layout.h"

namespace rkv::server {

struct Expiry {
  std::uint64_t at_ms = 0;  // Unix milliseconds
  std::uint64_t hash = 0;
  Version version;
};

class Expiries {
 public:
  // True when no other expires earlier. Without memory for it the record is not noted, and false:
  // it then expires at the next start of the server.
  bool add(const Expiry& expiry);
  // The earliest, if it is due.
  std::optional<Expiry> take_due(std::uint64_t now_ms);
  std::optional<std::uint64_t> earliest_ms() const;
  std::size_t size() const;

  // Asks without a lock, so that `is_stale` may take others. One thread; notes added meanwhile
  // stay.
  template <class IsStale>
  void drop_stale(IsStale is_stale) {
    std::vector<Expiry> all = take_all();
    std::erase_if(all, is_stale);
    put_back(all);
  }

 private:
  std::vector<Expiry> take_all();
  void put_back(const std::vector<Expiry>& notes);

  mutable std::mutex mutex_;
  std::vector<Expiry> heap_;  // the earliest first
};

}  // namespace rkv::server
