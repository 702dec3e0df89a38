// Contexts that librdmacm has opened. It closes one when the device has been unplugged and neither
// an id nor a list of rdma_get_devices() refers to it any more. A Device is neither, so each
// Device of such a context holds a list with this context in it.
//
// Thread safety: any thread. Source: rdma_get_devices(3), librdmacm's reference count.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace rkv::rdma::detail {

// The context of a list that rdma_get_devices() gave, which is taken: librdmacm keeps the context
// open for as long as the result lives. REQUIRES: index is one of the list's.
std::shared_ptr<ibv_context> hold_listed(ibv_context** list, std::size_t index);
// The context of an id, kept open likewise. A system call where no Device of it lives. `id` is kept
// instead where librdmacm lists the device no longer, since it has been unplugged already.
std::shared_ptr<ibv_context> hold_context_of(ibv_context* context, std::shared_ptr<void> id);

}  // namespace rkv::rdma::detail
