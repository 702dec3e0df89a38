#include "rkv/rdma/domain.h"

#include <cerrno>

#include "rkv/rdma/error.h"

namespace rkv::rdma {

Result<ProtectionDomain> ProtectionDomain::allocate(const Device& device) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_pd * raw, from_null("ibv_alloc_pd", ibv_alloc_pd(device.raw())));
  std::shared_ptr<ibv_pd> pd(raw, [context = device.shared()](ibv_pd* old) {
    report_teardown(from_errno("ibv_dealloc_pd", ibv_dealloc_pd(old)));
  });
  return ProtectionDomain(device.share(), std::move(pd));
}

}  // namespace rkv::rdma
