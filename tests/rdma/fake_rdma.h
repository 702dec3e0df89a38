// A device and a connection manager that do what a test says: what libibverbs and librdmacm would
// do is defined here, so a program with this in it has no other device. For what no device does on
// demand: a bond that fails over, a device that is unplugged, a peer with odd timers.
//
//   FakeRdma fake;
//   CmListener listener = need(CmListener::listen(fake.address()));
//   fake.tell(fake.ids().back(), RDMA_CM_EVENT_DEVICE_REMOVAL);
//
// One at a time. Thread safety: one thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <vector>

#include "rkv/rdma/address.h"

namespace rkv::rdma::testing {

class FakeRdma {
 public:
  // What a queue pair was asked to become.
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

  // An event about an id, in its channel. Those of a set-up come by themselves, each behind an
  // ADDR_CHANGE if so wanted.
  void tell(rdma_cm_id* about, rdma_cm_event_type type, int status = 0);
  void announce_changes(bool wanted);
  // Those that live, oldest first.
  std::vector<rdma_cm_id*> ids() const;
  // The timer that the connection manager proposes for a queue pair, as a peer may have chosen it.
  void propose_timeout(std::uint8_t code);
  std::vector<Change> changes() const;
  ibv_qp_state state_of_queue_pair() const;
  std::vector<ibv_sge> pieces() const;  // of the SENDs so far; those inline have none

  // Receives of the shared queue that the device has. One that the queue pair takes completes as
  // flushed in a poll behind the one that finds the marker, unless the queue pair is gone by then.
  std::size_t posted_receives() const;
  void take_receive();

  // As librdmacm counts: who keeps a context open. unplug() closes one that nobody does.
  unsigned references(unsigned device = 0) const;
  void unplug(unsigned device = 0);
  bool is_open(unsigned device = 0) const;
};

}  // namespace rkv::rdma::testing
