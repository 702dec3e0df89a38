// Contexts that librdmacm has opened. After the device has been unplugged, librdmacm closes a
// context once no id and no list of rdma_get_devices() refers to it. A Device is neither, so each
// Device of such a context holds a list that contains the context.
//
// Thread safety: any thread. Source: rdma_get_devices(3), librdmacm's reference count.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace rkv::rdma::detail {

// Takes a list from rdma_get_devices() and returns one of its contexts. librdmacm keeps the context
// open as long as the result lives. REQUIRES: `index` is in the list.
std::shared_ptr<ibv_context> hold_listed(ibv_context** list, std::size_t index);
// Returns the context of an id, kept open in the same way. A system call if no Device of the
// context lives. If the device has been unplugged and librdmacm no longer lists it, the result
// holds `id` instead.
std::shared_ptr<ibv_context> hold_context_of(ibv_context* context, std::shared_ptr<void> id);

}  // namespace rkv::rdma::detail
