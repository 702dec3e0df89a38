// The commit log: the bounded queue between the store and the disk, and the source of commit
// sequences.
//
// The log is a byte ring. Many threads append to it and one thread (the applier) consumes it in
// commit order. An entry's commit sequence is its position, counted in 8-byte words since the log
// was created, plus one. Taking a sequence and taking a place in the queue are one atomic step. So
// the disk sees the writes in commit order, without gaps. (Sequences are not consecutive: an entry
// of n words takes n of them.)
//
//   RKV_ASSIGN_OR_RETURN(const auto room, log.try_reserve(key.size(), value.size()));
//   // lock the key's pair, prepare the record ...
//   const auto ticket = log.begin(room);
//   // ... publish it under Version::of(boot, ticket.sequence) ...
//   log.finish(ticket, CommitLog::Kind::kPut, fields);
//
// A large value (longer than kMaxInlineBytes) is not copied into the ring. Its entry holds an
// *attachment*: the log's own copy, made before begin() and so outside every lock. The bytes of an
// attachment count like bytes of the ring.
//
// The log of a server in a group is *replicated*. A second thread, the replicator, reads each entry
// first (ReplicationReader) and sends it to the group's other replicas. It sets the replicated
// mark when all in-sync replicas have the entry in memory, and only then does the applier get it.
//
// Invariants:
//  CLOG-1  Space is reserved before anything is published: begin() never waits and never fails.
//  CLOG-2  Entries are consumed in sequence order, each once (except after rewind()). An entry is
//      visible to the consumer only after finish().
//  CLOG-3  Reserved and unconsumed bytes never exceed the capacity.
//  CLOG-4  Per key, sequences follow the order of publication: the caller holds the key's pair lock
//      from begin() to finish().
//  CLOG-5  Marks are upper bounds between entries: a mark m means that every entry whose sequence
//      is at or below m is applied. last_begun() and consumed() are bounds of the same kind. All
//      four can be compared with each other and with any sequence.
//  CLOG-6  In a replicated log consume() returns no entry above the replicated mark. So no database
//      has what a fail-over may take back, and advance() frees nothing that the replicator still
//      reads.
//  CLOG-7  The replicated mark never falls, and is never above what the replicator has read.
//  CLOG-8  group_sync_mark() <= group_wal_mark() <= replicated_mark(), if they are read in this
//      order. Without a group the first two follow sync_mark() and wal_mark().
//
// Which mark to use: wal_mark() and sync_mark() say what *this* server's database has, so they
// decide about reads from it, eviction and scans. group_wal_mark() and group_sync_mark() say what
// all in-sync replicas have, so they decide about answers to clients and what clients READ.
//
// Thread safety: consume, advance, rewind, consumed, bytes_consumed, wait_for_entries, nap,
// set_wal_mark, set_sync_mark and set_disk_state: the applier only. set_replicated_mark and
// set_group_marks: one thread of the replicator. All others: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/log/disk_state.h"
#include "server/log/write_tag.h"

namespace rkv::server {

class CommitLog {
 public:
  enum class Kind : std::uint8_t { kPut = 1, kRemove = 2 };
  // Whether a replicator reads the log before the applier.
  enum class Group : std::uint8_t { kNone, kReplicated };

  struct Entry {  // spans point into the ring or an attachment, and are valid until advance()
    std::uint64_t sequence = 0;
    Kind kind = Kind::kPut;
    RecordFields record;            // kRemove: version and key
    std::optional<WriteTag> tag{};  // of a replicated log: whose write it is
  };

  // Result of try_reserve(). Pass it to begin() or unreserve(), exactly once.
  struct Reservation {
    std::uint32_t words = 0;     // of the ring
    std::uint32_t attached = 0;  // words of the attachment
  };
  // A copy of a large value.
  using Attachment = std::unique_ptr<std::byte[]>;
  // Result of begin(). Pass it to finish() exactly once and soon: the applier waits for it.
  struct Ticket {
    std::uint64_t sequence = 0;
    std::uint32_t words = 0;
  };

  static constexpr std::size_t kMinCapacityBytes = std::size_t{1} << 20;
  // Minimum for a server: holds any write, and further writes while that one goes to disk.
  static constexpr std::size_t kMinServerCapacityBytes = 2 * kMaxValueBytes;
  static constexpr std::size_t kMaxCapacityBytes = std::size_t{1} << 36;  // 64 GiB

  // Creates a log whose entries go to disk. `capacity_bytes` is rounded up to a power of two and to
  // at least kMinCapacityBytes. A write longer than the whole ring is refused. The ready stamps
  // take another eighth of the capacity. All memory is allocated now, so that nothing can fail
  // later. kInvalidArgument: above kMaxCapacityBytes. kOutOfMemory: the system does not have that
  // much memory.
  static Result<std::unique_ptr<CommitLog>> create(std::size_t capacity_bytes,
                                                   Group group = Group::kNone);
  // Creates a log that only assigns sequences, above `first`, for a server without a data
  // directory. Nothing is consumed, space is not counted, and the applier's marks stay 0.
  static std::unique_ptr<CommitLog> create_volatile(std::uint64_t first = 0);
  ~CommitLog();
  CommitLog(const CommitLog&) = delete;
  CommitLog& operator=(const CommitLog&) = delete;

  // Reserves space for one write of this size. Does not block. kBusy: the queue is full; try again
  // a little later. kIo: the disk has failed; writes are refused until it works again. kTooLarge:
  // the write is longer than the whole queue. REQUIRES: lengths within the limits.
  Result<Reservation> try_reserve(std::size_t key_length, std::size_t value_length);
  // Gives the space back without a write.
  void unreserve(Reservation reservation);
  // Assigns the commit sequence. REQUIRES: the key's pair lock is held.
  Ticket begin(Reservation reservation);
  // Fills in the entry. Key and value are copied and may be shorter than reserved. REQUIRES: the
  // pair lock is still held. `attachment`: the copy of a large value, otherwise empty; a volatile
  // log does not use it. `tag`: nullptr if no client needs the outcome. REQUIRES: the log is
  // replicated if there is a tag.
  void finish(Ticket ticket, Kind kind, const RecordFields& record, Attachment attachment = {},
              const WriteTag* tag = nullptr);

  // Returns the next finished entry in order; false: none is ready. advance() frees everything up
  // to and including the last entry that consume() returned.
  bool consume(Entry* entry);
  void advance();
  // Makes consume() start again at the first entry not yet freed. Used after a disk failure.
  void rewind();
  // Upper bound of the entries that consume() has returned. The applier sets the marks to it.
  std::uint64_t consumed() const;
  // Bytes that advance() would free: all entries consumed, copies of large values included.
  std::uint64_t bytes_consumed() const;
  // Sleeps until consume() may return an entry, interrupt() is called, or `ms` have passed.
  void wait_for_entries(int ms);
  // Sleeps until interrupt() is called or `us` have passed. Entries do not end it, so writers do
  // not pay for a wake-up meanwhile.
  void nap(int us);
  // Ends the current or next wait_for_entries() or nap().
  void interrupt();

  // Upper bound of all sequences assigned so far: every acknowledged write is at or below it.
  std::uint64_t last_begun() const;
  // Upper bound of what the applier may get: last_begun(), in a replicated log at most the
  // replicated mark. Nothing above it has been answered at the levels `wal` and `sync`.
  std::uint64_t last_for_disk() const;
  // Monotonic, set by the applier. Every write at or below wal_mark is in this server's write-ahead
  // log (handed to the operating system). Every write at or below sync_mark is synced to its disk.
  std::uint64_t wal_mark() const;
  std::uint64_t sync_mark() const;
  void set_wal_mark(std::uint64_t sequence);
  void set_sync_mark(std::uint64_t sequence);

  // Whether the log is replicated. It never changes.
  bool is_replicated() const { return group_ == Group::kReplicated; }
  // Every write at or below this is in the memory of all in-sync replicas. Without a group there is
  // nothing to wait for: it is above every sequence.
  std::uint64_t replicated_mark() const;
  // Every write at or below these is in the write-ahead log, or on the disk, of all in-sync
  // replicas.
  std::uint64_t group_wal_mark() const;
  std::uint64_t group_sync_mark() const;
  // Does nothing if it is below the mark. Wakes the applier. REQUIRES: is_replicated(), CLOG-7.
  void set_replicated_mark(std::uint64_t sequence);
  // Neither falls. REQUIRES: is_replicated(), sync <= wal <= replicated_mark().
  void set_group_marks(std::uint64_t wal, std::uint64_t sync);

  // While the state is not kOk, writes are refused (refusal()).
  void set_disk_state(DiskState state);
  DiskState disk_state() const;
  bool failed() const { return disk_state() != DiskState::kOk; }
  // Whether another replica of the group takes over when the disk fails. Until it has, clients are
  // to wait: its disk will take what they write. Any thread.
  void set_successor(bool exists);
  // The disk has failed, and nobody takes over.
  bool has_failed_for_good() const;
  // The error for a client while the disk fails, of what was not done: kBusy if another replica
  // takes over, else refusal_of().
  Error refusal(Refused what) const;

  bool is_volatile() const;
  std::uint64_t bytes_queued() const;  // reserved or not yet freed by advance()
  std::uint64_t capacity_bytes() const;
  std::uint64_t refused() const;  // reservations answered kBusy, since the start

 private:
  friend class ReplicationReader;
  // See ReplicationReader.
  bool read_next(Entry* entry);
  std::uint64_t read_through() const;
  void wait_for_unread(int ms);
  void interrupt_reader();

  struct Ring;
  CommitLog(std::unique_ptr<Ring> ring, Group group);
  const Group group_;
  std::unique_ptr<Ring> ring_;
};

}  // namespace rkv::server
