#include "server/log/commit_log.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "common/check.h"
#include "server/log/double_mapping.h"
#include "server/log/sleeper.h"

namespace rkv::server {

namespace {

// Entries start on a cache line. Two threads then never write the same line, and one ready stamp
// per line is enough.
constexpr std::uint64_t kLineWords = 8;
constexpr std::size_t kLineBytes = kLineWords * 8;

// Entry: version 8 | record_traits 8 | shape 8 | address of the attachment 8 | tag 24, if it has
// one | key | value, padded to a line. With an attachment the value is only there. shape: kind 3
// bits | has a tag 1 | key length 12 | value length 25 | lines 20.
constexpr std::size_t kEntryHeaderBytes = 32;
constexpr std::uint64_t kKindMask = 7;
constexpr std::uint64_t kHasTag = 8;
static_assert(kMaxKeyBytes < (1U << 12) && kMaxValueBytes < (1U << 25));

constexpr std::size_t entry_bytes(std::size_t tag_bytes, std::size_t key_length,
                                  std::size_t value_length) {
  return round_up(
      kEntryHeaderBytes + tag_bytes + key_length + (is_large(value_length) ? 0 : value_length),
      kLineBytes);
}
static_assert(CommitLog::kMinCapacityBytes >=
              4 * entry_bytes(kWriteTagBytes, kMaxKeyBytes, kMaxInlineBytes));
static_assert(CommitLog::kMinServerCapacityBytes >=
              entry_bytes(kWriteTagBytes, kMaxKeyBytes, kMaxValueBytes) + kMaxValueBytes);
static_assert(std::has_single_bit(CommitLog::kMinCapacityBytes));

std::uint64_t encode_shape(CommitLog::Kind kind, std::size_t key_length, std::size_t value_length,
                           std::uint64_t lines) {
  return static_cast<std::uint64_t>(kind) | (std::uint64_t{key_length} << 4) |
         (std::uint64_t{value_length} << 16) | (lines << 41);
}

// The replicated mark of a log that is not replicated.
constexpr std::uint64_t kAboveAll = std::numeric_limits<std::uint64_t>::max();

}  // namespace

// Ready stamps are beside the ring, one word per line of the ring. An entry that starts at position
// p is ready when the stamp of line p holds p + 1. Only finish() writes stamps. A stale stamp is
// the sequence of an entry of an earlier lap, which is smaller by a multiple of the capacity. A
// line where no entry has started yet holds 0, and no sequence is 0. So a stamp never looks ready
// too early, and stamps are never cleared. (Stamps inside the ring would not work: the last lap may
// have left bytes of a value in their place, and a client could choose these to be the expected
// sequence.)
struct CommitLog::Ring {
  Ring() = default;  // volatile
  Ring(DoubleMapping mapping, std::size_t bytes)
      : memory(std::move(mapping)),
        stamps(std::make_unique<std::atomic<std::uint64_t>[]>(bytes / kLineBytes)),
        capacity_words(bytes / 8) {}

  // The attachment of an entry in the ring.
  struct Attached {
    std::byte* bytes;
    std::uint64_t words;
  };

  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  std::byte* at(std::uint64_t position) const {
    return memory.data() + (position & (capacity_words - 1)) * 8;
  }
  std::atomic<std::uint64_t>& stamp(std::uint64_t position) const {
    return stamps[(position & (capacity_words - 1)) / kLineWords];
  }
  bool finished(std::uint64_t position, std::memory_order order) const {
    return stamp(position).load(order) == position + 1;
  }
  // Whether the applier may have the next entry. The mark comes first: in a replicated log it says
  // that the entry is finished, and the load of the stamp is then certain to see it.
  bool ready(std::memory_order order) const {
    return next < replicated_mark.load(order) && finished(next, order);
  }
  // Reads a finished entry. Returns the address of its attachment, if it has one, and the position
  // behind it.
  struct Read {
    std::byte* attachment;
    std::uint64_t end;
  };
  Read read(std::uint64_t position, Entry* entry) const;

  DoubleMapping memory;
  std::unique_ptr<std::atomic<std::uint64_t>[]> stamps;
  std::uint64_t capacity_words = 0;  // 0: volatile

  // Written by each append; each on a line of its own.
  alignas(64) std::atomic<std::uint64_t> used_words{0};  // reserved, or begun and not yet freed
  alignas(64) std::atomic<std::uint64_t> head{0};        // position of the next entry

  // Position of the next entry that the replication reader reads. It alone stores it. The thread
  // that sets the mark checks it.
  alignas(64) std::atomic<std::uint64_t> unread{0};

  // Used by the applier only.
  alignas(64) std::uint64_t next = 0;  // position of the next entry to consume
  std::uint64_t freed = 0;             // all entries before this position have been freed
  std::vector<Attached> attached;      // attachments of entries consumed and not yet freed
  std::uint64_t attached_words = 0;    // sum of their words

  // Read by appends, rarely written.
  // The consumer that an entry is ready for when it is finished: the replicator in a replicated
  // log, otherwise the applier. So finish() does the same in both.
  alignas(64) Sleeper first;
  std::atomic<DiskState> disk{DiskState::kOk};
  std::atomic<bool> has_successor{false};
  std::atomic<std::uint64_t> refused{0};  // kBusy answers, which are rare
  alignas(64) Sleeper second;  // the applier of a replicated log: the mark's moves wake it
  std::atomic<std::uint64_t> wal_mark{0};
  std::atomic<std::uint64_t> sync_mark{0};
  // Read by whatever answers clients.
  alignas(64) std::atomic<std::uint64_t> group_wal_mark{0};
  std::atomic<std::uint64_t> group_sync_mark{0};
  std::atomic<std::uint64_t> replicated_mark{kAboveAll};
};

// Frees the attachments of entries still in the queue.
CommitLog::Ring::~Ring() {
  if (capacity_words == 0) return;
  for (const Attached& one : attached)
    Attachment(one.bytes).reset();
  while (finished(next, std::memory_order_acquire)) {
    const std::byte* const entry = at(next);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    Attachment(reinterpret_cast<std::byte*>(load_le<std::uint64_t>(entry + 24))).reset();
    next += (load_le<std::uint64_t>(entry + 16) >> 41) * kLineWords;
  }
}

CommitLog::CommitLog(std::unique_ptr<Ring> ring, Group group)
    : group_(group), ring_(std::move(ring)) {
  if (is_replicated()) ring_->replicated_mark.store(0, std::memory_order_relaxed);
}
CommitLog::~CommitLog() = default;

Result<std::unique_ptr<CommitLog>> CommitLog::create(std::size_t capacity_bytes, Group group) {
  if (capacity_bytes > kMaxCapacityBytes) {
    return fail(Code::kInvalidArgument, "the commit log cannot be larger than 64 GiB");
  }
  const std::size_t bytes = std::bit_ceil(std::max(capacity_bytes, kMinCapacityBytes));
  RKV_ASSIGN_OR_RETURN(DoubleMapping memory, DoubleMapping::create(bytes));
  return std::unique_ptr<CommitLog>(
      new CommitLog(std::make_unique<Ring>(std::move(memory), bytes), group));
}

std::unique_ptr<CommitLog> CommitLog::create_volatile(std::uint64_t first) {
  auto ring = std::make_unique<Ring>();
  ring->head.store(first, std::memory_order_relaxed);
  return std::unique_ptr<CommitLog>(new CommitLog(std::move(ring), Group::kNone));
}

Result<CommitLog::Reservation> CommitLog::try_reserve(std::size_t key_length,
                                                      std::size_t value_length) {
  RKV_CHECK(key_length <= kMaxKeyBytes && value_length <= kMaxValueBytes, "entry above the limits");
  const Reservation reservation{
      .words = static_cast<std::uint32_t>(
          entry_bytes(is_replicated() ? kWriteTagBytes : 0, key_length, value_length) / 8),
      .attached =
          static_cast<std::uint32_t>(is_large(value_length) ? round_up(value_length, 8) / 8 : 0)};
  const std::uint64_t wanted = std::uint64_t{reservation.words} + reservation.attached;
  Ring& ring = *ring_;
  if (ring.capacity_words == 0) return reservation;
  if (ring.disk.load(std::memory_order_relaxed) != DiskState::kOk) [[unlikely]]
    return std::unexpected(refusal(Refused::kWrite));
  if (wanted > ring.capacity_words) [[unlikely]] {
    return fail(Code::kTooLarge, "the value is longer than the server's whole queue to the disk");
  }
  std::uint64_t used = ring.used_words.load(std::memory_order_relaxed);
  do {
    if (used + wanted > ring.capacity_words) [[unlikely]] {
      ring.refused.fetch_add(1, std::memory_order_relaxed);
      interrupt();  // the applier sees refused() grow and syncs, which frees space
      return fail(Code::kBusy, is_replicated()
                                   ? "the disks of the server's group cannot keep up: retry later"
                                   : "the server's disk cannot keep up: retry later");
    }
    // Acquire: see begin().
  } while (!ring.used_words.compare_exchange_weak(used, used + wanted, std::memory_order_acq_rel,
                                                  std::memory_order_relaxed));
  return reservation;
}

void CommitLog::unreserve(Reservation reservation) {
  Ring& ring = *ring_;
  if (ring.capacity_words == 0) return;
  const std::uint64_t taken = std::uint64_t{reservation.words} + reservation.attached;
  const std::uint64_t before = ring.used_words.fetch_sub(taken, std::memory_order_acq_rel);
  RKV_CHECK(before >= taken, "more room given back than was taken");
}

// Why the place taken here is free, and why the applier's last read of it happened before:
// Let the new entry end at position e. Let R be the last reservation (in the modification order of
// used_words) among those of all entries up to and including this one. By R at least e words were
// reserved, so by CLOG-3 advance() had freed at least e - capacity words by then: the place is
// free. R acquired those advances: every modification of used_words is a read-modify-write, and so
// continues their release sequence. R happened before this call: the thread that made R went
// through the fetch_add below, earlier or now, and acq_rel chains these calls. (Attachments are
// reserved and freed in addition: they only reduce the available part of the ring.)
CommitLog::Ticket CommitLog::begin(Reservation reservation) {
  const std::uint64_t position =
      ring_->head.fetch_add(reservation.words, std::memory_order_acq_rel);
  return {.sequence = position + 1, .words = reservation.words};
}

void CommitLog::finish(Ticket ticket, Kind kind, const RecordFields& record, Attachment attachment,
                       const WriteTag* tag) {
  const Bytes key = record.key;
  const Bytes value = record.value;
  Ring& ring = *ring_;
  if (ring.capacity_words == 0) return;
  const std::size_t tag_bytes = tag == nullptr ? 0 : kWriteTagBytes;
  RKV_CHECK(entry_bytes(tag_bytes, key.size(), value.size()) <= std::size_t{ticket.words} * 8,
            "entry larger than its reservation");
  const bool attached = is_large(value.size());
  RKV_CHECK(attached == (attachment != nullptr), "large values are attached, others are not");
  const std::uint64_t position = ticket.sequence - 1;
  std::byte* const entry = ring.at(position);
  store_le(entry, record.version.bits);
  store_le(entry + 8, record_traits(record));
  store_le(entry + 16, encode_shape(kind, key.size(), value.size(), ticket.words / kLineWords) |
                           (tag == nullptr ? 0 : kHasTag));
  store_le(entry + 24,
           reinterpret_cast<std::uint64_t>(attachment.release()));  // freed by advance()
  if (tag != nullptr) encode(*tag, entry + kEntryHeaderBytes);
  std::byte* const body = entry + kEntryHeaderBytes + tag_bytes;
  if (!key.empty()) std::memcpy(body, key.data(), key.size());
  if (!value.empty() && !attached) std::memcpy(body + key.size(), value.data(), value.size());
  // seq_cst: see wake_for_entry(). The store also releases the bytes above.
  ring.stamp(position).store(ticket.sequence, std::memory_order_seq_cst);
  ring.first.wake_for_entry();
}

CommitLog::Ring::Read CommitLog::Ring::read(std::uint64_t position, Entry* entry) const {
  const std::byte* const from = at(position);
  const auto shape = load_le<std::uint64_t>(from + 16);
  const std::size_t key_length = (shape >> 4) & 0xFFFU;
  const std::size_t value_length = (shape >> 16) & 0x1FFFFFFU;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): finish() put it there
  auto* const attachment = reinterpret_cast<std::byte*>(load_le<std::uint64_t>(from + 24));
  const bool has_tag = (shape & kHasTag) != 0;
  const std::byte* const key = from + kEntryHeaderBytes + (has_tag ? kWriteTagBytes : 0);
  const std::byte* const value = attachment != nullptr ? attachment : key + key_length;
  *entry = Entry{.sequence = position + 1,
                 .kind = static_cast<Kind>(shape & kKindMask),
                 .record = {.version = {load_le<std::uint64_t>(from)},
                            .key = {key, key_length},
                            .value = {value, value_length}}};
  if (has_tag) entry->tag = decode_write_tag(from + kEntryHeaderBytes);
  set_record_traits(entry->record, load_le<std::uint64_t>(from + 8));
  return {.attachment = attachment, .end = position + (shape >> 41) * kLineWords};
}

bool CommitLog::consume(Entry* entry) {
  Ring& ring = *ring_;
  if (ring.capacity_words == 0 || !ring.ready(std::memory_order_acquire)) return false;
  const Ring::Read read = ring.read(ring.next, entry);
  if (read.attachment != nullptr) {
    ring.attached.push_back(
        {.bytes = read.attachment, .words = round_up(entry->record.value.size(), 8) / 8});
    ring.attached_words += ring.attached.back().words;
  }
  ring.next = read.end;
  return true;
}

void CommitLog::advance() {
  Ring& ring = *ring_;
  const std::uint64_t words = ring.next - ring.freed + ring.attached_words;
  if (words == 0) return;
  ring.freed = ring.next;
  for (const Ring::Attached& one : ring.attached)
    Attachment(one.bytes).reset();
  ring.attached.clear();
  ring.attached_words = 0;
  // Release: the applier's reads of these entries happen before a writer reuses their space.
  ring.used_words.fetch_sub(words, std::memory_order_acq_rel);
}

void CommitLog::rewind() {
  ring_->next = ring_->freed;
  ring_->attached.clear();  // consume() adds them again
  ring_->attached_words = 0;
}

std::uint64_t CommitLog::consumed() const {
  return ring_->next;
}

std::uint64_t CommitLog::bytes_consumed() const {
  return (ring_->next - ring_->freed + ring_->attached_words) * 8;
}

void CommitLog::wait_for_entries(int ms) {
  Ring& ring = *ring_;
  Sleeper& applier = is_replicated() ? ring.second : ring.first;
  applier.wait_for_entry(
      [&] { return ring.capacity_words != 0 && ring.ready(std::memory_order_seq_cst); },
      std::int64_t{ms} * 1000);
}

void CommitLog::nap(int us) {
  (is_replicated() ? ring_->second : ring_->first).nap(us);
}

void CommitLog::interrupt() {
  (is_replicated() ? ring_->second : ring_->first).interrupt();
}

bool CommitLog::read_next(Entry* entry) {
  Ring& ring = *ring_;
  const std::uint64_t at = ring.unread.load(std::memory_order_relaxed);
  if (!ring.finished(at, std::memory_order_acquire)) return false;
  ring.unread.store(ring.read(at, entry).end, std::memory_order_release);
  return true;
}

std::uint64_t CommitLog::read_through() const {
  return ring_->unread.load(std::memory_order_acquire);
}

void CommitLog::wait_for_unread(int ms) {
  Ring& ring = *ring_;
  const std::uint64_t at = ring.unread.load(std::memory_order_relaxed);
  ring.first.wait_for_entry([&] { return ring.finished(at, std::memory_order_seq_cst); },
                            std::int64_t{ms} * 1000);
}

void CommitLog::interrupt_reader() {
  ring_->first.interrupt();
}

std::uint64_t CommitLog::last_begun() const {
  return ring_->head.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::last_for_disk() const {
  const std::uint64_t mark = replicated_mark();  // first: last_begun() must not be older
  return std::min(mark, last_begun());
}

std::uint64_t CommitLog::wal_mark() const {
  return ring_->wal_mark.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::sync_mark() const {
  return ring_->sync_mark.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::group_wal_mark() const {
  return ring_->group_wal_mark.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::group_sync_mark() const {
  return ring_->group_sync_mark.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::replicated_mark() const {
  return ring_->replicated_mark.load(std::memory_order_acquire);
}

namespace {
// Only one thread stores a mark, so a check before the store keeps it monotonic.
void raise(std::atomic<std::uint64_t>& mark, std::uint64_t sequence) {
  if (sequence > mark.load(std::memory_order_relaxed))
    mark.store(sequence, std::memory_order_release);
}
}  // namespace

void CommitLog::set_wal_mark(std::uint64_t sequence) {
  raise(ring_->wal_mark, sequence);
  if (!is_replicated()) raise(ring_->group_wal_mark, sequence);
}

void CommitLog::set_sync_mark(std::uint64_t sequence) {
  raise(ring_->sync_mark, sequence);
  if (!is_replicated()) raise(ring_->group_sync_mark, sequence);
}

void CommitLog::set_replicated_mark(std::uint64_t sequence) {
  RKV_CHECK(is_replicated() && sequence <= read_through(), "CLOG-7");
  if (sequence <= replicated_mark()) return;
  ring_->replicated_mark.store(sequence, std::memory_order_seq_cst);  // see wake_for_entry()
  ring_->second.wake_for_entry();
}

void CommitLog::set_group_marks(std::uint64_t wal, std::uint64_t sync) {
  RKV_CHECK(is_replicated() && sync <= wal && wal <= replicated_mark(), "CLOG-8");
  raise(ring_->group_wal_mark, wal);  // first, so that the other never passes it
  raise(ring_->group_sync_mark, sync);
}

void CommitLog::set_disk_state(DiskState state) {
  ring_->disk.store(state, std::memory_order_release);
}

DiskState CommitLog::disk_state() const {
  return ring_->disk.load(std::memory_order_acquire);
}

void CommitLog::set_successor(bool exists) {
  ring_->has_successor.store(exists, std::memory_order_relaxed);
}

bool CommitLog::has_failed_for_good() const {
  return failed() && !ring_->has_successor.load(std::memory_order_relaxed);
}

Error CommitLog::refusal(Refused what) const {
  if (ring_->has_successor.load(std::memory_order_relaxed)) {
    return {.code = Code::kBusy,
            .text = "the disk of the group's primary has failed: another replica takes over"};
  }
  return refusal_of(what, disk_state());
}

bool CommitLog::is_volatile() const {
  return ring_->capacity_words == 0;
}

std::uint64_t CommitLog::bytes_queued() const {
  return ring_->used_words.load(std::memory_order_relaxed) * 8;
}

std::uint64_t CommitLog::refused() const {
  return ring_->refused.load(std::memory_order_relaxed);
}

std::uint64_t CommitLog::capacity_bytes() const {
  return ring_->capacity_words * 8;
}

}  // namespace rkv::server
