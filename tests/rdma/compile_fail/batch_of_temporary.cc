// expect: (discards qualifiers|no matching function|cannot convert|lvalue)
using namespace rkv::rdma;

#ifndef RKV_WRONG
QueuePair& qp();
#else
QueuePair qp();
#endif

void send(const RegisteredSpan& what) {
  auto batch = qp().batch();
  batch.send(1, OpFlags::kSignaled, what);
}
