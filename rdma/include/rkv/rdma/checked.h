// Checked mode: a second book about every buffer that the device has, and an abort with a sentence
// where a program breaks a rule that types cannot watch. For tests and for hunting a fault.
//
//   RKV_RDMA_CHECKED=1 ./program          # nothing is built anew
//   checked::enable();                    // the same, first thing in main() or in a test
//   checked::forbid_wr_id_reuse(*qp.raw());   // where each request should have a number of its own
//
// What it finds, each with wr_id, operation, queue pair and addresses:
//   - a region, window or piece of a pool that ends while a posted request names it (a request is
//     over when its completion, or that of a later signaled one, has been polled, or its queue
//     pair is destroyed or reset);
//   - bytes that the device will write (READ, atomic, receive) and that another request in flight
//     writes or still sends; bytes to be sent that one in flight will write, unless it is a READ or
//     an atomic of the same queue pair and the new request is kFenced;
//   - a key that is unknown or of another protection domain, a piece outside its region;
//   - more unsignaled requests in a row than the send queue holds: nothing could free it again;
//   - more requests in flight than their completion queue has entries (signaled ones and receives;
//     not those of a shared receive queue, which may complete on several queues);
//   - a batch opened, or a request posted besides, while another batch of the queue pair is open;
//   - a wr_id that is in flight already, on queue pairs that ask for it;
//   - a CPU that reads or writes what the device is to write, with RKV_RDMA_CHECKED=poison in a
//     program built with AddressSanitizer, which reports it (use-after-poison).
//
// How: queue pairs and completion queues that are made while it is on get functions that keep the
// book and then call the provider's. So it sees work posted and polled through raw() too, headers
// and binary interface are the same on and off, and off, no request has an instruction more. On,
// each request costs a lock that the whole process shares, and some allocations; ThreadSanitizer
// then sees an order between threads that the program alone would not have.
//
// Not seen: regions, queue pairs and queues made by raw calls of their own (for regions see
// begin()), ibv_modify_qp(raw()) to RESET, direct verbs of a provider (mlx5dv), queue
// pairs of adapters' own transports (SRD, DC).
//
// Thread safety: any thread; enable() before there are others.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "rkv/export.h"

namespace rkv::rdma::checked {

struct Options {
  bool poison = false;    // tell AddressSanitizer, where the program has it
  bool overlaps = false;  // requests in flight may write the same bytes, in every region
};

// What RKV_RDMA_CHECKED says: "1", or words of Options with commas ("poison,overlaps"). Unset,
// empty or "0" is off, and so is every value in a program with raised privileges.
RKV_EXPORT bool on();
// REQUIRES: no region, window or queue has been made yet.
RKV_EXPORT void enable(const Options& options = {});

// Memory whose contents nobody looks at, like a sink for messages without bytes: requests in flight
// may write the same bytes of this region. REQUIRES: none names it yet. Nothing while off.
RKV_EXPORT void allow_overlaps(const ibv_mr& region);

// From now on a request of this queue pair whose wr_id is in flight on it aborts: sends and
// receives each for themselves. Nothing while off.
RKV_EXPORT void forbid_wr_id_reuse(const ibv_qp& qp);

// A region that was registered by other means than this library's, for its key to be known; end()
// before its registration ends. Nothing while off.
RKV_EXPORT void begin(const ibv_mr& region);
RKV_EXPORT void end(const ibv_mr& region);

// Requests that are posted and not over, of all queue pairs. 0 while off.
RKV_EXPORT std::size_t in_flight();

}  // namespace rkv::rdma::checked
