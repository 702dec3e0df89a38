// The messages between replicas of a group, over a connection that a backup makes to the primary.
// Each arrives whole, in order and once, or the connection ends.
//
//   backup:  Hello, then an Answer to what it has received
//   primary: Entries again and again; without a block they are a heartbeat. At last perhaps a
//            HandOver
//   primary: perhaps a LaneOffer. A backup that cannot make the lane says NoLane
//   either:  LaneSwitch, once there is a lane, and LaneEnd when the lane has ended
//
// Over a second connection, if a replica's log is too old for the primary's:
//
//   backup:  CopyRequest
//   primary: CopyWait again and again, CopyBegin, for each file CopyFile and its pieces, CopyEnd
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/group/configuration/configuration.h"
#include "server/group/rules/replica_log.h"

namespace rkv::server {

// The versions up to which entries are in the memory, logs or on the disks of all replicas in sync.
struct Marks {
  std::uint64_t replicated = 0;  // in the memory of all replicas in sync
  std::uint64_t wal = 0;         // in the write-ahead logs of all of them
  std::uint64_t sync = 0;        // on the disks of all of them
  bool operator==(const Marks&) const = default;
};

// The versions up to which a client waits for the write-ahead logs, or for the disks.
struct Wanted {
  std::uint64_t wal = 0;
  std::uint64_t sync = 0;
  bool operator==(const Wanted&) const = default;
};

struct Hello {
  Replica replica;  // who connects
  std::uint64_t group = 0;
  std::uint32_t term = 0;  // the highest that it has obeyed
  LogPosition start;       // behind it, its log is in memory and can be cut
  TermHistory history;
};

struct Entries {
  std::uint32_t term = 0;    // of the primary
  std::uint64_t number = 0;  // of this message on its connection, from 1
  // The last position that both logs have: the backup's log ends here, or is cut here.
  LogPosition previous;
  std::optional<EntryBlock> block{};
  Marks marks;
  std::uint64_t unix_ms = 0;  // the primary's time when it sends it (group_time.h)
  Wanted wanted{};
};

// The backup's state when it sends this answer. The answer promises not to act as the primary for
// the lease's length.
struct Answer {
  std::uint64_t number = 0;  // of the newest message received
  LogPosition last;
  std::uint64_t wal = 0;
  std::uint64_t sync = 0;
  bool may_lead = true;  // it could serve clients: disk, devices, limits
};

// The primary has given up its lease: no client believes it any more. The backup may take over, and
// act at once.
struct HandOver {
  std::uint32_t term = 0;  // of the primary
};

// One-time token: its holder may make the lane.
using LaneToken = std::array<std::byte, 16>;

// The backup may make a lane (replica_lane.h) at one of these ports of the primary's host.
struct LaneOffer {
  LaneToken token{};
  std::uint16_t verbs_port = 0;  // 0: not over this transport
  std::uint16_t shm_port = 0;    // likewise; not both
};

// The last message of its sender over TCP: later messages come by the lane.
struct LaneSwitch {};

// The lane has ended: later messages come over TCP. Each end sends it once for each lane that
// either end has changed to. It is the sender's first message over TCP behind its LaneSwitch. Its
// receiver sends again the messages that it sent by the lane, except the first `messages`.
struct LaneEnd {
  std::uint64_t messages = 0;  // count that the sender has received whole by the lane
};

// The backup could not make the lane that was offered.
struct NoLane {};

// Answers a Hello: the primary's log does not continue from the end of the replica's log. The
// replica needs a copy of the database, for which it makes another connection.
struct CopyNeeded {};

// Asks for a copy of the primary's database.
struct CopyRequest {
  Replica replica;  // who asks
  std::uint64_t group = 0;
  std::uint32_t term = 0;  // the highest that it has obeyed
};

// Another copy comes first, or the database is being copied on the primary's disk.
struct CopyWait {};

// Announces the files of the copy.
struct CopyBegin {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// Begins a file: the pieces up to the next CopyFile are its bytes.
struct CopyFile {
  std::string name;
  std::uint64_t bytes = 0;
};

struct CopyPiece {
  std::vector<std::byte> bytes;
};

// The totals of all that was sent. If the receiver has anything else, the copy is refused.
struct CopyEnd {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // CopyDigest
};

}  // namespace rkv::server
