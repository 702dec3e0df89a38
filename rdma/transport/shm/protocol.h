// Packets between two processes on the Unix socket of a connection. Each packet is one message
// (SOCK_SEQPACKET), in the machine's own byte order, since both ends are on it.
//
//   client -> server   Hello
//   server -> client   Accept with three descriptors (link memory, queue page, host page), or
//                      Reject, or WrongVersion
//   server -> client   Regions with one descriptor each, Gone; at any time afterwards
//   client -> server   Regions and Gone, for memory that the client lets the server READ
//   server -> client   Goodbye, before it ends a connection that asks for too much
//   both               a packet of one byte: "wake up"
//
// Header is the same in all versions of this protocol; the rest may change with kVersion. A client
// passes descriptors only with Regions. Any other packet with descriptors ends its connection and
// is not taken out of the socket (reaper.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "common/bytes.h"
#include "rdma/transport/host_memory.h"

namespace rkv::rdma::shm {

inline constexpr std::uint64_t kMagic = 0x31'30'6D'68'73'76'6B'72;  // "rkvshm01"
inline constexpr std::uint32_t kVersion = 3;  // raise it with every incompatible change

inline constexpr std::size_t kRequestDataBytes = 56;  // as librdmacm leaves for RC connections
inline constexpr std::size_t kAcceptDataBytes = 196;
inline constexpr std::size_t kRejectDataBytes = 148;
// Longest message that a queue may offer to receive: bounds the memory that a peer can make us
// allocate.
inline constexpr std::uint32_t kMaxReceiveBytes = 4U << 20;

enum class PacketKind : std::uint32_t {
  kHello = 1,
  kAccept,
  kReject,
  kWrongVersion,
  kRegions,
  kGone,
  kGoodbye
};

struct Header {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  PacketKind kind{};
};
static_assert(sizeof(Header) == 16);

struct Hello {
  Header header{.kind = PacketKind::kHello};
  std::uint64_t receive_bytes = 0;  // longest message that the client accepts
  std::array<std::byte, kRequestDataBytes> data{};
};
static_assert(sizeof(Hello) == 80);

struct Accept {
  Header header{.kind = PacketKind::kAccept};
  std::uint64_t receive_bytes = 0;    // longest message that the server accepts
  std::uint64_t to_server_bytes = 0;  // sizes of the rings; see ring.h
  std::uint64_t to_client_bytes = 0;
  std::array<std::byte, kAcceptDataBytes> data{};
  std::uint32_t regions = 0;  // how many follow; a client waits for them before it READs
};
static_assert(sizeof(Accept) == 240);

struct Reject {
  Header header{.kind = PacketKind::kReject};
  std::uint32_t length = 0;
  std::array<std::byte, kRejectDataBytes> reason{};
};
static_assert(sizeof(Reject) == 168);

struct Goodbye {
  Header header{.kind = PacketKind::kGoodbye};
  std::uint32_t length = 0;
  std::array<char, kRejectDataBytes> reason{};  // a sentence
};
static_assert(sizeof(Goodbye) == 168);

struct WrongVersion {
  Header header{.kind = PacketKind::kWrongVersion};
};

struct RegionEntry {
  std::uint64_t address = 0;  // in the memory of its owner; READs name it
  std::uint64_t length = 0;
  std::uint32_t key = 0;
  std::uint32_t atomics = 0;  // 1: map it writable
};
static_assert(sizeof(RegionEntry) == 24);

// SCM_MAX_FD is 253; a packet of this many entries fits in a page.
inline constexpr std::size_t kRegionsPerPacket = 128;
// Regions from a client: a server processes one packet of this size per turn, between requests of
// others.
inline constexpr std::size_t kPeerRegionsPerPacket = 16;
struct Regions {
  Header header{.kind = PacketKind::kRegions};
  std::uint64_t count = 0;
  std::array<RegionEntry, kRegionsPerPacket> entries{};  // only `count` are sent
  std::size_t bytes() const { return offsetof(Regions, entries) + count * sizeof(RegionEntry); }
};
static_assert(offsetof(Regions, entries) == 24);

// Decodes a packet of kind kRegions. Returns nullopt if it is not, or if its lengths do not add up.
std::optional<Regions> decode_regions(Bytes packet);

struct Gone {
  Header header{.kind = PacketKind::kGone};
  std::uint64_t key = 0;
};

// Longest packet of any kind.
inline constexpr std::size_t kMaxPacketBytes = sizeof(Regions);

template <class T>
  requires std::is_trivially_copyable_v<T>
Bytes packet_of(const T& message) {
  return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}

// Sends one packet without blocking. Returns 0 or errno.
int send_packet(int socket, Bytes packet, std::span<const int> descriptors = {});

// The advice of a process that has no descriptors left. It is not the peer's fault.
inline constexpr const char* kRaiseLimit = "raise the limit of open files (ulimit -n)";

struct Packet {
  enum class Result : std::uint8_t { kPacket, kNothing, kEnd };
  Result result = Result::kNothing;
  std::size_t length = 0;  // real length; if it exceeds the buffer, the packet was truncated
  // This process has no room for its descriptors: some or all of them are lost.
  bool lost_descriptors = false;
};
// Takes one packet without blocking. kEnd: the peer closed, died, or the socket broke. Appends
// received descriptors to `descriptors`; if that is nullptr, the kernel closes them.
Packet receive_packet(int socket, MutableBytes buffer, std::vector<Fd>* descriptors = nullptr);

// Reads the next packet without removing it. Its descriptors are neither received nor closed.
struct Peeked {
  Packet packet{};
  bool has_descriptors = false;
};
Peeked peek_packet(int socket, MutableBytes buffer);
// Removes a packet in which peek_packet() found no descriptors.
void drop_packet(int socket);

// Returns whether the packet begins with our header; its version may differ.
bool has_header(Bytes packet, Header* header);
template <class T>
bool decode(Bytes packet, PacketKind kind, T* out) {
  if (packet.size() != sizeof(T) || !has_header(packet, &out->header)) return false;
  std::memcpy(out, packet.data(), sizeof(T));
  return out->header.version == kVersion && out->header.kind == kind;
}

// Returns whether the numbers are plausible (SHMLISTEN-3 in listener.h; for Accept, protects a
// client from a server's mistake).
bool is_sound(const Hello& hello);
bool is_sound(const Accept& accept);

// Writes one byte that wakes a sleeping peer. A full socket already holds a byte.
void send_wake(int socket);

}  // namespace rkv::rdma::shm
