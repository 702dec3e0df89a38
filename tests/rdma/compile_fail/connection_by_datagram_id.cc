// expect: no member named 'connect'
// needs: rkv/rdma/datagram_service.h
using namespace rkv::rdma;

auto call(DatagramId& id, [[maybe_unused]] const QueuePair& qp) {
#ifndef RKV_WRONG
  return id.look_up({});
#else
  return id.connect(qp, {}, {}, {});
#endif
}
