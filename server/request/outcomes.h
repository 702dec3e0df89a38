// Outcomes: the outcomes of one session's writes, for a client that has lost an answer. The idea is
// that of NFSv4.1's sessions (RFC 8881, section 2.10.6).
//
// A client has at most as many requests unanswered as it has credits. Each is in a lane of its own,
// which its sequence names (lane_of() in wire.h). A later request in a lane says that the client
// has the answers to the earlier ones. So one outcome for each lane suffices, and memory is
// bounded by the credits: about 300 bytes a session, and 1 KiB for each lane that has had a pack.
//
// Invariants:
//  ONCE-1  The outcome of a write is kept in the turn in which the worker has applied it, before
//      anything else of its session is done and before the table can be given away. So a write
//      without an outcome was not applied.
//  ONCE-2  A table is given away only when its session is ending, and then no request of the
//      session begins (SessionTable::end_session). So a write that has no outcome in an archived
//      table never will be applied. The client may send it again: it is applied once.
//  ONCE-3  A table that was dropped is not replaced by an empty one. Its outcomes are then "not
//      known". So no session that the server has forgotten looks like one that has written nothing.
//  ONCE-4  The table has the mark that a durable write awaits; in a replicated log every write
//      awaits one. The write is reported as applied only when the mark has passed it, like the
//      write's own answer (SERVE-6).
//  ONCE-5  Only a client of the same user learns anything about a session. Nobody does about a
//      session of a revoked user.
// No window of numbers and no lower bound is needed. A lane has no number below its outcome that
// the client may still ask for, and the client cannot run ahead of a lane without its answer.
//
// Only outcomes of applied writes are kept. A write that was refused has changed nothing, so "not
// applied" is true of it. The client sends it again, and it takes effect or is refused at another
// instant of the same call. So if the refusal of a PUT with kConflict is lost, it is not answered
// from here. A PUT that was applied is answered from here, and never conflicts with itself.
//
// A client that breaks the rule of the lanes gets wrong answers about its own writes only.
//
// Thread safety: one owner, the worker, until the table is given away; a value that does not change
// after that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/pack.h"
#include "common/wire.h"
#include "server/request/session.h"

namespace rkv::server {

// The answer to an applied write.
struct KeptOutcome {
  std::uint64_t sequence = 0;              // 0: none yet
  std::uint64_t through = 0;               // if it awaits a mark: the sequence to reach
  Durability level = Durability::kMemory;  // the level of that mark
  std::uint8_t flags = 0;
  std::uint16_t length = 0;  // of the value
  Version version{};
  Slot slot{};
  std::array<std::byte, kCounterBytes> number{};  // the value, unless it is longer
};

class Outcomes {
 public:
  // The mark that a write awaits.
  struct Mark {
    Durability level = Durability::kMemory;
    std::uint64_t through = 0;  // kMemory and 0: none
  };
  // Keeps the outcome of an applied write, in place of the earlier one of its lane. `value`: the
  // answer's value, or the outcome of a pack; kMostOutcomeBytes at most. Allocates for the first
  // pack of a lane.
  void keep(const Response& answer, Bytes value, const Mark& mark);

  enum class Fate : std::uint8_t { kApplied, kNotApplied, kNotKnown };
  // Returns the fate of the write with this sequence. REQUIRES: the sequence is not 0.
  Fate fate_of(std::uint64_t sequence) const;
  // REQUIRES: fate_of() is kApplied.
  const KeptOutcome& applied(std::uint64_t sequence) const { return kept_[lane_of(sequence)]; }
  Bytes value_of(std::uint64_t sequence) const {
    const KeptOutcome& kept = applied(sequence);
    const bool is_short = kept.length <= kept.number.size();
    return (is_short ? Bytes(kept.number) : Bytes(*packs_[lane_of(sequence)])).first(kept.length);
  }

 private:
  using PackOutcome = std::array<std::byte, kMostOutcomeBytes>;
  std::array<KeptOutcome, kMaxCredits> kept_{};
  std::array<std::unique_ptr<PackOutcome>, kMaxCredits> packs_;
};
// server/MANUAL.md states these sizes for a client that has disconnected.
static_assert(sizeof(Outcomes) <= 300 && kMaxCredits * kMostOutcomeBytes <= 4096);

}  // namespace rkv::server
