// A device and a connection manager that a test controls. This file defines the functions of
// libibverbs and librdmacm, so a program with it has no other device. It is for events that no
// device produces on demand: a bond that fails over, a device that is unplugged, a peer with
// unusual timers.
//
//   FakeRdma fake;
//   CmListener listener = need(CmListener::listen(fake.address()));
//   fake.tell(fake.ids().back(), RDMA_CM_EVENT_DEVICE_REMOVAL);
//
// One instance at a time. Thread safety: one thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rkv/rdma/address.h"

namespace rkv::rdma::testing {

class FakeRdma {
 public:
  // A state change that a queue pair was asked for.
  struct Change {
    ibv_qp_attr attributes;
    int mask;
  };

  FakeRdma();
  FakeRdma(const FakeRdma&) = delete;
  FakeRdma& operator=(const FakeRdma&) = delete;
  ~FakeRdma();

  // Two devices; ids find the first.
  ibv_context* context(unsigned device = 0);
  static SocketAddress address();

  // Sends an event about an id to its channel. Events of a set-up arrive by themselves, each after
  // an ADDR_CHANGE if announce_changes() was called.
  void tell(rdma_cm_id* about, rdma_cm_event_type type, int status = 0);
  void announce_changes(bool wanted);
  // Reports an asynchronous event of the first device.
  void tell(ibv_event_type type, ibv_cq* queue = nullptr);
  // The existing ids, oldest first.
  std::vector<rdma_cm_id*> ids() const;
  // The timer that the connection manager proposes for a queue pair, as if a peer had chosen it.
  void propose_timeout(std::uint8_t code);
  std::vector<Change> changes() const;
  ibv_qp_state state_of_queue_pair() const;
  std::vector<ibv_sge> pieces() const;  // of the SENDs so far; inline SENDs have none

  // Receives of the shared queue that the device holds. A receive taken by the queue pair completes
  // as flushed, in a poll after the one that finds the marker. It does not if the queue pair is
  // destroyed by then.
  std::size_t posted_receives() const;
  void take_receive();

  // The access flags of the last region.
  unsigned region_access() const;
  // From now on it is called with the address of each region that is deregistered.
  void on_deregister(std::function<void(const void*)> call);

  // As the kernel's rdma_rxe; call it before anything is opened.
  void be_soft_roce();
  // A port of Ethernet instead of InfiniBand.
  void be_roce();
  // Routes on InfiniBand have no GID from now on.
  void route_by_lid();
  // The requests to connect that were sent to peers.
  std::size_t connect_requests() const;
  // A provider without extended queue pairs; call it before anything is opened. Its requests arrive
  // in posted(), with copies of their inline data, and are neither carried out nor completed.
  void be_classic();
  // The same, and iWARP: no atomics, one piece in a READ, connections of two messages.
  void be_iwarp();
  struct Posted {
    std::uint64_t wr_id;
    ibv_wr_opcode opcode;
    unsigned flags;
    ibv_sge piece;  // the first, all zero if the request has none
    int pieces = 0;
    std::vector<std::byte> inlined;
  };
  std::vector<Posted> posted() const;
  // From now on each chain loses its requests after the first `accepted`, and the call returns
  // `answer`.
  void refuse_posts(std::size_t accepted, int answer);
  // A completion of a request that ended without success.
  void flush(std::uint64_t wr_id);
  // The oldest READ or atomic completes with success, with these bytes or without any.
  void complete_read(std::span<const std::byte> data);

  // The calls by which queue pairs, ids and event channels ended so far.
  std::vector<std::string> destroyed() const;
  // From now on ibv_destroy_qp() returns this errno and destroys nothing.
  void refuse_to_destroy_queue_pairs(int sys_errno);

  // References as librdmacm counts them, which keep a context open. unplug() closes a context
  // without any.
  unsigned references(unsigned device = 0) const;
  void unplug(unsigned device = 0);
  bool is_open(unsigned device = 0) const;
  // Whether the descriptors of the context are /dev/null now. Only the first device has
  // descriptors.
  bool descriptors_are_released() const;
};

}  // namespace rkv::rdma::testing
