#include "rkv/rdma/import.h"

#include <cerrno>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

Result<Device> import_device(int command_fd) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_context * raw,
                       from_null("ibv_import_device", ibv_import_device(command_fd)));
  return Device::adopt(std::shared_ptr<ibv_context>(raw, [](ibv_context* old) {
    report_teardown(from_minus_one("ibv_close_device", ibv_close_device(old)));
  }));
}

Result<ProtectionDomain> import_domain(const Device& device, std::uint32_t handle, Ending ending) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_pd * raw,
                       from_null("ibv_import_pd", ibv_import_pd(device.raw(), handle)));
  std::shared_ptr<ibv_pd> pd(raw, [context = device.shared(), ending](ibv_pd* old) {
    if (ending == Ending::kForget) return ibv_unimport_pd(old);
    report_teardown(from_errno("ibv_dealloc_pd", ibv_dealloc_pd(old)));
  });
  return ProtectionDomain::adopt(device, std::move(pd));
}

Result<ImportedRegion> import_region(const ProtectionDomain& pd, std::uint32_t handle,
                                     Ending ending) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_mr * raw, from_null("ibv_import_mr", ibv_import_mr(pd.raw(), handle)));
  checked::region_begins_anywhere(raw);
  return ImportedRegion(std::shared_ptr<ibv_mr>(raw, [domain = pd.shared(), ending](ibv_mr* old) {
    checked::region_ends(old);
    if (ending == Ending::kForget) return ibv_unimport_mr(old);
    report_teardown(from_errno("ibv_dereg_mr", ibv_dereg_mr(old)));
  }));
}

}  // namespace rkv::rdma
