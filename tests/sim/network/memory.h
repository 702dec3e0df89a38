// Memory for the simulated hosts' regions: zeroed and page-aligned. An address depends only on the
// calls since the last time that no memory was in use. So a run has the same addresses whatever ran
// before it. Freed pieces are reused, the last freed first.
//
// Pages are allocated on first use.
// Thread safety: none.
#pragma once

#include "common/bytes.h"

namespace rkv::rdma::sim {

MutableBytes take_memory(std::size_t length);
void give_back_memory(MutableBytes memory);

}  // namespace rkv::rdma::sim
