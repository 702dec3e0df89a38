// What the replicas of a group say to each other over one connection, which a backup makes to the
// primary: it arrives whole, in order and once, or the connection ends.
//
//   backup:  Hello, then an Answer to what it has received
//   primary: Entries again and again; without a block they are a heartbeat. At last perhaps a
//            HandOver
//   primary: perhaps a LaneOffer. A backup that makes the lane says nothing to it
//   either:  LaneSwitch, once there is a lane
//
// And over another one, where a replica's log is too old for the primary's:
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

#include "server/group/configuration.h"
#include "server/replication/replica_log.h"

namespace rkv::server {

// Up to which version something is true.
struct Marks {
  std::uint64_t replicated = 0;  // in the memory of all replicas in sync
  std::uint64_t wal = 0;         // in the write-ahead logs of all of them
  std::uint64_t sync = 0;        // on the disks of all of them
  bool operator==(const Marks&) const = default;
};

// Up to which version somebody waits until it is in the write-ahead logs, or on the disks.
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
  // The backup's log ends here, or is cut here: the last position that both logs have.
  LogPosition previous;
  std::optional<EntryBlock> block{};
  Marks marks;
  std::uint64_t unix_ms = 0;  // the group's time, proposed
  Wanted wanted{};
};

// What a backup has when it sends it. It promises not to act as the primary for the lease's length.
struct Answer {
  std::uint64_t number = 0;  // of the newest message received
  LogPosition last;
  std::uint64_t wal = 0;
  std::uint64_t sync = 0;
  std::uint64_t unix_ms = 0;
};

// The primary has given up its lease: no client believes it any more. The backup may take over, and
// act at once.
struct HandOver {
  std::uint32_t term = 0;  // of the primary
};

// Who has it may make the lane, once.
using LaneToken = std::array<std::byte, 16>;

// The backup may make a lane (replica_lane.h) at one of these ports of the primary's host.
struct LaneOffer {
  LaneToken token{};
  std::uint16_t verbs_port = 0;  // 0: not over this transport
  std::uint16_t shm_port = 0;    // likewise; not both
};

// The last message of its sender over TCP: what follows comes by the lane.
struct LaneSwitch {};

// Answers a Hello: the primary's log does not lead to where the replica's ends. The replica needs a
// copy of the database, for which it makes another connection.
struct CopyNeeded {};

// Asks for a copy of the primary's database.
struct CopyRequest {
  Replica replica;  // who asks
  std::uint64_t group = 0;
  std::uint32_t term = 0;  // the highest that it has obeyed
};

// Another copy comes first, or the database is being copied on the primary's disk.
struct CopyWait {};

// What will come.
struct CopyBegin {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// The pieces up to the next such message are this file.
struct CopyFile {
  std::string name;
  std::uint64_t bytes = 0;
};

struct CopyPiece {
  std::vector<std::byte> bytes;
};

// What has come: all of it, or the copy is not one.
struct CopyEnd {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // CopyDigest
};

}  // namespace rkv::server
