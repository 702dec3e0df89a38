// LoggedOutcomes: what the tagged writes of a group's log have answered, for the clients of an
// earlier primary that have lost an answer. A backup notes each entry that goes to its database.
// When it is the primary, its workers look here for the writes of other primaries.
//
// The log has no entries of writes that were refused or never arrived. So a write that is not here
// was not applied, if this table has seen every entry that could be it. A client says how old the
// write can be at most: `since` is a version that it knew to be replicated before it sent the
// write, so the write's version is higher.
//
// Invariants:
//  OLOG-1  Every tagged entry above the floor was noted and is here, unless a later request of its
//      lane has replaced it. Then the client has had its answer (lane_of() in wire.h).
//  OLOG-2  Memory is bounded: a session that is dropped for another one raises the floor to its
//      last write. So no session that was dropped looks like one that has written nothing.
//  OLOG-3  "Not applied" is said only of a write above the floor. It is true of this replica's log.
//      That no later primary has the write, the caller must know (ReplicationRounds).
//  OLOG-4  To another user a session is not known, and neither is it "has written nothing": a
//      user's line in the file may have been changed between two primaries.
//
// Thread safety: none while entries are noted; afterwards any thread may find.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/log/commit_log.h"

namespace rkv::server {

class LoggedOutcomes {
 public:
  // Some 1 KiB each, and 3 KiB more if the client sends packs.
  static constexpr std::size_t kMostSessions = 4096;
  // A client has as many requests unanswered at most.
  static constexpr std::uint64_t kKeptLanes = 4;

  // The answer to one operation of a write.
  struct Operation {
    Version version{};
    std::int64_t number = 0;  // kAdd, kSwap
    Opcode opcode = Opcode::kPut;
    std::uint8_t index = 0;  // in its pack
  };
  enum class Fate : std::uint8_t { kApplied, kNotApplied, kNotKnown };
  struct Found {
    Fate fate = Fate::kNotKnown;
    std::uint8_t count = 0;                   // operations of the pack; 0: it was not a pack
    std::span<const Operation> operations{};  // that were applied; valid until the next note()
  };

  // Entries above `floor` will be noted.
  explicit LoggedOutcomes(Version floor, std::size_t most_sessions = kMostSessions)
      : floor_(floor), most_sessions_(most_sessions) {}
  LoggedOutcomes(const LoggedOutcomes&) = delete;
  LoggedOutcomes& operator=(const LoggedOutcomes&) = delete;

  // The log has this entry for good. In the log's order, each once. Allocates for new sessions, and
  // for longer packs.
  void note(const CommitLog::Entry& entry);
  // Returns the outcome of a write. `since`: a version that was replicated before the write was
  // sent.
  Found find(std::uint64_t session, std::uint64_t user, std::uint64_t sequence,
             Version since) const;

 private:
  struct Lane {
    std::uint64_t sequence = 0;  // 0: none yet
    std::uint8_t count = 0;
    std::vector<Operation> operations{};
  };
  struct Session {
    std::uint64_t number = 0;
    std::uint64_t user = 0;
    Version last{};
    std::array<Lane, kKeptLanes> lanes{};
  };
  using Sessions = std::list<Session>;

  Session& session_of(const WriteTag& tag);

  Version floor_;
  const std::size_t most_sessions_;
  Sessions sessions_;  // who wrote last is at the end
  std::unordered_map<std::uint64_t, Sessions::iterator> by_number_;
};

}  // namespace rkv::server
