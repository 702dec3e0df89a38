// One-sided counters: counters whose numbers are in cells (cells.h). How numbers get into cells,
// from cells to the log, and out of cells.
#include <array>
#include <cstring>

#include "server/store/store_impl.h"

namespace rkv::server {

namespace {

constexpr std::size_t kReferenceOffset = kCounterBytes;
constexpr const char* kPassesLimits = "the counter would pass the limits of 64 bits";

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

CellReference reference_in(const RecordFields& record) {
  const auto word = load_le<std::uint64_t>(record.value.data() + kReferenceOffset);
  return {.network = static_cast<std::uint32_t>(word >> 32),
          .cell = static_cast<std::uint32_t>(word)};
}

}  // namespace

std::uint32_t Store::Impl::add_cells(Cells& cells) {
  cells_.push_back(&cells);
  return static_cast<std::uint32_t>(cells_.size() - 1);
}

bool Store::Impl::has_cells() const {
  return std::ranges::any_of(cells_, [](const Cells* cells) { return cells->taken() != 0; });
}

Cells& Store::Impl::cells_of(const RecordFields& record, std::uint32_t* cell) const {
  const CellReference reference = reference_in(record);
  *cell = reference.cell;
  return *cells_[reference.network];
}

Result<std::int64_t> Store::Impl::number_of(const RecordFields& counter) const {
  if (!counter.in_cell) return load_le<std::int64_t>(counter.value.data());
  std::uint32_t cell = 0;
  return cells_of(counter, &cell).read(cell);
}

// A record that is not in a cell is left alone, and the number returned for it means nothing.
Result<std::int64_t> Store::Impl::end_cell(const RecordFields& record) const {
  if (!record.in_cell) return 0;
  std::uint32_t cell = 0;
  return cells_of(record, &cell).end(cell);
}

// A summand that a cell cannot take ends the cell first, unless the addition would be refused: a
// refusal changes nothing.
Result<std::optional<std::int64_t>> Store::Impl::add_in_cell(const RecordFields& counter,
                                                             std::int64_t summand) const {
  std::uint32_t cell = 0;
  Cells& cells = cells_of(counter, &cell);
  if (cells.ended(cell)) return std::nullopt;
  if (fits_addition(summand)) return cells.add(cell, summand);
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, summand, &sum)) {
    return fail(Code::kOutOfRange, kPassesLimits);
  }
  RKV_RETURN_IF_ERROR(cells.end(cell));
  return std::nullopt;
}

// Returns the number before the swap.
Result<std::optional<std::int64_t>> Store::Impl::swap_in_cell(const RecordFields& counter,
                                                              std::int64_t expected,
                                                              std::int64_t desired) const {
  std::uint32_t cell = 0;
  Cells& cells = cells_of(counter, &cell);
  if (cells.ended(cell)) return std::nullopt;
  if (fits_cell(expected) && fits_cell(desired)) return cells.swap(cell, expected, desired);
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  if (number != expected) return number;
  RKV_RETURN_IF_ERROR(cells.end(cell));
  return std::nullopt;
}

Result<std::optional<std::uint32_t>> Store::Impl::new_cell(std::uint32_t network,
                                                           std::int64_t number) {
  for (;;) {
    const auto cell = cells_[network]->take();
    if (!cell) return std::nullopt;
    RKV_ASSIGN_OR_RETURN(const bool usable, cells_[network]->begin(*cell, number));
    if (usable) return cell;
  }
}

// Gets space for the record before the cell: a cell that was taken never comes back, and a client
// repeats the request until there is space. `bytes` is the buffer of the record's value.
Result<Store::Impl::CellPlan> Store::Impl::plan_in_cell(const Target& at, RecordFields& fields,
                                                        MutableBytes bytes, std::uint32_t network,
                                                        std::int64_t number) {
  CellPlan made;
  if (network >= cells_.size() || !fits_cell(number) ||
      cells_[network]->taken() == cells_[network]->count()) {
    return made;
  }
  fields.in_cell = true;
  fields.value = bytes.first(kCellCounterBytes);
  RKV_ASSIGN_OR_RETURN(made.plan, plan(at, fields));
  const auto cell = new_cell(network, number);
  if (!cell || !*cell) {
    if (!made.plan.in_place) records_.release(made.plan.block, made.plan.units);
    index_.release(made.plan.vacancy);
    if (!cell) return std::unexpected(cell.error());
    return CellPlan{};
  }
  made.cell = *cell;
  store_le(bytes.data() + kReferenceOffset, std::uint64_t{network} << 32 | *made.cell);
  return made;
}

Result<Store::OpenedCounter> Store::Impl::open_counter(Bytes key, bool create,
                                                       std::uint32_t network, DiskLookup look,
                                                       Nanos begin_by) {
  std::array<std::byte, kCellCounterBytes> bytes;
  RecordFields fields{.counter = true, .key = key};
  OpenedCounter opened;
  bool over = false;
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), kCounterBytes));
  const auto put = commit(
      room, fields,
      [&](const Target& at) -> Result<Plan> {
        std::int64_t number = 0;
        if (at.found) {
          const RecordFields old = record_at(at.found->slot.location());
          if (!old.counter) {
            return fail(Code::kWrongType, "the key holds a plain value, not a counter");
          }
          fields.expiry_ms = old.expiry_ms;
          opened.version = old.version;
          if (old.in_cell) {
            std::uint32_t cell = 0;
            Cells& cells = cells_of(old, &cell);
            // Otherwise clients would be sent to a sealed cell repeatedly.
            if (cells.in_doubt(cell)) RKV_RETURN_IF_ERROR(cells.read(cell));
            if (!cells.ended(cell)) {
              over = true;
              if (network < cells_.size() && &cells == cells_[network]) opened.cell = cell;
              return fail(Code::kConflict, nullptr);
            }
          }
          RKV_ASSIGN_OR_RETURN(number, number_of(old));
        } else if (!create) {
          return fail(Code::kNotFound, "no such key");
        }
        store_le(bytes.data(), number);
        const auto with_cell = plan_in_cell(at, fields, bytes, network, number);
        if (!with_cell) return std::unexpected(with_cell.error());
        if (with_cell->cell) {
          opened.cell = with_cell->cell;
          return with_cell->plan;
        }
        if (at.found) {
          over = true;
          return fail(Code::kConflict, nullptr);
        }
        fields.in_cell = false;
        fields.value = Bytes(bytes).first(kCounterBytes);
        return plan(at, fields);
      },
      look, begin_by);
  if (over) return opened;
  if (!put) return std::unexpected(put.error());
  opened.version = put->version;
  if (opened.cell) {
    cells_[network]->own(
        *opened.cell,
        {.hash = memory_.hash(key), .version = put->version, .key_length = key.size()});
    // Decided by a flag, not by the number of cells taken: two first cells may be taken at once, or
    // the first may be unusable.
    if (call_sweeper_ && !called_sweeper_.exchange(true, std::memory_order_relaxed))
      call_sweeper_();
  }
  return opened;
}

// ---------------------------------------------------------------------------------- sweeping

// If the log has no space, the sweep still visits the remaining cells for numbers that must not
// wait. The next sweep begins where space ran out, so that numbers that change all the time do not
// keep others out. A device in trouble postpones the rest of its own cells, because each of its
// answers may take seconds. With `end`, every cell is tried.
Store::Swept Store::Impl::sweep(bool end) {
  const std::scoped_lock lock(sweeping_);
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

// Ends a cell whose number clients have taken too far, before the number exceeds the limits. Needs
// no space in the log. REQUIRES: the counter's pair lock.
Status Store::Impl::end_if_far(Cells& cells, std::uint32_t cell) {
  RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells.read(cell));
  if (!fits_cell(number)) RKV_RETURN_IF_ERROR(cells.end(cell));
  return {};
}

// Logs the number that an atomic returned, under the lock of the counter's pair. So numbers reach
// the log in the order in which they were returned (C4 of the log).
Status Store::Impl::sweep_one(Cells& cells, std::uint32_t cell, const Cells::Owner& owner,
                              bool end) {
  const auto room = log_.try_reserve(owner.key_length, kCounterBytes);
  Locked locked(*this, owner.hash);
  const auto found = index_.find_version(locked.home, owner.hash, owner.version);
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
  RecordFields fields = out_of_cell(record_at(found->slot.location()));
  fields.value = bytes;
  const CommitLog::Ticket ticket = log_.begin(*room);
  fields.version = Version::of(boot_, ticket.sequence);
  log_.finish(ticket, CommitLog::Kind::kPut, fields);
  cells.saved(cell, looked);
  if (end) cells.disown(cell);  // fully logged: a retry after a full log skips this cell
  return {};
}

}  // namespace rkv::server
