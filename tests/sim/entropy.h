// Programs of this folder have no randomness but that of their seed: random_from_kernel() is
// defined in entropy.cc and takes the place of the one in common/.
//
// Thread safety: none.
#pragma once

#include "common/random.h"

namespace rkv::sim {

// Where random_from_kernel() draws from; REQUIRES one to be set while anybody draws.
void set_entropy(Random* source);

}  // namespace rkv::sim
