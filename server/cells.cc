#include "server/cells.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::server {

namespace {
// Of an unsealed cell. Clients may have taken it anywhere: no range is asserted.
std::int64_t number_in(std::uint64_t word) {
  return static_cast<std::int64_t>(word - kCellBias);
}
}  // namespace

Result<std::unique_ptr<Cells>> Cells::create(rdma::Transport& transport, const rdma::Region& region,
                                             std::uint32_t count) {
  RKV_CHECK(region.bytes().size() >= count * sizeof(std::uint64_t), "a region short of cells");
  RKV_ASSIGN_OR_RETURN(auto atomics, transport.create_atomics(region));
  auto* words = reinterpret_cast<std::uint64_t*>(region.bytes().data());
  return std::unique_ptr<Cells>(new Cells(words, count, std::move(atomics)));
}

std::optional<std::uint32_t> Cells::take() {
  const std::uint32_t cell = taken_.load(std::memory_order_relaxed) < count_
                                 ? taken_.fetch_add(1, std::memory_order_relaxed)
                                 : count_;
  if (cell >= count_) return std::nullopt;
  return cell;
}

std::uint32_t Cells::taken() const {
  return std::min(taken_.load(std::memory_order_acquire), count_);
}

Result<bool> Cells::begin(std::uint32_t cell, std::int64_t number) {
  RKV_ASSIGN_OR_RETURN(const std::uint64_t before,
                       atomics_->fetch_add(&words_[cell], cell_word(number)));
  if (before != 0) return false;
  saved(cell, cell_word(number));
  open_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Cells::own(std::uint32_t cell, const Owner& owner) {
  cells_[cell].owner = owner;
  cells_[cell].owned.store(true, std::memory_order_release);
}

Result<std::int64_t> Cells::read(std::uint32_t cell) {
  if (const auto& last = cells_[cell].last) return *last;
  RKV_ASSIGN_OR_RETURN(const std::uint64_t word, atomics_->fetch_add(&words_[cell], 0));
  return number_in(word);
}

Result<std::int64_t> Cells::add(std::uint32_t cell, std::int64_t summand) {
  RKV_ASSIGN_OR_RETURN(const std::uint64_t word,
                       atomics_->fetch_add(&words_[cell], static_cast<std::uint64_t>(summand)));
  return number_in(word) + summand;
}

Result<std::int64_t> Cells::swap(std::uint32_t cell, std::int64_t expected, std::int64_t desired) {
  RKV_ASSIGN_OR_RETURN(
      const std::uint64_t word,
      atomics_->compare_swap(&words_[cell], cell_word(expected), cell_word(desired)));
  return number_in(word);
}

Result<std::int64_t> Cells::end(std::uint32_t cell) {
  Cell& own = cells_[cell];
  if (own.last) return *own.last;
  // Nobody but us sets the seal, and only here: if it is there, an earlier call that failed has set
  // it. What clients have added since they then ask for again: their results were void.
  RKV_ASSIGN_OR_RETURN(std::uint64_t word, atomics_->fetch_add(&words_[cell], 0));
  if ((word & kCellSeal) == 0) {
    RKV_ASSIGN_OR_RETURN(word, atomics_->fetch_add(&words_[cell], kCellSeal));
  } else {
    word -= kCellSeal;
  }
  own.last = number_in(word);
  open_.fetch_sub(1, std::memory_order_relaxed);
  return *own.last;
}

std::optional<Cells::Owner> Cells::owner(std::uint32_t cell) const {
  const Cell& own = cells_[cell];
  if (!own.owned.load(std::memory_order_acquire)) return std::nullopt;
  return own.owner;
}

std::optional<Cells::Owner> Cells::changed(std::uint32_t cell) const {
  const std::uint64_t saved = cells_[cell].saved_word.load(std::memory_order_relaxed);
  return look(cell) == saved ? std::nullopt : owner(cell);
}

}  // namespace rkv::server
