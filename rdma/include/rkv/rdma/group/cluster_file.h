// Who takes part: a text file that is the same on every machine, a line for each rank.
//
//   # rank  host:port of the exchange (exchange.h)
//   0 node-a:7471
//   1 node-b:7471
//   2 [2001:db8::7]:7471
//
//   std::string problem;
//   auto cluster = Cluster::load("cluster.txt", &problem);   // problem: "line 3: rank 1 twice ..."
//
// Strict: ranks are 0, 1, 2 ... without a gap, in any order; no rank, and no address, is given
// twice; ports are not 0; a line holds nothing else. Lines that are empty or begin with # say
// nothing. A format of two words a line needs no parser of TOML or JSON, which every program that
// uses this library would have to bring.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/export.h"
#include "rkv/rdma/address.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT Cluster {
 public:
  static constexpr std::size_t kMaxRanks = 4096;
  static constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

  // Rank i at address i. The same rules as for a file.
  static Result<Cluster> of(std::vector<HostPort> addresses, std::string* problem = nullptr);
  // kInvalidArgument; `problem`, when not null, says what is wrong in which line.
  static Result<Cluster> parse(std::string_view text, std::string* problem = nullptr);
  // Reads a file; besides the above what open(2) and read(2) answer, kTooLarge.
  static Result<Cluster> load(const std::string& path, std::string* problem = nullptr);

  std::uint32_t size() const { return static_cast<std::uint32_t>(addresses_.size()); }
  // REQUIRES: rank < size().
  const HostPort& operator[](std::uint32_t rank) const;
  // Whether a process may call itself by this rank. kInvalidArgument.
  Status check_self(std::uint32_t rank) const;
  // The same for everyone who has the same ranks at the same addresses.
  std::uint64_t digest() const;
  std::string to_text() const;  // parse() reads it back

 private:
  explicit Cluster(std::vector<HostPort> addresses) : addresses_(std::move(addresses)) {}
  std::vector<HostPort> addresses_;
};

}  // namespace rkv::rdma
