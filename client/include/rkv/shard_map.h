// Which of several servers a key is kept on.
//
//   std::string problem;
//   auto map = rkv::ShardMap::parse("10.0.0.1:7471,10.0.0.2:7471,10.0.0.3:7471", &problem);
//   if (!map) return complain(problem);
//   auto cluster = rkv::Cluster::connect(*map);            // cluster.h
//
// A map is a value: made from a list, compared, copied for the price of a pointer, never changed.
// Where it comes from - a command line, a file, a message at run time - is the program's business.
//
// Invariants:
//  H1  Placement depends on the servers' identities and weights and on nothing else: not on the
//      order of the list, not on addresses where names are given, not on this process or machine.
//      All clients of a store must have the same identities and weights.
//  H2  When a server leaves the list, no key moves but its own; when one comes, no key moves but
//      to it.
//  H3  A server of weight w holds w / (sum of weights) of the keys, within a factor of 1.05 for up
//      to 16 servers of one weight, 1.10 for up to 64 (measured over random lists and 10^6 keys;
//      tests/client/shard_map_test.cc).
//
// How: rendezvous hashing over 2^17 slots. The slot of a key is the top 17 bits of XXH3-64 of its
// bytes under the seed kSeed; a slot belongs to the server with the greatest score, which is XXH3
// of the slot (4 bytes, little-endian) under a seed that is itself XXH3 of the server's identity
// under kSeed + j, for j from 0 to its weight - 1. Of equal scores the lesser identity's counts.
// The slots are worked out once, when the map is made (52 instructions each and unit of weight), so
// that to find a key's server takes one hash and one byte of a table of 128 KiB, whatever their
// number.
//
// Thread safety: a map is immutable; any threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv {

struct ShardServer {
  // HOST:PORT; IPv6 as [ADDRESS]:PORT.
  std::string address;
  // What the server is known by when keys are placed; "" = its address. A server with a name keeps
  // its keys when it moves to another address.
  std::string name{};
  // Its share of the keys, 1 to kMaxWeight.
  std::uint32_t weight = 1;

  const std::string& identity() const { return name.empty() ? address : name; }
  bool operator==(const ShardServer&) const = default;
};

class RKV_EXPORT ShardMap {
 public:
  static constexpr std::size_t kMaxServers = 64;
  static constexpr std::uint32_t kMaxWeight = 16;
  static constexpr std::uint32_t kMaxWeights = 256;  // of all servers together
  static constexpr std::size_t kMaxNameBytes = 64;
  static constexpr unsigned kSlotBits = 17;
  static constexpr std::uint64_t kSeed = 0x72'6B'76'73'68'61'72'64;  // never to be changed

  // Addresses are brought to one spelling: small letters, no dot at the end of a host, no leading
  // zeros of a port, the canonical form of an IPv6 address. kInvalidArgument: no server, too many,
  // one that is none, an address or a name given twice; `problem`, if given, gets a sentence that
  // names it. Names that reach one server by different addresses are noticed by
  // Cluster::connect().
  static Result<ShardMap> create(std::vector<ShardServer> servers, std::string* problem = nullptr);
  // Servers separated by commas or line ends, each [NAME=]HOST:PORT[*WEIGHT]; from # to the end of
  // a line is a comment. As create().
  static Result<ShardMap> parse(std::string_view text, std::string* problem = nullptr);

  // As they were given, with addresses in one spelling. At least one.
  const std::vector<ShardServer>& servers() const { return servers_; }
  // The index of the key's server in servers(). Of an empty key too.
  std::size_t shard_of(std::string_view key) const { return slots_ == nullptr ? 0 : look_up(key); }

  bool operator==(const ShardMap& other) const { return servers_ == other.servers_; }

 private:
  using Slots = std::array<std::uint8_t, std::size_t{1} << kSlotBits>;
  static_assert(kMaxServers <= 256, "a slot names a server in a byte");

  explicit ShardMap(std::vector<ShardServer> servers);
  std::size_t look_up(std::string_view key) const;

  std::vector<ShardServer> servers_;
  std::shared_ptr<const Slots> slots_;  // of several servers
};

// HOST:PORT in the one spelling that addresses are compared in. kInvalidArgument: it is none.
Result<std::string> normal_address(std::string_view text);

}  // namespace rkv
