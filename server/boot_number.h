// Where the versions of a start begin: by the wall clock.
//
// A version is a fixed-point time: seconds since 2020 in its upper half (the boot number), and in
// its lower half 2^32nds of a second, which the commit sequence counts up. An entry of the commit
// log takes 8 of them at least, so a server would have to make 537 million writes a second, or log
// 34 GB of them, to run ahead of the clock; whatever it has given out therefore lies below the time
// of its end.
//
//  - With a data directory the claimed numbers there decide (E2 of persistence/engine.h), and the
//    clock where they are lost: a start begins above both. It may be wrong then, or stand still.
//  - Without one nothing is kept, and the clock alone decides, to the nanosecond. A version repeats
//    only if the clock was set back between two starts, by just as much as makes two writes of one
//    key meet in one 2^32nd of a second.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>

namespace rkv::server {

struct FirstVersion {
  std::uint32_t boot = 1;
  std::uint64_t sequence = 0;  // none is below it
};

// A clock that is before 2020, or after 2088, is not believed: the half of all numbers that is
// above those of times is left to claims, and so many starts or writes it will do for.
inline constexpr std::uint32_t kLatestBoot = std::uint32_t{1} << 31;

// The least boot number of a start with a data directory; 1 when the clock is not believed.
std::uint32_t least_boot_at(std::int64_t unix_ns);
// Of a start without a data directory. When the clock is not believed, `random` decides.
FirstVersion first_version_at(std::int64_t unix_ns, std::uint64_t random);

}  // namespace rkv::server
