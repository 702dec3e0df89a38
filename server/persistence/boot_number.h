// The first version of a start, derived from the wall clock.
//
// A version is a fixed-point time. The upper half is seconds since 2020 (the boot number). The
// lower half is 2^-32 seconds, and the commit sequence counts it up. An entry of the commit log
// takes at least 8 sequence numbers. So only a server with 537 million writes a second, or 34 GB of
// log a second, would overtake the clock. All versions of a start therefore lie below the time of
// its end.
//
//  - With a data directory the claimed numbers there decide (DISK-2 of
//  persistence/storage_engine.h), and
//    the clock if they are lost: a start begins above both. The clock may then be wrong, or stand
//    still.
//  - Without a data directory nothing is kept, and the clock alone decides, to the nanosecond. A
//    version repeats only if the clock was set back between two starts, by exactly the amount that
//    matters: two writes of one key then meet in the same 2^-32 seconds.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>

namespace rkv::server {

struct FirstVersion {
  std::uint32_t boot = 1;
  std::uint64_t sequence = 0;  // no version of the start has a lower one
};

// A clock before 2020 or after 2088 is not believed. The upper half of all boot numbers lies above
// those that times give and is left to claims: enough for as many starts or writes.
inline constexpr std::uint32_t kLatestBoot = std::uint32_t{1} << 31;

// Lower bound of the boot number of a start with a data directory. 1 if the clock is not believed.
std::uint32_t least_boot_at(std::int64_t unix_ns);
// First version of a start without a data directory. If the clock is not believed, `random`
// decides.
FirstVersion first_version_at(std::int64_t unix_ns, std::uint64_t random);

}  // namespace rkv::server
