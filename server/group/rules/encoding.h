// The messages of messages.h as bytes. Little-endian.
//
//   head 24: "RKVG" | version 2 | kind 2 | length of the whole 4 | zero 4 | checksum 8
//   Hello 48, then the name, the address, and 12 bytes for each term:
//     group 8 | epoch 8 | term 4 | start: term 4, version 8 | terms 4 | length of name 2, of
//     address 2 | zero 8
//   Entries 96, then the block's bytes:
//     number 8 | term 4 | previous: term 4, version 8 | block's last: term 4, zero 4, version 8
//     (version 0: no block) | marks: replicated 8, wal 8, sync 8 | unix_ms 8 | wanted: wal
//     8, sync 8 | zero 8
//   Answer 48: number 8 | last: term 4, zero 4, version 8 | wal 8 | sync 8 |
//     may lead (0 or 1) 4, zero 4
//   HandOver 8: term 4 | zero 4
//   LaneOffer 20: token 16 | port for verbs 2, for shared memory 2
//   LaneSwitch 0
//   LaneEnd 8: messages 8
//   NoLane 0
//   CopyRequest 24, then the name and the address:
//     group 8 | epoch 8 | term 4 | length of name 2, of address 2
//   CopyNeeded 0
//   CopyWait 0
//   CopyBegin 16: files 8 | bytes 8
//   CopyFile 8, then the name: bytes 8
//   CopyPiece: the bytes, at least one
//   CopyEnd 24: files 8 | bytes 8 | digest 8
//
// The checksum is XXH3-64 of the whole message with zeros in the checksum's place. TCP does not
// detect every damaged byte, and a damaged log is worse than an ended connection.
//
// Invariants:
//  REPMSG-1  A decoder accepts exactly what the encoder produces, within the limits below.
//  REPMSG-2  Bytes from a peer are refused, never asserted.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "common/bytes.h"
#include "rkv/result.h"
#include "server/group/rules/messages.h"

namespace rkv::server {

inline constexpr std::uint16_t kReplicationVersion = 7;  // 7: a tag may name a touch
inline constexpr std::size_t kReplicationHeadBytes = 24;
// A block holds at least the longest entry.
inline constexpr std::size_t kMaxBlockBytes = std::size_t{32} << 20;
inline constexpr std::size_t kMaxHelloBytes = std::size_t{1} << 20;

inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxFileNameBytes = 64;

using ReplicationMessage =
    std::variant<Hello, Entries, Answer, LaneOffer, LaneSwitch, LaneEnd, NoLane, CopyNeeded,
                 CopyRequest, CopyWait, CopyBegin, CopyFile, CopyPiece, CopyEnd, HandOver>;

// REQUIRES: names and addresses that GroupConfiguration allows; blocks of at most kMaxBlockBytes;
// pieces and names of files within their limits. Only the newest terms of a history are encoded, as
// many as fit into kMaxHelloBytes.
std::vector<std::byte> encode(const Hello& hello);
std::vector<std::byte> encode(const Entries& entries);
std::vector<std::byte> encode(const Answer& answer);
std::vector<std::byte> encode(const HandOver& hand_over);
std::vector<std::byte> encode(const LaneOffer& offer);
std::vector<std::byte> encode(const LaneSwitch& change);
std::vector<std::byte> encode(const LaneEnd& end);
std::vector<std::byte> encode(const NoLane& none);
std::vector<std::byte> encode(const CopyNeeded& needed);
std::vector<std::byte> encode(const CopyRequest& request);
std::vector<std::byte> encode(const CopyWait& wait);
std::vector<std::byte> encode(const CopyBegin& begin);
std::vector<std::byte> encode(const CopyFile& file);
std::vector<std::byte> encode(const CopyPiece& piece);
std::vector<std::byte> encode(const CopyEnd& end);

// Returns the length of a whole message, from its head. kCorrupt: not a message, or above the
// limits. kVersionMismatch: the message is of another version.
Result<std::size_t> replication_message_bytes(Bytes head);
// Decodes a whole message. Errors as above.
Result<ReplicationMessage> decode_replication(Bytes message);
// Whether a whole message is an undamaged LaneSwitch.
bool is_lane_switch(Bytes message);
// Decodes the message if it is an undamaged LaneEnd.
std::optional<LaneEnd> lane_end_of(Bytes message);

}  // namespace rkv::server
