// Messages between client and server, and the private data of connection set-up. WIRE.md specifies
// every byte with a worked example; this file implements it. Little-endian.
//
// Invariants:
//  WIRE-1  A decoder accepts exactly what the encoder produces: lengths add up to the message's
//      size; unknown opcodes, flags and reserved bits are refused. Bytes from a peer are never
//      asserted.
//  WIRE-2  A response carries the sequence of its request. A connection answers each request once,
//      in any order.
//
// Thread safety: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/auth/proof.h"
#include "common/auth/role.h"
#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/durability.h"
#include "rkv/limits.h"
#include "rkv/result.h"

namespace rkv {

// ------------------------------------------------------------------------------- private data

inline constexpr std::uint32_t kWireMagic = 0x3156'4B52U;  // "RKV1"
inline constexpr std::uint16_t kWireVersion = 6;
inline constexpr std::size_t kConnectRequestBytes = 56;
inline constexpr std::size_t kConnectAcceptBytes = 96;
inline constexpr std::size_t kConnectAcceptLeastBytes = 88;  // of a server that knows no packs
inline constexpr std::size_t kConnectAcceptMaxBytes = 112;   // of a server that has users
inline constexpr std::size_t kConnectRejectMaxBytes = 148;
inline constexpr std::size_t kMaxServerAddressBytes = 96;  // in a reject
inline constexpr std::size_t kConnectAnswerOffset = 96;    // of the server's answer in an accept

struct ConnectRequest {
  std::uint16_t credits_wanted = 0;     // requests in flight that the client asks for; below 2^15
  bool checks_group = false;            // it believes a group's server by its group line only
  std::uint64_t session_to_resume = 0;  // last session, which the server ends; 0 = none
  std::uint64_t client_nonce = 0;
  // At most 24 bytes, for the server's log; not trusted. Not sent with a user.
  std::string_view name{};
  std::uint32_t user = 0;   // number_of_user(); 0 = none
  std::uint64_t stamp = 0;  // of the challenge that `proof` answers; 0 = asks for a challenge
  Proof proof{};            // not sent without a stamp
  // Covered by the proof: credits_wanted and checks_group in the form in which they are sent.
  std::uint16_t credits_field() const {
    return static_cast<std::uint16_t>(credits_wanted | (checks_group ? 0x8000U : 0U));
  }
};
struct RemoteWindow {  // a region of the server; length 0 = not granted
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t length = 0;
};
struct ConnectAccept {
  std::uint64_t epoch = 0;              // random per server start, never 0
  std::uint64_t session = 0;            // issued by the server
  std::uint16_t credits = 0;            // requests this client may have in flight, >= 1
  std::uint32_t max_message_bytes = 0;  // longest request or response
  // Longest request to SEND, a multiple of 64; a longer request goes as kLong. At most
  // max_message_bytes.
  std::uint32_t max_sent_bytes = 0;
  RemoteWindow root{};
  RemoteWindow hints{};
  RemoteWindow counters{};
  std::uint64_t server_us = 0;   // as Response::server_us
  std::uint16_t max_packed = 0;  // operations in a pack; 0 = the server knows no packs
  bool in_group = false;         // the group line says when to believe what is READ
  // Tells what is served from other stores: the number of the group, which all its servers have, or
  // that of the data directory; 0: the data is in memory only.
  std::uint32_t store = 0;
  // From a server that knows the user: make_answer() over the bytes before it.
  std::optional<Proof> answer{};
};
// The challenge that a client with a user must include in its proof.
struct Challenge {
  std::uint64_t stamp = 0;  // the server's clock in microseconds, never 0
  Proof cookie{};
};
struct ConnectReject {
  Code code = Code::kInternal;
  std::string_view text{};  // one sentence for a person; cut to what fits
  std::optional<Challenge> challenge{};
  // With kNotPrimary: HOST:PORT of the primary as the server knows it; empty = it knows none.
  // Without a challenge only; longer than kMaxServerAddressBytes = left out.
  std::string_view primary{};
};
// Whether these bytes of a peer can be HOST:PORT or [IPv6]:PORT: printable, and a port above 0.
bool is_server_address(std::string_view text);

// `out` holds at least the kConnect...Bytes named above. Returns the bytes written.
std::size_t encode(const ConnectRequest& request, MutableBytes out);
std::size_t encode(const ConnectAccept& accept, MutableBytes out);
std::size_t encode(const ConnectReject& reject, MutableBytes out);
// Views point into `bytes`. kVersionMismatch: another version of this protocol. kCorrupt: not this
// protocol. The bytes may be padded with zeros at the end, as librdmacm does.
Result<ConnectRequest> decode_connect_request(Bytes bytes);
Result<ConnectAccept> decode_connect_accept(Bytes bytes);
Result<ConnectReject> decode_connect_reject(Bytes bytes);

// ----------------------------------------------------------------------------------- messages

enum class Opcode : std::uint8_t {
  kGet = 1,     // key                 -> value, version
  kPut = 2,     // key, value          -> version, slot
  kRemove = 3,  // key                 -> version; kNotFound when there was none
  kPing = 4,    // nothing             -> nothing
  kFlush = 5,   // nothing             -> version: every write up to it is on disk
  kStats = 6,   // nothing             -> value: a JSON object, UTF-8
  kAdd = 7,     // key, summand        -> version, slot, value: the new number
  kSwap = 8,    // key, two numbers    -> version, slot, value: the number afterwards
  // A put whose value the server READs from the client's memory, before it answers.
  kPutLarge = 9,  // key, ValueSource  -> version, slot
  // From now on, clients of the requester's network change the counter by atomics.
  kOpenCounter = 10,  // key, 1 byte: whether to create it -> version, value: its cell, or kNoCell
  kBackup = 11,       // the backup's name -> version: every write up to it is in the backup
  kScan = 12,  // a ScanQuery (scan.h) -> version: every write up to it is seen; value: a page
  kLong = 13,  // a MessageSource: where the request itself is -> the response to that request
  kPack = 14,  // operations (pack.h) -> value: their results
  // Asks for the outcome of a write of an earlier session.
  kOutcome = 15,  // a WriteId -> as the write itself; kNotFound: not applied; kStale: not known
  kRevoke = 16,   // a user's name -> value: how many of its sessions were ended, 8 bytes
  // For the server's replicated group. Both take a replica's name.
  kMovePrimary = 17,    // -> nothing: the server hands over to that replica
  kRemoveReplica = 18,  // -> nothing: the replica has left the group
  // Sets or ends a key's time to live. Its value stays.
  kTouch = 19,        // key -> version, slot; kNotFound when it does not exist
  kSetLogLevel = 20,  // debug, info, warn or error -> nothing
};
inline constexpr Opcode kLastOpcode = Opcode::kSetLogLevel;
// A backup's name: letters, digits, '.', '_' and '-'; the first character is neither '.' nor '-'.
// It becomes a file name on the server's host, so no other characters are allowed.
inline constexpr std::size_t kMaxBackupNameBytes = 128;
bool is_backup_name(std::string_view name);
// In place of a cell: the counter has none and is changed by requests.
inline constexpr std::uint64_t kNoCell = ~std::uint64_t{0};
inline constexpr std::size_t kCellAnswerBytes = 8;
inline constexpr std::size_t kRevokeAnswerBytes = 8;
inline constexpr std::size_t kMaxUsedHashes = 64;  // in a kGet
// Precondition on the key of a write. If it does not hold, the write is answered with kConflict.
enum class Condition : std::uint8_t {
  kNone = 0,
  kIfAbsent = 1,   // kPut: there is no such key
  kIfVersion = 2,  // kPut, kTouch, kRemove: the key has this version; kNotFound when there is none
};

inline constexpr std::size_t kRequestHeaderBytes = 40;
inline constexpr std::size_t kResponseHeaderBytes = 64;
inline constexpr std::size_t kMaxMessageBytes =
    round_up(kRequestHeaderBytes + kMaxKeyBytes + kMaxInlineBytes, 64);

// The location of a large value in the client's memory, and its expected digest.
struct ValueSource {
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t length = 0;  // kMaxInlineBytes + 1 to kMaxValueBytes
  std::uint64_t digest = 0;  // layout.h
};
inline constexpr std::size_t kValueSourceBytes = 24;
void encode(const ValueSource& source, MutableBytes out);
// kInvalidArgument, kTooLarge: with a sentence. REQUIRES: `bytes` has kValueSourceBytes.
Result<ValueSource> decode_value_source(Bytes bytes);

// The location of a request in the client's memory, if it is too long to be SENT.
struct MessageSource {
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t length = 0;  // kRequestHeaderBytes to kMaxMessageBytes
};
inline constexpr std::size_t kMessageSourceBytes = 16;
void encode(const MessageSource& source, MutableBytes out);
// kInvalidArgument, kTooLarge: with a sentence. REQUIRES: `bytes` has kMessageSourceBytes.
Result<MessageSource> decode_message_source(Bytes bytes);

// A client that has lost the answer to a write asks for it by these numbers.
struct WriteId {
  std::uint64_t session = 0;   // of the connection that the write was sent over; not 0
  std::uint64_t sequence = 0;  // of the write; not 0
};
inline constexpr std::size_t kWriteIdBytes = 16;
void encode(const WriteId& write, MutableBytes out);
// kInvalidArgument: with a sentence. REQUIRES: `bytes` has kWriteIdBytes.
Result<WriteId> decode_write_id(Bytes bytes);

// The lanes of a session. A request is in the lane that its sequence names. The client sends it
// only when it has the answers to all earlier requests of the lane, and its sequence is higher than
// theirs. So the server keeps one outcome for each lane.
inline constexpr std::uint64_t kLanes = 16;
constexpr std::uint64_t lane_of(std::uint64_t sequence) {
  return sequence % kLanes;
}

// Properties of all requests of an opcode. WIRE.md has the bytes of its arguments and reply.
struct OpcodeTraits {
  static constexpr std::size_t kAnyLength = ~std::size_t{0};

  const char* name = "unknown";  // also in metrics
  // The least role that may ask for it. Those that carry other requests leave it to them.
  Role role = Role::kAdmin;
  bool takes_key = false;
  std::size_t value_bytes = 0;  // kAnyLength: any within the limit
  bool puts = false;            // takes a time to live and conditions
  bool takes_durability = false;
  // The answer acknowledges a write, whose version it carries.
  bool acknowledges = false;
  // If the answer is lost, the request may have changed something that another request sees.
  bool may_change = false;
  // Its answer promises something about every acknowledged write.
  bool saves = false;
  bool packable = false;      // may be an operation of a pack (pack.h)
  bool names_memory = false;  // the server READs the client's memory that the value names
  bool kept = false;          // the server keeps what it has done, for kOutcome
  bool administers = false;   // the value is a name, of what AdminRequests is to change
};

namespace wire_detail {

enum : unsigned {
  kKey = 1,
  kPuts = 2,
  kDurability = 4,
  kAcknowledges = 8,
  kMayChange = 16,
  kSaves = 32,
  kPackable = 64,
  kNamesMemory = 128,
  kKept = 256,
  kAdministers = 512,
  kWrite = kKey | kDurability | kAcknowledges | kMayChange | kKept,
};
constexpr OpcodeTraits row(const char* name, Role role, std::size_t value_bytes, unsigned flags) {
  return {.name = name,
          .role = role,
          .takes_key = (flags & kKey) != 0,
          .value_bytes = value_bytes,
          .puts = (flags & kPuts) != 0,
          .takes_durability = (flags & kDurability) != 0,
          .acknowledges = (flags & kAcknowledges) != 0,
          .may_change = (flags & kMayChange) != 0,
          .saves = (flags & kSaves) != 0,
          .packable = (flags & kPackable) != 0,
          .names_memory = (flags & kNamesMemory) != 0,
          .kept = (flags & kKept) != 0,
          .administers = (flags & kAdministers) != 0};
}
// A row for each opcode: without `default`, so that the compiler demands the row of a new one.
constexpr OpcodeTraits describe(Opcode opcode) {
  constexpr std::size_t kAny = OpcodeTraits::kAnyLength;
  switch (opcode) {
    case Opcode::kGet:
      return row("get", Role::kRead, kAny, kKey | kPackable);
    case Opcode::kPut:
      return row("put", Role::kWrite, kAny, kWrite | kPuts | kPackable);
    case Opcode::kRemove:
      return row("remove", Role::kWrite, 0, kWrite | kPackable);
    case Opcode::kPing:
      return row("ping", Role::kRead, 0, 0);
    case Opcode::kFlush:
      return row("flush", Role::kWrite, 0, kSaves);
    case Opcode::kStats:
      return row("stats", Role::kAdmin, 0, 0);
    case Opcode::kAdd:
      return row("add", Role::kWrite, kCounterBytes, kWrite | kPackable);
    case Opcode::kSwap:
      return row("swap", Role::kWrite, 2 * kCounterBytes, kWrite | kPackable);
    case Opcode::kPutLarge:
      return row("put_large", Role::kWrite, kValueSourceBytes, kWrite | kPuts | kNamesMemory);
    case Opcode::kOpenCounter:
      return row("open_counter", Role::kWrite, 1, kKey | kDurability | kMayChange);
    case Opcode::kBackup:
      return row("backup", Role::kAdmin, kAny, kMayChange | kSaves);
    case Opcode::kScan:
      return row("scan", Role::kRead, kAny, 0);
    case Opcode::kLong:
      return row("long", Role::kRead, kMessageSourceBytes, kNamesMemory);
    case Opcode::kPack:
      return row("pack", Role::kRead, kAny, kDurability | kMayChange | kKept);
    case Opcode::kOutcome:
      return row("outcome", Role::kWrite, kWriteIdBytes, 0);
    case Opcode::kRevoke:
      return row("revoke", Role::kAdmin, kAny, kMayChange | kAdministers);
    case Opcode::kMovePrimary:
      return row("move_primary", Role::kAdmin, kAny, kMayChange | kAdministers);
    case Opcode::kRemoveReplica:
      return row("remove_replica", Role::kAdmin, kAny, kMayChange | kAdministers);
    case Opcode::kTouch:
      return row("touch", Role::kWrite, 0, kWrite | kPuts | kPackable);
    case Opcode::kSetLogLevel:
      return row("set_log_level", Role::kAdmin, kAny, kMayChange | kAdministers);
  }
  return {};
}
inline constexpr std::size_t kOpcodes = static_cast<std::size_t>(kLastOpcode) + 1;
inline constexpr std::array<OpcodeTraits, kOpcodes> kTraits = [] {
  std::array<OpcodeTraits, kOpcodes> all{};
  for (std::size_t i = 0; i < kOpcodes; ++i)
    all[i] = describe(static_cast<Opcode>(i));
  return all;
}();
static_assert(describe(static_cast<Opcode>(kOpcodes)).name == std::string_view("unknown"),
              "kLastOpcode is not the last");

}  // namespace wire_detail

constexpr bool is_known(Opcode opcode) {
  return opcode >= Opcode::kGet && opcode <= kLastOpcode;
}
// Accepts any byte of a peer: an opcode that is not known has the name "unknown" and takes nothing.
constexpr const OpcodeTraits& traits_of(Opcode opcode) {
  return wire_detail::kTraits[is_known(opcode) ? static_cast<std::size_t>(opcode) : 0];
}
constexpr const char* to_string(Opcode opcode) {
  return traits_of(opcode).name;
}

struct Request {
  Opcode opcode = Opcode::kPing;
  std::uint64_t sequence = 0;  // chosen by the client; names the lane
  Condition condition = Condition::kNone;
  // kIfVersion. kOutcome: if the write was sent to another server of the group, a version that was
  // replicated before it was sent.
  Version expected{};
  std::uint64_t ttl_ms = 0;  // kPut, kTouch: time to live from now, 0 = no expiry
  bool until = false;        // `ttl_ms` is an expiry time in Unix milliseconds
  // The client gives up when the server's clock reaches this time, in microseconds modulo
  // kBeginByModulus; 0 = not given. A write is not begun after it.
  std::uint64_t begin_by_us = 0;
  // Writes: the durability required before the answer.
  Durability durability = Durability::kDefault;
  Bytes key{};
  // kPut: the value. kGet: hashes of used keys. kPutLarge: a ValueSource. kAdd: 8 bytes. kSwap: 8
  // bytes expected, 8 desired. kOpenCounter: 1 byte. kBackup: the name. kScan: a ScanQuery. kLong:
  // a MessageSource. kPack: what PackWriter writes. kOutcome: a WriteId. An administrator's: the
  // name of what it is about.
  Bytes value{};
};
inline constexpr std::uint64_t kBeginByModulus = std::uint64_t{1} << 48;
inline constexpr std::int64_t kNanosPerUs = 1000;  // messages carry microseconds
// The longest time to live, about 139 years.
inline constexpr std::uint64_t kMaxTtlMs = std::uint64_t{1} << 42;
struct Response {
  // Flags.
  static constexpr std::uint8_t kInNeighbour = 1;  // the slot is in the overflow neighbour
  static constexpr std::uint8_t kCounter = 2;      // kGet: the value is that of a counter
  static constexpr std::uint8_t kSwapped = 4;      // kSwap: the counter was as expected
  // kGet: the value is too long for a message. The client READs it from `slot`.
  static constexpr std::uint8_t kByRead = 8;
  // With a code: the write was applied nevertheless; it may or may not be lost.
  static constexpr std::uint8_t kMayHaveHappened = 16;
  // kGet, kAdd, kSwap: the counter is in a cell. Its numbers have no versions: `version` is 0.
  static constexpr std::uint8_t kInCell = 32;
  // For a result in a pack: the operation was not begun. Send it outside of a pack.
  static constexpr std::uint8_t kAlone = 64;

  Opcode opcode = Opcode::kPing;
  std::uint8_t code = 0;  // 0 = done, else a Code
  std::uint8_t flags = 0;
  std::uint64_t sequence = 0;
  Version version{};
  // kGet, kPut, kTouch, kAdd, kSwap: the record's current location, whether or not a group contains
  // it. kGet: empty if no READ finds the value.
  Slot slot{};
  std::uint64_t expiry_ms = 0;       // kGet: Unix milliseconds, 0 = never
  std::uint32_t retry_after_ms = 0;  // with a Code
  // Watermarks: every version up to wal_mark is in the write-ahead log, every version up to
  // sync_mark is synced (MarkLine in layout.h).
  Version wal_mark{};
  Version sync_mark{};
  // The server's clock in microseconds, read before the response was sent. Its zero point has no
  // meaning. It does not go back within an epoch.
  std::uint64_t server_us = 0;
  Bytes value{};  // see Opcode; with a Code: a sentence for a person, may be empty
};

// `out` holds at least header + key + value bytes (at most kMaxMessageBytes). Returns the bytes
// written. REQUIRES: key and value lengths within the limits.
std::size_t encode(const Request& request, MutableBytes out);
std::size_t encode(const Response& response, MutableBytes out);
// Spans point into `bytes`. kInvalidArgument, kTooLarge: with a sentence. `*sequence` is set
// whenever the header could be read, so that an invalid request can be answered.
Result<Request> decode_request(Bytes bytes, std::uint64_t* sequence);
Result<Response> decode_response(Bytes bytes);

// The parts of decoding that packs share: whether an operation has what its opcode takes, and
// whether a response is possible for its opcode. kInvalidArgument, kTooLarge; kCorrupt.
Status check_operation(const Request& operation);
Status check_response(const Response& response);

}  // namespace rkv
