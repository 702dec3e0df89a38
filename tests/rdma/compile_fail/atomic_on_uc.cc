// expect: (no matching function.*fetch_add|constraints not satisfied)
using namespace rkv::rdma;

#ifndef RKV_WRONG
using Pair = BasicQueuePair<Rc>;
#else
using Pair = BasicQueuePair<Uc>;
#endif

void add(Pair& qp, const RegisteredSpan& old, const RemoteSpan& word) {
  auto batch = qp.batch();
  batch.fetch_add(1, OpFlags::kSignaled, old, word, 1);
}
