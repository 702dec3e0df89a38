#include "server/cells.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::server {

namespace {
// A counter that others change all the time may move between the look and the swap.
constexpr int kSealTries = 8;

// Of an unsealed cell. Clients may have taken it anywhere: no range is asserted.
std::int64_t number_in(std::uint64_t word) {
  return static_cast<std::int64_t>(word - kCellBias);
}
}  // namespace

Result<std::unique_ptr<Cells>> Cells::create(rdma::Transport& transport, const rdma::Region& region,
                                             std::uint32_t count) {
  RKV_ASSIGN_OR_RETURN(auto atomics, transport.create_atomics(region));
  return create(std::move(atomics), region, count);
}

Result<std::unique_ptr<Cells>> Cells::create(std::unique_ptr<rdma::Atomics> atomics,
                                             const rdma::Region& region, std::uint32_t count) {
  RKV_CHECK(region.bytes().size() >= count * sizeof(std::uint64_t), "a region short of cells");
  auto* words = reinterpret_cast<std::uint64_t*>(region.bytes().data());
  // Zeros of the system, which take no memory before they are touched.
  Table cells(static_cast<Cell*>(std::calloc(count, sizeof(Cell))));
  if (cells == nullptr) {
    return fail(Code::kOutOfMemory, "there is not so much memory for them: ask for fewer");
  }
  return std::unique_ptr<Cells>(new Cells(words, count, std::move(atomics), std::move(cells)));
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
  Cell& own = cells_[cell];
  own.hash = owner.hash.bits();
  own.version = owner.version;
  store_word(&own.key_length, owner.key_length, std::memory_order_release);
}

// Of any cell, even one that nobody has: 0 is added.
Status Cells::catch_up() {
  RKV_RETURN_IF_ERROR(atomics_->fetch_add(&words_[0], 0));
  return {};
}

// Whatever atomic told the word: whether the counter has ended. A seal that is there without our
// knowledge was set by a call that failed, or by a client that keeps to no rule.
bool Cells::settle(Cell& cell, std::uint64_t word) {
  cell.in_doubt = false;
  const Knows knew = std::exchange(cell.knows, Knows::kNothing);
  if ((word & kCellSeal) == 0) return false;
  // Not by the word: what was added to it since is void, and asked for again.
  if (knew != Knows::kSealing) cell.number = number_in(word - kCellSeal);
  cell.knows = Knows::kLast;
  open_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

Result<std::int64_t> Cells::read(std::uint32_t cell) {
  Cell& own = cells_[cell];
  if (ended(cell)) return own.number;
  RKV_ASSIGN_OR_RETURN(const std::uint64_t word, atomics_->fetch_add(&words_[cell], 0));
  return settle(own, word) ? own.number : number_in(word);
}

Result<std::optional<std::int64_t>> Cells::add(std::uint32_t cell, std::int64_t summand) {
  const auto addend = static_cast<std::uint64_t>(summand);
  RKV_ASSIGN_OR_RETURN(const std::uint64_t word, atomics_->fetch_add(&words_[cell], addend));
  if (settle(cells_[cell], word)) return std::nullopt;
  return number_in(word + addend);
}

Result<std::optional<std::int64_t>> Cells::swap(std::uint32_t cell, std::int64_t expected,
                                                std::int64_t desired) {
  RKV_ASSIGN_OR_RETURN(
      const std::uint64_t word,
      atomics_->compare_swap(&words_[cell], cell_word(expected), cell_word(desired)));
  if (settle(cells_[cell], word)) return std::nullopt;
  return number_in(word);
}

// By a swap, so that the last number is known beforehand: should the answer not come, the seal may
// be there, and the word says no more what the number was when it was set. The addition that always
// succeeds comes after some tries; only if its answer fails to come may the last number count what
// was void.
Result<std::int64_t> Cells::end(std::uint32_t cell) {
  Cell& own = cells_[cell];
  if (ended(cell)) return own.number;
  RKV_ASSIGN_OR_RETURN(std::uint64_t word, atomics_->fetch_add(&words_[cell], 0));
  for (int tried = 0; !settle(own, word); ++tried) {
    own.in_doubt = true;
    if (tried == kSealTries) {
      RKV_ASSIGN_OR_RETURN(word, atomics_->fetch_add(&words_[cell], kCellSeal));
      word += kCellSeal;
      continue;
    }
    own.number = number_in(word);
    own.knows = Knows::kSealing;
    RKV_ASSIGN_OR_RETURN(const std::uint64_t found,
                         atomics_->compare_swap(&words_[cell], word, word + kCellSeal));
    word = found == word ? word + kCellSeal : found;
  }
  return own.number;
}

std::optional<Cells::Owner> Cells::owner(std::uint32_t cell) const {
  const Cell& own = cells_[cell];
  const std::uint64_t key_length = load_word(&own.key_length, std::memory_order_acquire);
  if (key_length == 0) return std::nullopt;
  return Owner{.hash = KeyHash(own.hash), .version = own.version, .key_length = key_length};
}

std::optional<Cells::Owner> Cells::changed(std::uint32_t cell) const {
  return look(cell) == load_word(&cells_[cell].saved_word) ? std::nullopt : owner(cell);
}

}  // namespace rkv::server
