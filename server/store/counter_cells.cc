#include "server/store/counter_cells.h"

#include <algorithm>
#include <array>

namespace rkv::server {

namespace {

// Offset of a cell's name in the value of a counter that is in a cell.
constexpr std::size_t kNameOffset = kCounterBytes;

bool fits_cell(std::int64_t number) {
  return number > -kCellEndNumber && number < kCellEndNumber;
}
// A hint: the word was read by a plain load, not by an atomic.
bool is_far(std::uint64_t word) {
  const auto number = cell_number(word);
  return !number || !fits_cell(*number);
}
bool fits_addition(std::int64_t summand) {
  return summand >= -kMaxCellSummand && summand <= kMaxCellSummand;
}

// Ends a cell whose number clients have taken too far, before the number exceeds the limits. Needs
// no space in the log. REQUIRES: the counter's pair lock.
Status end_if_far(Cells& cells, std::uint32_t cell) {
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  if (!fits_cell(number)) RKV_RETURN_IF_ERROR(cells.end(cell));
  return {};
}

}  // namespace

std::uint32_t CounterCells::add_network(Cells& cells) {
  cells_.push_back(&cells);
  return static_cast<std::uint32_t>(cells_.size() - 1);
}

bool CounterCells::in_use() const {
  return std::ranges::any_of(cells_, [](const Cells* cells) { return cells->taken() != 0; });
}

CounterCells::Totals CounterCells::totals() const {
  Totals totals;
  for (const Cells* cells : cells_) {
    totals.cells += cells->count();
    totals.taken += cells->taken();
    totals.open += cells->open();
  }
  return totals;
}

// ----------------------------------------------------------------------------------- one counter

CounterCells::Place CounterCells::place_of(const RecordFields& counter) const {
  const auto word = load_le<std::uint64_t>(counter.value.data() + kNameOffset);
  return {.cells = *cells_[word >> 32], .cell = static_cast<std::uint32_t>(word)};
}

void CounterCells::name_cell(MutableBytes value, std::uint32_t network, std::uint32_t cell) {
  store_le(value.data() + kNameOffset, std::uint64_t{network} << 32 | cell);
}

Result<std::int64_t> CounterCells::number_of(const RecordFields& counter) const {
  if (!counter.in_cell) return load_le<std::int64_t>(counter.value.data());
  const auto [cells, cell] = place_of(counter);
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  if (cells.ended(cell)) RKV_RETURN_IF_ERROR(scrub(cells, cell));
  return number;
}

Result<std::int64_t> CounterCells::end(const RecordFields& record) const {
  if (!record.in_cell) return 0;
  const auto [cells, cell] = place_of(record);
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.end(cell));
  RKV_RETURN_IF_ERROR(scrub(cells, cell));
  return number;
}

// A number that has left its cell is a record's, or nobody's.
Status CounterCells::scrub(Cells& cells, std::uint32_t cell) const {
  return table_.memory().is_scrubbed() ? cells.wipe(cell) : Status{};
}

// A summand that a cell cannot take ends the cell first, unless the addition would be refused: a
// refusal changes nothing.
Result<std::optional<std::int64_t>> CounterCells::add(const RecordFields& counter,
                                                      std::int64_t summand) const {
  const auto [cells, cell] = place_of(counter);
  if (cells.ended(cell)) return std::nullopt;
  if (fits_addition(summand)) return cells.add(cell, summand);
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, summand, &sum)) return fail(Code::kOutOfRange, kExceedsRange);
  RKV_RETURN_IF_ERROR(cells.end(cell));
  return std::nullopt;
}

Result<std::optional<std::int64_t>> CounterCells::swap(const RecordFields& counter,
                                                       std::int64_t expected,
                                                       std::int64_t desired) const {
  const auto [cells, cell] = place_of(counter);
  if (cells.ended(cell)) return std::nullopt;
  if (fits_cell(expected) && fits_cell(desired)) return cells.swap(cell, expected, desired);
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  if (number != expected) return number;
  RKV_RETURN_IF_ERROR(cells.end(cell));
  return std::nullopt;
}

// A cell in doubt is read first: otherwise clients would be sent to a sealed cell repeatedly.
Result<bool> CounterCells::is_open(const RecordFields& counter) const {
  const auto [cells, cell] = place_of(counter);
  if (cells.in_doubt(cell)) RKV_RETURN_IF_ERROR(cells.read(cell));
  return !cells.ended(cell);
}

std::optional<std::uint32_t> CounterCells::cell_on(std::uint32_t network,
                                                   const RecordFields& counter) const {
  const auto [cells, cell] = place_of(counter);
  if (network >= cells_.size() || &cells != cells_[network]) return std::nullopt;
  return cell;
}

// ------------------------------------------------------------------------------------- a new cell

bool CounterCells::has_room(std::uint32_t network, std::int64_t number) const {
  return network < cells_.size() && fits_cell(number) &&
         cells_[network]->taken() != cells_[network]->count();
}

Result<std::optional<std::uint32_t>> CounterCells::take(std::uint32_t network,
                                                        std::int64_t number) const {
  for (;;) {
    const auto cell = cells_[network]->take();
    if (!cell) return std::nullopt;
    RKV_ASSIGN_OR_RETURN(const bool usable, cells_[network]->begin(*cell, number));
    if (usable) return cell;
  }
}

// The callback is decided by a flag, not by the number of cells taken: two first cells may be taken
// at once, or the first may be unusable.
void CounterCells::own(std::uint32_t network, std::uint32_t cell, const Cells::Owner& owner) {
  cells_[network]->own(cell, owner);
  if (call_sweeper_ && !called_sweeper_.exchange(true, std::memory_order_relaxed)) call_sweeper_();
}

// ---------------------------------------------------------------------------------- sweeping

// If the log has no space, the sweep still visits the remaining cells for numbers that must not
// wait. The next sweep begins where space ran out, so that numbers that change all the time do not
// keep others out. A device in trouble postpones the rest of its own cells, because each of its
// answers may take seconds. With `end`, every cell is tried.
CounterCells::Swept CounterCells::sweep(bool end) {
  const MutexLock lock(sweeping_);
  Swept swept;
  const auto failed = [&](const Status& one) {
    ++swept.left;
    if (swept.status) swept.status = one;
  };
  std::uint64_t total = 0;
  std::vector<std::uint32_t> taken;
  std::vector<bool> in_trouble;
  for (Cells* cells : cells_) {
    taken.push_back(cells->taken());
    total += taken.back();
    // With `end` no cell is compared by a plain load.
    const Status seen = end || taken.back() == 0 ? Status{} : cells->catch_up();
    if (!seen) failed(seen);
    in_trouble.push_back(!seen);
  }
  const std::uint64_t first = sweep_from_;
  Status room;
  for (std::uint64_t n = 0; n < total; ++n) {
    std::uint64_t place = (first + n) % total;
    const std::uint64_t here = place;
    std::size_t network = 0;
    while (place >= taken[network])
      place -= taken[network++];
    if (in_trouble[network]) continue;
    Cells& cells = *cells_[network];
    const auto cell = static_cast<std::uint32_t>(place);
    const auto owner = end ? cells.owner(cell) : cells.changed(cell);
    if (!owner) continue;
    const Status one =
        room || is_far(cells.look(cell)) ? sweep_one(cells, cell, *owner, end) : room;
    if (one) continue;
    failed(one);
    if (one.error().code == Code::kInternal) {
      in_trouble[network] = !end;
    } else if (room) {
      room = one;
      sweep_from_ = here;
    }
  }
  return swept;
}

// Logs the number that an atomic returned, under the lock of the counter's pair (CELLREC-2; CELL-4
// of the log).
Status CounterCells::sweep_one(Cells& cells, std::uint32_t cell, const Cells::Owner& owner,
                               bool end) {
  const auto room = log_.try_reserve(owner.key_length, kCounterBytes);
  RecordTable::Locked locked(table_, owner.hash);
  const auto found = table_.index().find_version(locked.home, owner.hash, owner.version);
  if (!room) {
    if (found) RKV_RETURN_IF_ERROR(end_if_far(cells, cell));
    return std::unexpected(room.error());
  }
  const std::uint64_t looked = cells.look(cell);
  Result<std::int64_t> number = 0;
  if (found) number = end ? cells.end(cell) : cells.read(cell);
  if (found && number && !fits_cell(*number)) number = cells.end(cell);
  if (!found || !number) {
    locked.unlock();
    log_.unreserve(*room);
    if (!found) cells.disown(cell);  // removed meanwhile
    return number ? Status{} : std::unexpected(number.error());
  }
  std::array<std::byte, kCounterBytes> bytes;
  store_le(bytes.data(), *number);
  RecordFields fields = out_of_cell(table_.record_at(found->slot.location()));
  fields.value = bytes;
  const CommitLog::Ticket ticket = log_.begin(*room);
  fields.version = Version::of(boot_, ticket.sequence);
  log_.finish(ticket, CommitLog::Kind::kPut, fields);
  cells.saved(cell, looked);
  if (end) cells.disown(cell);  // fully logged: a retry after a full log skips this cell
  return {};
}

}  // namespace rkv::server
