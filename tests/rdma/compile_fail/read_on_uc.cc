// expect: (no matching function.*read|constraints not satisfied)
using namespace rkv::rdma;

#ifndef RKV_WRONG
using Pair = BasicQueuePair<Rc>;
#else
using Pair = BasicQueuePair<Uc>;
#endif

void read(Pair& qp, const RegisteredSpan& to, const RemoteSpan& from) {
  auto batch = qp.batch();
  batch.read(1, OpFlags::kSignaled, to, from);
}
