// Import of objects that another process (or another library) opened, for programs that share a
// device between processes.
//
//   // the owner sends device.raw()->cmd_fd over a socket (SCM_RIGHTS), and the two handles
//   RKV_ASSIGN_OR_RETURN(Device device, import_device(received_fd));
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, import_domain(device, pd_handle));
//   RKV_ASSIGN_OR_RETURN(ImportedRegion region, import_region(pd, region_handle));
//
// Ownership: the device takes the descriptor and closes it with its last handle. Domains and
// regions remain owned by the process that created them; the destructors here only end the import
// (ibv_unimport_*). With Ending::kDestroy this process destroys them instead, and no other process
// may use them afterwards. The programs must agree on this: the kernel does not check it.
// kUnsupported naming the verb if the provider cannot import (SoftRoCE).
//
// The functions are inline, because they call libibverbs, which only librkv does otherwise. A
// program that uses them needs libibverbs itself: rkv::rdma brings it, unless rdma-core is found at
// run time (RKV_RDMA_LINKAGE).
//
// Never seen working (rdma/README.md). Thread safety: any thread. Source: ibv_import_device(3),
// ibv_import_pd(3), ibv_import_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/domain.h"
#include "rkv/rdma/error.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class Ending : unsigned char { kForget, kDestroy };

namespace detail {

// Report an imported region to checked mode (checked.h).
RKV_EXPORT void imported_region_begins(const ibv_mr* region);
RKV_EXPORT void imported_region_ends(const ibv_mr* region);

}  // namespace detail

// `command_fd` is a duplicate (dup(2), SCM_RIGHTS) of another context's cmd_fd. Success transfers
// its ownership.
inline Result<Device> import_device(int command_fd) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_context * raw,
                       from_null("ibv_import_device", ibv_import_device(command_fd)));
  return Device::adopt(std::shared_ptr<ibv_context>(raw, [](ibv_context* old) {
    report_teardown(from_minus_one("ibv_close_device", ibv_close_device(old)));
  }));
}
// `handle` is ibv_pd::handle of the original.
inline Result<ProtectionDomain> import_domain(const Device& device, std::uint32_t handle,
                                              Ending ending = Ending::kForget) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_pd * raw,
                       from_null("ibv_import_pd", ibv_import_pd(device.raw(), handle)));
  std::shared_ptr<ibv_pd> pd(raw, [context = device.shared(), ending](ibv_pd* old) {
    if (ending == Ending::kForget) return ibv_unimport_pd(old);
    report_teardown(from_errno("ibv_dealloc_pd", ibv_dealloc_pd(old)));
  });
  return ProtectionDomain::adopt(device, std::move(pd));
}

// The keys of an imported region. Verbs do not report its addresses: the program needs them from
// the owner.
class ImportedRegion {
 public:
  ImportedRegion(ImportedRegion&&) = default;
  ImportedRegion& operator=(ImportedRegion&&) = default;
  std::uint32_t lkey() const { return region_->lkey; }
  std::uint32_t rkey() const { return region_->rkey; }
  ibv_mr* raw() const { return region_.get(); }

 private:
  friend Result<ImportedRegion> import_region(const ProtectionDomain& pd, std::uint32_t handle,
                                              Ending ending);
  explicit ImportedRegion(std::shared_ptr<ibv_mr> region) : region_(std::move(region)) {}
  std::shared_ptr<ibv_mr> region_;
};
// `handle` is ibv_mr::handle of the original.
inline Result<ImportedRegion> import_region(const ProtectionDomain& pd, std::uint32_t handle,
                                            Ending ending = Ending::kForget) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_mr * raw, from_null("ibv_import_mr", ibv_import_mr(pd.raw(), handle)));
  detail::imported_region_begins(raw);
  return ImportedRegion(std::shared_ptr<ibv_mr>(raw, [domain = pd.shared(), ending](ibv_mr* old) {
    detail::imported_region_ends(old);
    if (ending == Ending::kForget) return ibv_unimport_mr(old);
    report_teardown(from_errno("ibv_dereg_mr", ibv_dereg_mr(old)));
  }));
}

}  // namespace rkv::rdma
