#include "server/store/cells.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::server {

namespace {
// A counter that clients change all the time may change between the read and the swap.
constexpr int kSealTries = 8;

// The number of an unsealed cell. No range is asserted: clients may have set any number.
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
  // Zero pages of the kernel, which take no memory until they are touched.
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

// On any cell, even one that is not in use: the addition is of 0.
Status Cells::catch_up() {
  RKV_RETURN_IF_ERROR(atomics_->fetch_add(&words_[0], 0));
  return {};
}

// Processes a word that an atomic returned. Returns whether the counter has ended. A seal that the
// server did not expect was set by a call that failed, or by a client that breaks the rules.
bool Cells::settle(Cell& cell, std::uint64_t word) {
  cell.in_doubt = false;
  const Knows knew = std::exchange(cell.knows, Knows::kNothing);
  if ((word & kCellSeal) == 0) return false;
  // Otherwise the word does not give the last number: additions after the seal are void, and their
  // clients repeat them.
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

// Seals by a swap, so that the last number is known beforehand. If the answer is lost, the seal may
// be set, and the word no longer shows the number at that time. After some tries an addition, which
// always succeeds, sets the seal. Only if the answer of that addition is lost may the last number
// include void additions.
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

// By the difference to a word just read. Additions that clients make in between, all void, stay.
Status Cells::wipe(std::uint32_t cell) {
  constexpr std::uint64_t kWiped = cell_word(0) + kCellSeal;
  Cell& own = cells_[cell];
  RKV_CHECK(ended(cell), "a counter's number is in its cell");
  if (own.wiped) return {};
  RKV_ASSIGN_OR_RETURN(const std::uint64_t word, atomics_->fetch_add(&words_[cell], 0));
  if (word != kWiped) RKV_RETURN_IF_ERROR(atomics_->fetch_add(&words_[cell], kWiped - word));
  own.wiped = true;
  return {};
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
