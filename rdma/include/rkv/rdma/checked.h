// Checked mode: tracks every buffer that posted requests name, and aborts with a message when a
// program breaks a rule that the types cannot check. It is meant for tests and for finding faults.
//
//   RKV_RDMA_CHECKED=1 ./program          # no rebuild needed
//   checked::enable();                    // the same, first thing in main() or in a test
//   checked::forbid_wr_id_reuse(*qp.raw());   // if each request should have a unique number
//
// Errors found, each reported with wr_id, operation, queue pair and addresses:
//   - a region or window that ends while a posted request names it (a request is
//     over when its completion, or that of a later signaled request, has been polled, or its queue
//     pair is destroyed or reset);
//   - bytes that the device will write (READ, atomic, receive) while another request in flight
//     writes or still sends them;
//   - bytes to be sent that a request in flight will write, unless that request is a READ or an
//     atomic of the same queue pair and the new request is kFenced;
//   - a key that is unknown or of another protection domain, or a span outside its region;
//   - more consecutive unsignaled requests than the send queue holds: no slot could be freed;
//   - more requests in flight than their completion queue has entries (signaled requests and
//     receives, but not receives of a shared receive queue, which may complete on several queues);
//   - a batch opened, or a request posted separately, while another batch of the queue pair is
//     open;
//   - a wr_id that is already in flight, on queue pairs with forbid_wr_id_reuse();
//   - a CPU access to bytes that the device is to write, with RKV_RDMA_CHECKED=poison in a program
//     built with AddressSanitizer, which reports it (use-after-poison).
//
// Queue pairs and completion queues created in checked mode get functions that track requests and
// then call the provider's functions. So work posted and polled through raw() is checked too.
// Headers and the binary interface are the same with and without it. When off, it adds no
// instruction to a request. When on, each request costs a process-wide lock and some allocations.
// That lock orders the threads, so ThreadSanitizer may miss data races of the program.
//
// Not checked: regions, queue pairs and queues created by direct verbs calls (for regions see
// begin()), ibv_modify_qp(raw()) to RESET, a provider's direct verbs (mlx5dv), and queue pairs of
// SRD (efa.h).
//
// Thread safety: any thread; call enable() before other threads start.
// Source of the rules: ibv_post_send(3), ibv_post_recv(3), ibv_wr_post(3), ibv_create_cq(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "rkv/export.h"

namespace rkv::rdma::checked {

struct Options {
  bool poison = false;    // poison buffers for AddressSanitizer if the program uses it
  bool overlaps = false;  // requests in flight may write the same bytes, in every region
};

// Whether checked mode is on. RKV_RDMA_CHECKED is "1", or names of Options separated by commas
// ("poison,overlaps"). Unset, empty or "0" means off; so does any value in a program with raised
// privileges.
RKV_EXPORT bool on();
// Turns checked mode on. REQUIRES: no region, window or queue has been created yet.
RKV_EXPORT void enable(const Options& options = {});

// Allows requests in flight to write the same bytes of this region. It is meant for memory whose
// contents are not read. No effect when off. REQUIRES: no request names the region yet.
RKV_EXPORT void allow_overlaps(const ibv_mr& region);

// From now on a request of this queue pair aborts if its wr_id is already in flight on it. Sends
// and receives are checked separately. No effect when off.
RKV_EXPORT void forbid_wr_id_reuse(const ibv_qp& qp);

// Adds a region that was registered outside this library, so that its key is known. Call end()
// before its registration ends. No effect when off.
RKV_EXPORT void begin(const ibv_mr& region);
RKV_EXPORT void end(const ibv_mr& region);

// The number of requests that are posted and not over, on all queue pairs. 0 when off.
RKV_EXPORT std::size_t in_flight();

}  // namespace rkv::rdma::checked
