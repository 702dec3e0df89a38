// RunMaker: adjacent free units for a long record. Records that the evictor drops, or clients
// delete, leave holes all over the extents, and none of them may be long enough, however much is
// free. So all records of one stretch are dropped (in a cache) or moved (in a store that keeps what
// it has), and what becomes free is kept for the writes that asked. Of a few stretches the one is
// taken that costs least. The cost is that of the records there, whatever else the index has.
//
// Invariants:
//  RUN-1  The blocks kept are allocated, and no slot leads to them. take(), or give_up(), passes
//      each of them on.
//
// Thread safety: make() and give_up(): one thread. ask(), take() and is_hopeless(): any thread,
// also under a pair's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/store/record_table.h"
#include "server/store/stretch_clearer.h"

namespace rkv::server {

class RunMaker {
 public:
  // `move`: empty in a cache, which drops records instead. `table` and `clock` must outlive the
  // object.
  RunMaker(RecordTable& table, const Clock& clock, StretchClearer::Move move = {})
      : table_(table), clock_(clock), clearer_(table, std::move(move)) {}

  bool drops() const { return clearer_.drops(); }

  // Says that an operation found no block of so many units. Ignored below kLeastUnits: records so
  // short are of few sizes, and leave holes for each other.
  static constexpr std::uint64_t kLeastUnits = 17;
  void ask(std::uint64_t units);
  // The shortest that was asked for since the last make(); 0: none.
  std::uint64_t shortest_asked() const { return shortest_asked_.load(std::memory_order_relaxed); }
  // Returns a block of so many units, if such blocks are kept, or somewhat longer ones.
  std::optional<Location> take(std::uint64_t units);
  // Whether a block of so many units was sought a moment ago, where records that may not go lie in
  // each stretch, or no record can be moved. It ends a second after the last search for this length
  // or a shorter one, however often somebody asks meanwhile. A short block that somebody is about
  // to write, or to free, is not a reason. A block that is long, or half as long as asked, is one
  // in any case.
  bool is_hopeless(std::uint64_t units) const;

  // Keeps blocks of what was asked for: of the longest and of the shortest in turn, so that neither
  // waits while the other is asked for again and again. If no hole is long enough, clears a
  // stretch. Tries a few, since values on their way in may lie there; the next call tries others.
  // Returns whether anything was dropped or is kept. `pause` is called now and then, while no lock
  // is held.
  bool make(const std::function<void()>& pause);
  // Frees blocks that nobody has come for.
  void give_up();
  // Records that were looked at to make runs, since the start. Any thread.
  std::uint64_t records_visited() const { return clearer_.records_visited(); }

 private:
  static constexpr std::size_t kMostKept = 32;
  struct Kept {
    std::array<Location, kMostKept> blocks{};
    std::size_t count = 0;
    std::uint64_t units = 0;  // of each
    Nanos since = 0;
    bool suits(std::uint64_t asked) const { return asked <= units && asked >= units / 2; }
  };
  std::uint64_t take_asked(std::uint64_t* other);
  bool keep_free_block(std::uint64_t units);
  bool clear_stretch(std::uint64_t units, std::size_t count, const std::function<void()>& pause);
  std::optional<Stretch> next_stretch(std::uint64_t units, std::size_t count);
  std::optional<Stretch> cheapest_stretch(std::uint64_t units, std::size_t count, bool costly_too,
                                          const std::function<void()>& pause);
  void found_useless(std::uint64_t units);
  void set_hopeless(std::uint64_t units);
  std::uint64_t capacity_units() const;

  RecordTable& table_;
  const Clock& clock_;
  std::atomic<std::uint64_t> longest_asked_{0};
  std::atomic<std::uint64_t> shortest_asked_{0};
  std::atomic<std::uint64_t> hopeless_units_{~std::uint64_t{0}};  // so many and more
  std::atomic<Nanos> hopeless_until_{0};
  Mutex kept_mutex_;
  Kept kept_ RKV_GUARDED_BY(kept_mutex_);
  // Used by the thread that makes runs: whose turn it is, whether the present make() met a stretch
  // that may be cleared in a moment, and where the last stretch ended. Also the units of the
  // stretches of `useless_length_`, each for one block, that were useless in a row.
  bool serves_shortest_ = true;  // the longest goes first
  bool may_pass_ = false;
  // Lengths of so many units and more are not sought again before: what lay in the way then passes.
  std::uint64_t passing_units_ = 0;
  Nanos passing_until_ = 0;
  StretchClearer clearer_;
  std::uint32_t extent_ = 0;
  std::uint32_t unit_ = 0;
  std::uint64_t useless_length_ = 0;
  std::uint64_t useless_units_ = 0;
};

}  // namespace rkv::server
