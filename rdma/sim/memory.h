// Memory for the simulated hosts' regions: zeroed, page-aligned, at addresses that depend on
// nothing but the order of the calls since all of it was free, so that a run repeats with the same
// addresses whatever ran before it. Freed pieces are handed out again, last freed first.
//
// Pages exist from their first use on.
// Thread safety: none.
#pragma once

#include "common/bytes.h"

namespace rkv::rdma::sim {

MutableBytes take_memory(std::size_t length);
void give_back_memory(MutableBytes memory);

}  // namespace rkv::rdma::sim
