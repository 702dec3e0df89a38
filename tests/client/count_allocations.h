// Counts every `new` of a test program: for tests that something does not allocate.
#pragma once

#include <cstddef>

namespace rkv::testing {
std::size_t allocation_count();
}
