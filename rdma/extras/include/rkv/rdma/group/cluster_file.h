// The members of a group: a text file, the same on every machine, with one line per rank.
//
//   # rank  host:port of the exchange (exchange.h)
//   0 node-a:7471
//   1 node-b:7471
//   2 [2001:db8::7]:7471
//
//   std::string problem;
//   auto cluster = Cluster::load("cluster.txt", &problem);   // "line 3: rank 1 again, ..."
//
// The format is strict. Ranks are 0, 1, 2 ... without a gap, in any order; no rank and no address
// appears twice; a port is not 0; a line holds nothing else. Empty lines and lines that begin with
// # are skipped. The format needs no TOML or JSON parser, which would become a dependency of every
// program that uses this library.
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

  // Rank i gets address i. The rules are those of a file.
  static Result<Cluster> of(std::vector<HostPort> addresses, std::string* problem = nullptr);
  // kInvalidArgument; `problem`, if not null, receives the line and the reason.
  static Result<Cluster> parse(std::string_view text, std::string* problem = nullptr);
  // Reads and parses a file. Further errors, where `problem` receives the path: those of open(2)
  // and read(2), kTooLarge.
  static Result<Cluster> load(const std::string& path, std::string* problem = nullptr);

  std::uint32_t size() const { return static_cast<std::uint32_t>(addresses_.size()); }
  // REQUIRES: rank < size().
  const HostPort& operator[](std::uint32_t rank) const;
  // kInvalidArgument unless `rank` is a rank of this cluster.
  Status check_self(std::uint32_t rank) const;
  // Equal for all processes that have the same ranks at the same addresses.
  std::uint64_t digest() const;
  std::string to_text() const;  // parse() accepts this text

 private:
  explicit Cluster(std::vector<HostPort> addresses) : addresses_(std::move(addresses)) {}
  std::vector<HostPort> addresses_;
};

}  // namespace rkv::rdma
