// expect: cannot convert .*Rc>'?\} to .*Ud>
// needs: rkv/rdma/datagram_service.h
using namespace rkv::rdma;

#ifndef RKV_WRONG
using Pair = BasicQueuePair<Ud>;
#else
using Pair = BasicQueuePair<Rc>;
#endif

auto answer(DatagramRequest request, const Pair& qp) {
  return std::move(request).accept(qp, {});
}
