// ReservedKey: keeps the objects of a context away from a mapping key that soft-iWARP's library
// takes for a failure.
//
// The kernel gives each queue a key, the offset at which it is mapped: the first free pages of the
// context. The library takes the key SIW_INVAL_UOBJ_KEY for "no key", but the kernel uses it like
// any other: it is page 144. A queue that begins there cannot be created, and no reason is given.
// So a queue that nobody uses lies across that page from the beginning.
//
// Sources: rdma-core's providers/siw/siw.c, kernel-headers/rdma/siw-abi.h; the kernel's
// drivers/infiniband/sw/siw/siw_verbs.c, rdma_user_mmap_entry_insert().
//
// Thread safety: any thread.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace rkv::rdma::detail {

// The queue that lies across the page; null for all other devices. To be called before anything
// else is created on the context, and to be released before the context is closed.
std::shared_ptr<ibv_cq> reserve_key(ibv_context* context);

}  // namespace rkv::rdma::detail
