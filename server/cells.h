// The cells of one network: words that its clients change by RDMA atomics, each the number of a
// one-sided counter (layout.h), and whose number each is.
//
// Invariants:
//  C1  The processor stores to no cell: the adapter's atomics would not see it. The server changes
//      cells by atomics of the same network, and what it takes for a number an atomic told. The one
//      plain load (look) says which cells have changed, and comes after catch_up(): an atomic of
//      our own through the same adapter, whose completion is written behind what the adapter wrote
//      before, as are all its writes to ordinary memory. So what any client was told before a sweep
//      began is seen by it.
//  C2  A cell is taken once and belongs to one counter; nothing is ever given back.
//  C3  A cell is sealed before the record that names it is superseded, or before its number is
//      taken for the last one. After that no atomic of a client changes a counter.
//  C4  An operation of a client whose result shows no seal has been applied to the counter, while
//      the counter existed.
//
// Thread safety: take, taken, open, own, owner, changed, catch_up: any thread. What else names a
// cell: under the pair's lock of its counter, apart from changed(), which only tells whether a
// sweep is worth while.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "common/bytes.h"
#include "common/layout.h"
#include "rdma/transport.h"

namespace rkv::server {

class Cells {
 public:
  // `count` words from the start of `region`, all zero, which must outlive this. kOutOfMemory. What
  // is kept beside each word is touched only as far as cells are taken.
  static Result<std::unique_ptr<Cells>> create(rdma::Transport& transport,
                                               const rdma::Region& region, std::uint32_t count);
  // With atomics made for the region before.
  static Result<std::unique_ptr<Cells>> create(std::unique_ptr<rdma::Atomics> atomics,
                                               const rdma::Region& region, std::uint32_t count);

  // A cell that nobody has had, or nothing: all are taken.
  std::optional<std::uint32_t> take();
  std::uint32_t taken() const;  // cells below it have been taken
  std::uint32_t count() const { return count_; }
  std::uint32_t open() const { return open_.load(std::memory_order_relaxed); }

  // All of these block for a round trip inside the device. kInternal: the device failed; what was
  // asked for may have happened, unless it is said otherwise.

  // Begins a counter in a cell just taken. False, or kInternal: it cannot be used, take another.
  // (Not 0: some client added to a cell that it was never told of.)
  Result<bool> begin(std::uint32_t cell, std::int64_t number);
  // The number, of an ended counter the last one.
  Result<std::int64_t> read(std::uint32_t cell);
  // REQUIRES: not ended, |summand| <= kMaxCellSummand. What the number is now; nothing: the counter
  // was found to have ended, and nothing was added.
  Result<std::optional<std::int64_t>> add(std::uint32_t cell, std::int64_t summand);
  // REQUIRES: not ended, numbers within +-kMaxCellNumber. What the number was; nothing: as above.
  Result<std::optional<std::int64_t>> swap(std::uint32_t cell, std::int64_t expected,
                                           std::int64_t desired);
  // Seals the cell, if it is not sealed yet: the last number. After kInternal it may be sealed, and
  // the counter is in doubt until another call (of any of these) tells.
  Result<std::int64_t> end(std::uint32_t cell);
  bool ended(std::uint32_t cell) const { return cells_[cell].knows == Knows::kLast; }
  bool in_doubt(std::uint32_t cell) const { return cells_[cell].in_doubt; }

  // ---- sweeping. One thread.

  struct Owner {
    KeyHash hash;
    Version version;
    std::size_t key_length = 0;  // so that room in the log can be had before the record is found
  };
  // After this look() and changed() see whatever clients have been told. Blocks as above, once.
  Status catch_up();
  // The record that names the cell is there. Any thread, no lock.
  void own(std::uint32_t cell, const Owner& owner);
  // It is not, or no longer.
  void disown(std::uint32_t cell) { store_word(&cells_[cell].key_length, 0); }
  std::optional<Owner> owner(std::uint32_t cell) const;
  // The same, if the number has perhaps changed since it was saved.
  std::optional<Owner> changed(std::uint32_t cell) const;
  // What the number is was logged, as an atomic told it after look().
  void saved(std::uint32_t cell, std::uint64_t looked) {
    store_word(&cells_[cell].saved_word, looked);
  }
  std::uint64_t look(std::uint32_t cell) const { return load_word(&words_[cell]); }

 private:
  enum class Knows : std::uint8_t {
    kNothing,
    kSealing,  // what the last number is if a swap that set the seal was mute
    kLast,     // the last number: the counter has ended
  };
  // Begins as zeros, without being constructed.
  struct Cell {
    std::uint64_t key_length;  // atomic; 0: not owned. Written after the owner's
    std::uint64_t hash;
    Version version;
    std::uint64_t saved_word;  // atomic
    std::int64_t number;       // as `knows` says
    Knows knows;
    bool in_doubt;  // a seal was asked for and not answered
  };
  static_assert(sizeof(Cell) == 48);  // README.md
  struct Free {
    void operator()(Cell* cells) const { std::free(cells); }
  };
  using Table = std::unique_ptr<Cell[], Free>;

  Cells(std::uint64_t* words, std::uint32_t count, std::unique_ptr<rdma::Atomics> atomics,
        Table cells)
      : words_(words), count_(count), atomics_(std::move(atomics)), cells_(std::move(cells)) {}

  bool settle(Cell& cell, std::uint64_t word);

  std::uint64_t* const words_;
  const std::uint32_t count_;
  const std::unique_ptr<rdma::Atomics> atomics_;
  const Table cells_;
  std::atomic<std::uint32_t> taken_{0};
  std::atomic<std::uint32_t> open_{0};
};

// Where a record says that its counter is.
struct CellReference {
  std::uint32_t network = 0;
  std::uint32_t cell = 0;
};

}  // namespace rkv::server
