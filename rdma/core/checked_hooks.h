// Where handles tell checked mode of their beginning and end (rkv/rdma/checked.h). Each is one
// test of a flag while it is off. Not public.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "rkv/bytes.h"
#include "rkv/export.h"

namespace rkv::rdma::checked {

// `cpu` empty: the CPU cannot address it. `address`: by which requests name its beginning.
void region_begins(const ibv_mr* region, std::uint64_t address, std::size_t length, Bytes cpu);
// Of bytes that nobody has (a null region), or of which nobody here knows where they are.
void region_begins_anywhere(const ibv_mr* region);
// Before the registration ends: aborts where a request names it. Where the device then refuses, the
// region begins again.
void region_ends(const ibv_mr* region);
// A piece of a region that its holder gives back.
void piece_ends(Bytes piece);
void window_ends(const ibv_mw* window);

// What of a completion must be readable beside what the caller wants (IBV_WC_EX_...).
std::uint64_t fields_needed();
void queue_begins(ibv_cq* queue, ibv_cq_ex* extended);
void queue_ends(ibv_cq* queue);
void shared_receives_begin(ibv_srq* queue);
void shared_receives_end(ibv_srq* queue);
// `extended` null: it has only the older way to post.
void pair_begins(ibv_qp* pair, ibv_qp_ex* extended, ibv_srq* shared, std::uint32_t send_length);
// Its requests are over: by the end of the queue pair, or by the state RESET.
// Exported for the libraries of rdma/vendor, whose queue pairs end in the same way.
RKV_EXPORT void pair_ends(ibv_qp* pair);
void pair_resets(ibv_qp* pair);

}  // namespace rkv::rdma::checked
