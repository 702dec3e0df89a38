// The length of the longest memory that `new` gave since the test set it to 0.
#pragma once

#include <atomic>
#include <cstddef>

namespace rkv::server::test {
extern std::atomic<std::size_t> longest_allocation;
}
