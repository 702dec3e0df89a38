#include "rdma/core/device/reserved_key.h"

#include <cstdint>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {
namespace {

constexpr std::uint32_t kSoftIwarpVendor = 0x626D74;  // the kernel's SIW_VENDOR_ID
// A queue has 32 bytes for each entry and some at its end: 129 pages, then 17, which are 129 to
// 145.
constexpr int kEntriesBefore = 16'384;
constexpr int kEntriesAcross = 2'048;

bool is_soft_iwarp(ibv_context* context) {
  if (context->device->transport_type != IBV_TRANSPORT_IWARP) return false;
  ibv_device_attr_ex limits{};
  return ibv_query_device_ex(context, nullptr, &limits) == 0 &&
         limits.orig_attr.vendor_id == kSoftIwarpVendor;
}

void destroy(ibv_cq* queue) {
  if (queue != nullptr) report_teardown(from_errno("ibv_destroy_cq", ibv_destroy_cq(queue)));
}

}  // namespace

std::shared_ptr<ibv_cq> reserve_key(ibv_context* context) {
  if (!is_soft_iwarp(context)) return nullptr;
  ibv_cq* const before = ibv_create_cq(context, kEntriesBefore, nullptr, nullptr, 0);
  ibv_cq* const across = ibv_create_cq(context, kEntriesAcross, nullptr, nullptr, 0);
  destroy(before);
  return {across, destroy};
}

}  // namespace rkv::rdma::detail
