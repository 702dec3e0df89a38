#include "tests/sim/entropy.h"

#include "common/check.h"

namespace rkv {

namespace sim {
namespace {
Random* entropy = nullptr;
}
void set_entropy(Random* source) {
  entropy = source;
}
}  // namespace sim

// Linked before common/random.cc, so the linker does not take the definition there.
std::uint64_t random_from_kernel() {
  RKV_CHECK(sim::entropy != nullptr, "randomness outside of a simulation");
  return (*sim::entropy)() | 1U;
}

}  // namespace rkv
