#include "rkv/rdma/import.h"

#include "rdma/core/checked/checked_hooks.h"

namespace rkv::rdma::detail {

void imported_region_begins(const ibv_mr* region) {
  checked::region_begins_anywhere(region);
}
void imported_region_ends(const ibv_mr* region) {
  checked::region_ends(region);
}

}  // namespace rkv::rdma::detail
