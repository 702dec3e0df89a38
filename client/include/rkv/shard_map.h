// Maps each key to one of several servers.
//
//   std::string problem;
//   auto map = rkv::ShardMap::parse("10.0.0.1:7471,10.0.0.2:7471,10.0.0.3:7471", &problem);
//   if (!map) return complain(problem);
//   auto cluster = rkv::Cluster::connect(*map);            // cluster.h
//
// A map is a value: created from a list, compared, copied for the price of a pointer, and
// immutable. The program decides where the list comes from: a command line, a file, or a message at
// run time.
//
// Invariants:
//  SHARD-1  Placement depends only on the servers' identities and weights. It does not depend on
//      the order of the list, on addresses where names are given, or on this process or machine.
//      All clients of a store must have the same identities and weights.
//  SHARD-2  When a server leaves the list, only its own keys move. When a server joins, keys move
//      only to that server.
//  SHARD-3  A server of weight w holds w / (sum of weights) of the keys, within a factor of 1.05
//      for up to 16 servers of one weight, 1.10 for up to 64 (measured over random lists and 10^6
//      keys; tests/client/cluster/shard_map_test.cc).
//
// Method: rendezvous hashing over 2^17 slots. The slot of a key is the top 17 bits of XXH3-64 of
// its bytes under the seed kSeed. A slot belongs to the server with the greatest score. A server's
// scores for a slot are XXH3 of the slot (4 bytes, little-endian) under the seeds s_j. Seed s_j is
// XXH3 of the server's identity under kSeed + j, for j from 0 to its weight - 1. Of equal scores
// the lesser identity wins.
// The constructor computes all slots once (52 instructions for each slot and unit of weight).
// Finding a key's server then takes one hash and one byte of a table of 128 KiB, for any number of
// servers.
//
// Thread safety: a map is immutable; any thread may use it.
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
  // Identity of the server for placement; "" = its address. A server with a name keeps its keys
  // when it moves to another address.
  std::string name{};
  // Weight of the server's share of the keys, 1 to kMaxWeight.
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

  // Creates a map. Normalizes addresses: lower case, no dot at the end of a host, no leading zeros
  // of a port, the canonical form of an IPv6 address. kInvalidArgument: no server, too many
  // servers, an invalid server, or an address or name that occurs twice. `problem`, if given, gets
  // a sentence that names the error. Cluster::connect() finds servers that are listed twice under
  // different addresses.
  static Result<ShardMap> create(std::vector<ShardServer> servers, std::string* problem = nullptr);
  // Parses servers separated by commas or line ends, each [NAME=]HOST:PORT[*WEIGHT]. A comment
  // starts with # and ends with the line. Errors as create().
  static Result<ShardMap> parse(std::string_view text, std::string* problem = nullptr);

  // The servers in the order of the list, with normalized addresses. At least one.
  const std::vector<ShardServer>& servers() const { return servers_; }
  // The index of the key's server in servers(). An empty key has a server too.
  std::size_t shard_of(std::string_view key) const { return slots_ == nullptr ? 0 : look_up(key); }

  bool operator==(const ShardMap& other) const { return servers_ == other.servers_; }

 private:
  using Slots = std::array<std::uint8_t, std::size_t{1} << kSlotBits>;
  static_assert(kMaxServers <= 256, "a slot names a server in a byte");

  explicit ShardMap(std::vector<ShardServer> servers);
  std::size_t look_up(std::string_view key) const;

  std::vector<ShardServer> servers_;
  std::shared_ptr<const Slots> slots_;  // null for a single server
};

// Normalizes HOST:PORT, so that addresses can be compared as text. kInvalidArgument: not an
// address.
Result<std::string> normal_address(std::string_view text);

}  // namespace rkv
