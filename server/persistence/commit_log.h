// The commit log: the bounded queue between the store and the disk, and the source of commit
// sequences.
//
// A byte ring that many threads append to and one thread (the applier) consumes in commit order.
// An entry's commit sequence is its position in the ring counted in 8-byte words since the log was
// made, plus one: taking a sequence and taking a place in the queue are one atomic step, so the
// order in which the disk sees writes is the commit order, whole and without gaps. (Sequences
// themselves are not consecutive: an entry of n words takes n of them.)
//
//   RKV_ASSIGN_OR_RETURN(const auto room, log.try_reserve(key.size(), value.size()));
//   // lock the key's pair, prepare the record ...
//   const auto ticket = log.begin(room);
//   // ... publish it under Version::of(boot, ticket.sequence) ...
//   log.finish(ticket, CommitLog::Kind::kPut, fields);
//
// A large value (longer than kMaxInlineBytes) is not copied into the ring: the entry holds an
// *attachment*, the log's own copy, which was made before begin() and so outside every lock. Its
// bytes count like bytes of the ring.
//
// Invariants:
//  C1  Room is reserved before anything is published: begin() never waits and never fails.
//  C2  Entries are consumed in sequence order, each once (but for rewind()); an entry is visible to
//      the consumer only after finish().
//  C3  Reserved and unconsumed bytes never exceed the capacity.
//  C4  Per key, sequences follow the order of publication (the caller holds the key's pair lock
//      from begin() to finish()).
//  C5  Marks are upper bounds between entries: a mark m means that every entry whose sequence is
//      at or below m is applied. last_begun() and consumed() are such bounds too, so all four can
//      be compared with each other and with any sequence.
//
// Thread safety: try_reserve, unreserve, begin, finish, interrupt, the marks: any thread. consume,
// advance, rewind, consumed, wait_for_entries, nap: the applier only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/persistence/disk_state.h"

namespace rkv::server {

class CommitLog {
 public:
  enum class Kind : std::uint8_t { kPut = 1, kRemove = 2 };

  struct Entry {  // as the applier sees it; spans point into the ring until advance()
    std::uint64_t sequence = 0;
    Kind kind = Kind::kPut;
    RecordFields record;  // kRemove: version and key
  };

  // What try_reserve() gave; hand it to begin() or unreserve(), exactly once.
  struct Reservation {
    std::uint32_t words = 0;     // of the ring
    std::uint32_t attached = 0;  // words of the attachment
  };
  // A copy of a large value.
  using Attachment = std::unique_ptr<std::byte[]>;
  // What begin() gave; hand it to finish(), exactly once and soon: the applier waits for it.
  struct Ticket {
    std::uint64_t sequence = 0;
    std::uint32_t words = 0;
  };

  static constexpr std::size_t kMinCapacityBytes = std::size_t{1} << 20;
  // Room for any write, and for more to come while it is written: what a server must have at least.
  static constexpr std::size_t kMinServerCapacityBytes = 2 * kMaxValueBytes;
  static constexpr std::size_t kMaxCapacityBytes = std::size_t{1} << 36;  // 64 GiB

  // A log whose entries go to disk. `capacity_bytes` is rounded up to a power of two and is at
  // least kMinCapacityBytes; a write that is longer than the whole is refused. An eighth of it
  // is used on top for the ready stamps. kInvalidArgument above kMaxCapacityBytes; kOutOfMemory
  // when the system has not that much: all of it is taken now, so that nothing can fail later.
  static Result<std::unique_ptr<CommitLog>> create(std::size_t capacity_bytes);
  // A log that only numbers commits, above `first`: for a server without a data directory. Nothing
  // is consumed, no room is counted, the marks stay 0.
  static std::unique_ptr<CommitLog> create_volatile(std::uint64_t first = 0);
  ~CommitLog();
  CommitLog(const CommitLog&) = delete;
  CommitLog& operator=(const CommitLog&) = delete;

  // Room for one write of this size. kBusy: the queue is full, try again a little later. kIo: the
  // disk has failed, no write is taken until it is well. kTooLarge: never, the whole queue is
  // shorter. Lengths are within the limits.
  Result<Reservation> try_reserve(std::size_t key_length, std::size_t value_length);
  void unreserve(Reservation reservation);
  // Assigns the commit sequence. Under the key's pair lock.
  Ticket begin(Reservation reservation);
  // Fills the entry in; key and value are copied and may be shorter than what was reserved. Under
  // the same lock.
  // `attachment`: the value, if it is large; unused by a volatile log.
  void finish(Ticket ticket, Kind kind, const RecordFields& record, Attachment attachment = {});

  // The applier: the next finished entry in order, or nothing yet. advance() frees everything up
  // to and with the last entry returned by consume().
  bool consume(Entry* entry);
  void advance();
  // consume() starts again at the first entry not yet freed: after trouble with the disk.
  void rewind();
  // Everything at or below it has been returned by consume(): what the applier makes a mark.
  std::uint64_t consumed() const;
  // What advance() would free: the bytes of what was consumed, copies of large values included.
  std::uint64_t bytes_consumed() const;
  // Sleeps until consume() may return something, interrupt() was called, or `ms` have passed.
  void wait_for_entries(int ms);
  // Sleeps until interrupt() was called or `us` have passed; entries do not end it, so that
  // writers pay for no wake-up meanwhile.
  void nap(int us);
  void interrupt();

  // No write begun so far has a sequence above it: everything acknowledged is at or below it.
  std::uint64_t last_begun() const;
  // Set by the applier, monotonic: every write at or below it is in the write-ahead log (handed to
  // the operating system) / synced to the disk.
  std::uint64_t wal_mark() const;
  std::uint64_t sync_mark() const;
  void set_wal_mark(std::uint64_t sequence);
  void set_sync_mark(std::uint64_t sequence);
  // Writes are refused with kIo (refusal_of()) while it is not well.
  void set_disk_state(DiskState state);
  DiskState disk_state() const;
  bool failed() const { return disk_state() != DiskState::kWell; }

  bool is_volatile() const;
  std::uint64_t bytes_queued() const;  // reserved or not yet freed by advance()
  std::uint64_t capacity_bytes() const;
  std::uint64_t refused() const;  // reservations answered kBusy, since the start

 private:
  struct Ring;
  explicit CommitLog(std::unique_ptr<Ring> ring);
  std::unique_ptr<Ring> ring_;
};

}  // namespace rkv::server
