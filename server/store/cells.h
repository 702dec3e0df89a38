// Cells: the cells of one network. A cell is a word that clients of the network change by RDMA
// atomics: the number of a one-sided counter (layout.h). Cells also records which counter owns each
// cell.
//
// Invariants:
//  CELL-1  The processor stores to no cell, because the adapter's atomics would not see the store.
//      The server changes cells by atomics of the same network. It uses only numbers that an atomic
//      returned. The one plain load, look(), says which cells have changed. It comes after
//      catch_up(), an atomic of the server through the same adapter. The completion of that atomic
//      is written after everything that the adapter wrote to ordinary memory before. So a sweep
//      sees every result that a client received before the sweep began.
//  CELL-2  A cell is taken once and belongs to one counter. Cells are never given back.
//  CELL-3  A cell is sealed before the record that names it is superseded, and before its last
//      number is used. After the seal no client atomic changes a counter.
//  CELL-4  A client operation whose result shows no seal was applied to the counter, while the
//      counter existed.
//
// Thread safety: take, taken, open, own, owner, changed, catch_up: any thread. All other operations
// that name a cell: under the lock of the counter's pair.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "common/bytes.h"
#include "common/layout.h"
#include "rdma/transport/transport.h"

namespace rkv::server {

class Cells {
 public:
  // Uses `count` words from the start of `region`, all zero. `region` must outlive the object.
  // kOutOfMemory. The memory beside each word is touched only as far as cells are taken.
  static Result<std::unique_ptr<Cells>> create(rdma::Transport& transport,
                                               const rdma::Region& region, std::uint32_t count);
  // The same with atomics that were created for the region before.
  static Result<std::unique_ptr<Cells>> create(std::unique_ptr<rdma::Atomics> atomics,
                                               const rdma::Region& region, std::uint32_t count);

  // Returns a cell that was never used, or nothing if all are taken.
  std::optional<std::uint32_t> take();
  std::uint32_t taken() const;  // number of cells ever taken
  std::uint32_t count() const { return count_; }
  std::uint32_t open() const { return open_.load(std::memory_order_relaxed); }

  // All of these block for a round trip inside the device. kInternal: the device failed, and the
  // operation may or may not have happened, unless the comment says otherwise.

  // Begins a counter in a cell just taken. On false or kInternal the cell cannot be used; take
  // another. False: the cell was not 0, because a client added to a cell that the server never
  // named to it.
  Result<bool> begin(std::uint32_t cell, std::int64_t number);
  // Returns the number; of an ended counter, the last number.
  Result<std::int64_t> read(std::uint32_t cell);
  // Returns the number after the addition. Nothing: the counter had ended, and the addition has no
  // effect. REQUIRES: ended() is false, |summand| <= kMaxCellSummand.
  Result<std::optional<std::int64_t>> add(std::uint32_t cell, std::int64_t summand);
  // Returns the number before the swap. Nothing: as for add(). REQUIRES: ended() is false, both
  // numbers within +-kMaxCellNumber.
  Result<std::optional<std::int64_t>> swap(std::uint32_t cell, std::int64_t expected,
                                           std::int64_t desired);
  // Seals the cell, unless it is sealed already, and returns the last number. After kInternal the
  // cell may be sealed; the counter is in doubt until another of these calls succeeds.
  Result<std::int64_t> end(std::uint32_t cell);
  bool ended(std::uint32_t cell) const { return cells_[cell].knows == Knows::kLast; }
  // Takes the last number out of the word, which keeps the seal. The number stays known. After
  // kInternal call it again. REQUIRES: ended().
  Status wipe(std::uint32_t cell);
  bool in_doubt(std::uint32_t cell) const { return cells_[cell].in_doubt; }

  // ---- sweeping. One thread, unless the comment says otherwise.

  struct Owner {
    KeyHash hash;
    Version version;
    std::size_t key_length = 0;  // to reserve space in the log before the record is found
  };
  // Makes look() and changed() see every result that a client has received. Blocks for one round
  // trip inside the device.
  Status catch_up();
  // Records that the live record of `owner` names the cell. Any thread, no lock.
  void own(std::uint32_t cell, const Owner& owner);
  // Records that no record names the cell, or none any more.
  void disown(std::uint32_t cell) { store_word(&cells_[cell].key_length, 0); }
  std::optional<Owner> owner(std::uint32_t cell) const;
  // The owner, if the number may have changed since saved(). Without a lock it only decides whether
  // a sweep is worthwhile.
  std::optional<Owner> changed(std::uint32_t cell) const;
  // Records that the number was logged. An atomic returned that number after look() had returned
  // `looked`.
  void saved(std::uint32_t cell, std::uint64_t looked) {
    store_word(&cells_[cell].saved_word, looked);
  }
  std::uint64_t look(std::uint32_t cell) const { return load_word(&words_[cell]); }

 private:
  enum class Knows : std::uint8_t {
    kNothing,
    kSealing,  // `number` is the last number if an unanswered swap set the seal
    kLast,     // `number` is the last number: the counter has ended
  };
  // Starts as zeros; no constructor runs.
  struct Cell {
    std::uint64_t key_length;  // atomic; 0: no owner. Stored after the owner
    std::uint64_t hash;
    Version version;
    std::uint64_t saved_word;  // atomic
    std::int64_t number;       // meaning given by `knows`
    Knows knows;
    bool in_doubt;  // a seal was requested, and its answer is missing
    bool wiped;     // the word does not have the last number
  };
  static_assert(sizeof(Cell) == 48);  // server/MANUAL.md
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

}  // namespace rkv::server
