// Programs of this folder take all randomness from their seed: entropy.cc defines
// random_from_kernel() and replaces the definition in common/.
//
// Thread safety: none.
#pragma once

#include "common/random.h"

namespace rkv::sim {

// Sets the source of random_from_kernel(). REQUIRES: a source is set whenever a caller draws.
void set_entropy(Random* source);

}  // namespace rkv::sim
