#include "server/persistence/commit_log.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <utility>
#include <vector>

#include "common/check.h"
#include "server/persistence/double_mapping.h"

namespace rkv::server {

namespace {

// Entries start on a cache line. Two threads then never write the same line, and one ready stamp
// per line is enough.
constexpr std::uint64_t kLineWords = 8;
constexpr std::size_t kLineBytes = kLineWords * 8;

// Entry: version 8 | record_traits 8 | shape 8 | address of the attachment 8 | key | value, padded
// to a line. With an attachment the value is only there. shape: kind 4 bits | key length 12 | value
// length 25 | lines 20.
constexpr std::size_t kEntryHeaderBytes = 32;
static_assert(kMaxKeyBytes < (1U << 12) && kMaxValueBytes < (1U << 25));

constexpr std::size_t entry_bytes(std::size_t key_length, std::size_t value_length) {
  return round_up(kEntryHeaderBytes + key_length + (is_large(value_length) ? 0 : value_length),
                  kLineBytes);
}
static_assert(CommitLog::kMinCapacityBytes >= 4 * entry_bytes(kMaxKeyBytes, kMaxInlineBytes));
static_assert(CommitLog::kMinServerCapacityBytes >=
              entry_bytes(kMaxKeyBytes, kMaxValueBytes) + kMaxValueBytes);
static_assert(std::has_single_bit(CommitLog::kMinCapacityBytes));

std::uint64_t encode_shape(CommitLog::Kind kind, std::size_t key_length, std::size_t value_length,
                           std::uint64_t lines) {
  return static_cast<std::uint64_t>(kind) | (std::uint64_t{key_length} << 4) |
         (std::uint64_t{value_length} << 16) | (lines << 41);
}

// State of the applier; a futex word.
enum Applier : std::uint32_t { kAwake = 0, kAwaitsEntries = 1, kNaps = 2 };

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t us) {
  const timespec timeout{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000};
  // Spurious wake-ups are harmless: the callers check their condition again.
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

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
  bool ready(std::memory_order order) const { return stamp(next).load(order) == next + 1; }

  DoubleMapping memory;
  std::unique_ptr<std::atomic<std::uint64_t>[]> stamps;
  std::uint64_t capacity_words = 0;  // 0: volatile

  // Written by each append; each on a line of its own.
  alignas(64) std::atomic<std::uint64_t> used_words{0};  // reserved, or begun and not yet freed
  alignas(64) std::atomic<std::uint64_t> head{0};        // position of the next entry

  // Used by the applier only.
  alignas(64) std::uint64_t next = 0;  // position of the next entry to consume
  std::uint64_t freed = 0;             // all entries before this position have been freed
  std::vector<Attached> attached;      // attachments of entries consumed and not yet freed
  std::uint64_t attached_words = 0;    // sum of their words

  // Read by appends, rarely written.
  alignas(64) std::atomic<std::uint32_t> applier{kAwake};
  std::atomic<bool> interrupted{false};
  std::atomic<DiskState> disk{DiskState::kOk};
  std::atomic<std::uint64_t> refused{0};  // kBusy answers, which are rare
  alignas(64) std::atomic<std::uint64_t> wal_mark{0};
  std::atomic<std::uint64_t> sync_mark{0};
};

// Frees the attachments of entries still in the queue.
CommitLog::Ring::~Ring() {
  if (capacity_words == 0) return;
  for (const Attached& one : attached)
    Attachment(one.bytes).reset();
  for (; ready(std::memory_order_acquire);) {
    const std::byte* const entry = at(next);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    Attachment(reinterpret_cast<std::byte*>(load_le<std::uint64_t>(entry + 24))).reset();
    next += (load_le<std::uint64_t>(entry + 16) >> 41) * kLineWords;
  }
}

CommitLog::CommitLog(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}
CommitLog::~CommitLog() = default;

Result<std::unique_ptr<CommitLog>> CommitLog::create(std::size_t capacity_bytes) {
  if (capacity_bytes > kMaxCapacityBytes) {
    return fail(Code::kInvalidArgument, "the commit log cannot be larger than 64 GiB");
  }
  const std::size_t bytes = std::bit_ceil(std::max(capacity_bytes, kMinCapacityBytes));
  RKV_ASSIGN_OR_RETURN(DoubleMapping memory, DoubleMapping::create(bytes));
  return std::unique_ptr<CommitLog>(
      new CommitLog(std::make_unique<Ring>(std::move(memory), bytes)));
}

std::unique_ptr<CommitLog> CommitLog::create_volatile(std::uint64_t first) {
  auto ring = std::make_unique<Ring>();
  ring->head.store(first, std::memory_order_relaxed);
  return std::unique_ptr<CommitLog>(new CommitLog(std::move(ring)));
}

Result<CommitLog::Reservation> CommitLog::try_reserve(std::size_t key_length,
                                                      std::size_t value_length) {
  RKV_CHECK(key_length <= kMaxKeyBytes && value_length <= kMaxValueBytes, "entry above the limits");
  const Reservation reservation{
      .words = static_cast<std::uint32_t>(entry_bytes(key_length, value_length) / 8),
      .attached =
          static_cast<std::uint32_t>(is_large(value_length) ? round_up(value_length, 8) / 8 : 0)};
  const std::uint64_t wanted = std::uint64_t{reservation.words} + reservation.attached;
  Ring& ring = *ring_;
  if (ring.capacity_words == 0) return reservation;
  if (const DiskState disk = ring.disk.load(std::memory_order_relaxed); disk != DiskState::kOk)
      [[unlikely]] {
    return std::unexpected(refusal_of(Refused::kWrite, disk));
  }
  if (wanted > ring.capacity_words) [[unlikely]] {
    return fail(Code::kTooLarge, "the value is longer than the server's whole queue to the disk");
  }
  std::uint64_t used = ring.used_words.load(std::memory_order_relaxed);
  do {
    if (used + wanted > ring.capacity_words) [[unlikely]] {
      ring.refused.fetch_add(1, std::memory_order_relaxed);
      interrupt();  // the applier sees refused() grow and syncs, which frees space
      return fail(Code::kBusy, "the server's disk cannot keep up: retry later");
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

void CommitLog::finish(Ticket ticket, Kind kind, const RecordFields& record,
                       Attachment attachment) {
  const Bytes key = record.key;
  const Bytes value = record.value;
  Ring& ring = *ring_;
  if (ring.capacity_words == 0) return;
  RKV_CHECK(entry_bytes(key.size(), value.size()) <= std::size_t{ticket.words} * 8,
            "entry larger than its reservation");
  const bool attached = is_large(value.size());
  RKV_CHECK(attached == (attachment != nullptr), "large values are attached, others are not");
  const std::uint64_t position = ticket.sequence - 1;
  std::byte* const entry = ring.at(position);
  store_le(entry, record.version.bits);
  store_le(entry + 8, record_traits(record));
  store_le(entry + 16, encode_shape(kind, key.size(), value.size(), ticket.words / kLineWords));
  store_le(entry + 24,
           reinterpret_cast<std::uint64_t>(attachment.release()));  // freed by advance()
  std::byte* const body = entry + kEntryHeaderBytes;
  if (!key.empty()) std::memcpy(body, key.data(), key.size());
  if (!value.empty() && !attached) std::memcpy(body + key.size(), value.data(), value.size());
  // seq_cst, paired with the load below and with the mirror image in wait_for_entries(): either the
  // applier sees this stamp before it sleeps, or this thread sees that the applier sleeps. (The
  // store also releases the bytes above.)
  ring.stamp(position).store(ticket.sequence, std::memory_order_seq_cst);
  if (ring.applier.load(std::memory_order_seq_cst) == kAwaitsEntries) [[unlikely]] {
    // The exchange lets only one of several writers pay for the system call.
    std::uint32_t expected = kAwaitsEntries;
    if (ring.applier.compare_exchange_strong(expected, kAwake)) futex_wake(ring.applier);
  }
}

bool CommitLog::consume(Entry* entry) {
  Ring& ring = *ring_;
  if (ring.capacity_words == 0 || !ring.ready(std::memory_order_acquire)) return false;
  const std::byte* const at = ring.at(ring.next);
  const auto shape = load_le<std::uint64_t>(at + 16);
  const std::size_t key_length = (shape >> 4) & 0xFFFU;
  const std::size_t value_length = (shape >> 16) & 0x1FFFFFFU;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): finish() put it there
  auto* const attachment = reinterpret_cast<std::byte*>(load_le<std::uint64_t>(at + 24));
  const std::byte* const value =
      attachment != nullptr ? attachment : at + kEntryHeaderBytes + key_length;
  if (attachment != nullptr) {
    ring.attached.push_back({.bytes = attachment, .words = round_up(value_length, 8) / 8});
    ring.attached_words += ring.attached.back().words;
  }
  *entry = Entry{.sequence = ring.next + 1,
                 .kind = static_cast<Kind>(shape & 0xFU),
                 .record = {.version = {load_le<std::uint64_t>(at)},
                            .key = {at + kEntryHeaderBytes, key_length},
                            .value = {value, value_length}}};
  set_record_traits(entry->record, load_le<std::uint64_t>(at + 8));
  ring.next += (shape >> 41) * kLineWords;
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
  const bool counts = ring.capacity_words != 0;
  ring.applier.store(kAwaitsEntries, std::memory_order_seq_cst);
  const bool ready = counts && ring.ready(std::memory_order_seq_cst);
  if (!ready && !ring.interrupted.load(std::memory_order_seq_cst)) {
    futex_wait(ring.applier, kAwaitsEntries, std::int64_t{ms} * 1000);
  }
  ring.applier.store(kAwake, std::memory_order_relaxed);
  ring.interrupted.exchange(false, std::memory_order_acquire);
}

void CommitLog::nap(int us) {
  Ring& ring = *ring_;
  ring.applier.store(kNaps, std::memory_order_seq_cst);
  if (!ring.interrupted.load(std::memory_order_seq_cst)) futex_wait(ring.applier, kNaps, us);
  ring.applier.store(kAwake, std::memory_order_relaxed);
  ring.interrupted.exchange(false, std::memory_order_acquire);
}

void CommitLog::interrupt() {
  Ring& ring = *ring_;
  ring.interrupted.store(true, std::memory_order_seq_cst);
  if (ring.applier.exchange(kAwake, std::memory_order_seq_cst) != kAwake) futex_wake(ring.applier);
}

std::uint64_t CommitLog::last_begun() const {
  return ring_->head.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::wal_mark() const {
  return ring_->wal_mark.load(std::memory_order_acquire);
}

std::uint64_t CommitLog::sync_mark() const {
  return ring_->sync_mark.load(std::memory_order_acquire);
}

// Only the applier stores the marks, so a check before the store keeps them monotonic.
void CommitLog::set_wal_mark(std::uint64_t sequence) {
  if (sequence > wal_mark()) ring_->wal_mark.store(sequence, std::memory_order_release);
}

void CommitLog::set_sync_mark(std::uint64_t sequence) {
  if (sequence > sync_mark()) ring_->sync_mark.store(sequence, std::memory_order_release);
}

void CommitLog::set_disk_state(DiskState state) {
  ring_->disk.store(state, std::memory_order_release);
}

DiskState CommitLog::disk_state() const {
  return ring_->disk.load(std::memory_order_acquire);
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
