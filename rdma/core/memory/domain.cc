#include "rkv/rdma/domain.h"

#include <cerrno>

#include "rkv/check.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

Result<ThreadDomain> ThreadDomain::allocate(const Device& device) {
  ibv_td_init_attr wanted{};
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_td * raw,
                       from_null("ibv_alloc_td", ibv_alloc_td(device.raw(), &wanted)));
  std::shared_ptr<ibv_td> domain(raw, [context = device.shared()](ibv_td* old) {
    report_teardown(from_errno("ibv_dealloc_td", ibv_dealloc_td(old)));
  });
  return ThreadDomain(device.share(), std::move(domain));
}

Result<ProtectionDomain> ProtectionDomain::allocate(const Device& device) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_pd * raw, from_null("ibv_alloc_pd", ibv_alloc_pd(device.raw())));
  std::shared_ptr<ibv_pd> pd(raw, [context = device.shared()](ibv_pd* old) {
    report_teardown(from_errno("ibv_dealloc_pd", ibv_dealloc_pd(old)));
  });
  return ProtectionDomain(device.share(), std::move(pd));
}

Result<ProtectionDomain> ProtectionDomain::allocate_parent(const ProtectionDomain& of,
                                                           const ThreadDomain* thread) {
  RKV_CHECK(thread == nullptr || thread->device().raw() == of.device().raw(),
            "the thread domain belongs to another device");
  ibv_parent_domain_init_attr wanted{};
  wanted.pd = of.raw();
  wanted.td = thread != nullptr ? thread->raw() : nullptr;
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      ibv_pd * raw,
      from_null("ibv_alloc_parent_domain", ibv_alloc_parent_domain(of.device().raw(), &wanted)));
  // The parent domain is deallocated first: its deleter holds the objects it was created from.
  std::shared_ptr<ibv_td> locks = thread != nullptr ? thread->domain_ : nullptr;
  std::shared_ptr<ibv_pd> pd(raw, [inner = of.shared(), locks = std::move(locks)](ibv_pd* old) {
    report_teardown(from_errno("ibv_dealloc_pd", ibv_dealloc_pd(old)));
  });
  return ProtectionDomain(of.device().share(), std::move(pd));
}

}  // namespace rkv::rdma
