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
// kUnsupported naming the verb if the provider cannot import (SoftRoCE). Source:
// ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "rkv/export.h"
#include "rkv/rdma/domain.h"
#include "rkv/rdma/span.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class Ending : unsigned char { kForget, kDestroy };

// `command_fd` is a duplicate (dup(2), SCM_RIGHTS) of another context's cmd_fd. Success transfers
// its ownership.
RKV_EXPORT Result<Device> import_device(int command_fd);
// `handle` is ibv_pd::handle of the original.
RKV_EXPORT Result<ProtectionDomain> import_domain(const Device& device, std::uint32_t handle,
                                                  Ending ending = Ending::kForget);

// The keys of an imported region. Verbs do not report its addresses: the program needs them from
// the owner.
class RKV_EXPORT ImportedRegion {
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
RKV_EXPORT Result<ImportedRegion> import_region(const ProtectionDomain& pd, std::uint32_t handle,
                                                Ending ending = Ending::kForget);

}  // namespace rkv::rdma
