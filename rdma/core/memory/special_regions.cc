#include "rkv/rdma/special_regions.h"

#include <cerrno>
#include <cstdint>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

std::shared_ptr<ibv_mr> keep(ibv_mr* raw, const ProtectionDomain& pd) {
  checked::region_begins_anywhere(raw);
  return {raw, [domain = pd.shared()](ibv_mr* old) {
            checked::region_ends(old);
            report_teardown(from_errno("ibv_dereg_mr", ibv_dereg_mr(old)));
          }};
}

}  // namespace

Result<NullRegion> NullRegion::allocate(const ProtectionDomain& pd) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_mr * raw, from_null("ibv_alloc_null_mr", ibv_alloc_null_mr(pd.raw())));
  return NullRegion(keep(raw, pd));
}

Result<ImplicitRegion> ImplicitRegion::create(const ProtectionDomain& pd, AccessFlags access,
                                              bool everything_to_peers) {
  constexpr AccessFlags kRemote =
      AccessFlags::kRemoteRead | AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic;
  if ((access & kRemote) != AccessFlags::kNone && !everything_to_peers) {
    return fail(
        Code::kInvalidArgument,
        "an implicit region takes no remote flag: it would expose the whole process to peers");
  }
  if (!is_registrable(access)) {
    return fail(Code::kInvalidArgument,
                "remote writes and atomics need local write access on the region too");
  }
  ibv_device_attr_ex device{};
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_device_ex", ibv_query_device_ex(pd.device().raw(), nullptr, &device)));
  if ((device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0) {
    return fail_call(Code::kUnsupported, "ibv_reg_mr", EOPNOTSUPP,
                     "this device does not support implicit on-demand paging");
  }
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      ibv_mr * raw,
      from_null("ibv_reg_mr", ibv_reg_mr(pd.raw(), nullptr, SIZE_MAX,
                                         std::to_underlying(access | AccessFlags::kOnDemand))));
  return ImplicitRegion(keep(raw, pd));
}

}  // namespace rkv::rdma
