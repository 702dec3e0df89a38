// Hooks by which handles report their creation and destruction to checked mode
// (rkv/rdma/checked.h). Each tests one flag when checked mode is off. Not public.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "rkv/bytes.h"

namespace rkv::rdma::checked {

// `cpu` empty: the CPU cannot address the region. `address`: the address by which requests name its
// beginning.
void region_begins(const ibv_mr* region, std::uint64_t address, std::size_t length, Bytes cpu);
// Call before the registration ends; aborts if a request names the region. If the device then
// refuses to end it, call region_begins() again.
void region_ends(const ibv_mr* region);
void window_ends(const ibv_mw* window);

// The completion fields that must be readable in addition to the caller's (IBV_WC_EX_...).
std::uint64_t fields_needed();
void queue_begins(ibv_cq* queue, ibv_cq_ex* extended);
void queue_ends(ibv_cq* queue);
void shared_receives_begin(ibv_srq* queue);
void shared_receives_end(ibv_srq* queue);
// `extended` null: the queue pair has only the older way to post.
void pair_begins(ibv_qp* pair, ibv_qp_ex* extended, ibv_srq* shared, std::uint32_t send_length);
// The requests of a queue pair end: it is destroyed, or reset to RESET.
void pair_ends(ibv_qp* pair);
void pair_resets(ibv_qp* pair);

}  // namespace rkv::rdma::checked
