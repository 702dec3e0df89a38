// Text to numbers with units, for flags and configuration files.
#pragma once

#include <cstdint>
#include <string_view>

#include "rkv/result.h"

namespace rkv {

// "4096", "64K", "64KiB", "1GiB", "2g": binary units, case ignored. kInvalidArgument otherwise.
Result<std::uint64_t> parse_size(std::string_view text);
// "100us", "250ms", "5s", "2m", "12h", "7d", up to 366 days; a bare number is an error. Result in
// milliseconds, rounded up.
Result<std::uint64_t> parse_duration_ms(std::string_view text);

}  // namespace rkv
