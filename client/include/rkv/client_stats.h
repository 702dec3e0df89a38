// The counts of a client.
//
// Thread safety: a value.
#pragma once

#include <cstdint>

#include "rkv/export.h"

namespace rkv {

// Counters since connect(); they only rise, apart from `cached_groups`.
struct RKV_EXPORT ClientStats {
  std::uint64_t gets = 0;                // keys requested
  std::uint64_t one_sided_gets = 0;      // answered by READs alone, "not found" included
  std::uint64_t two_sided_gets = 0;      // answered by the server
  std::uint64_t missing = 0;             // of both kinds: the key did not exist
  std::uint64_t rdma_reads = 0;          // READs by all GETs
  std::uint64_t map_reads = 0;           // other READs: root page, mark lines, extents, directory
  std::uint64_t tears_detected = 0;      // READs repeated because their checksum did not hold
  std::uint64_t pins = 0;                // hint words swapped, so that values stay whole
  std::uint64_t atomics = 0;             // atomics on cells of one-sided counters
  std::uint64_t retries = 0;             // restarts of a GET from the index
  std::uint64_t cache_hits = 0;          // GETs that found their record through a cache
  std::uint64_t cache_misses = 0;        // other one-sided GETs
  std::uint64_t cached_groups = 0;       // currently held
  std::uint64_t two_sided_requests = 0;  // requests sent, of any kind
  std::uint64_t busy_answers = 0;        // requests refused with "later" and sent again
  std::uint64_t reconnects = 0;
  // Writes whose answers were lost with the connection, so that the server was asked about them. Of
  // these: those that it had applied, and those of which it knew nothing. It had not applied the
  // others.
  std::uint64_t outcomes_asked = 0;
  std::uint64_t outcomes_recovered = 0;
  std::uint64_t outcomes_unknown = 0;

  // Adds the counters of another client.
  ClientStats& operator+=(const ClientStats& other);
};

}  // namespace rkv
