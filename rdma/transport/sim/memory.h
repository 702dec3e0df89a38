// Memory for the simulated hosts' regions: zeroed and page-aligned. Its addresses depend only on
// the order of the calls since all of it was free. So a run repeats with the same addresses
// whatever ran before it. Freed pieces are reused, last freed first.
//
// Pages are allocated on first use.
// Thread safety: none.
#pragma once

#include "common/bytes.h"

namespace rkv::rdma::sim {

MutableBytes take_memory(std::size_t length);
void give_back_memory(MutableBytes memory);

}  // namespace rkv::rdma::sim
