// expect: (no matching function.*read|constraints not satisfied)
using namespace rkv::rdma;

#ifndef RKV_WRONG
using Memory = RegisteredSpan;
#else
using Memory = RegisteredSource;
#endif

void read(QueuePair& qp, const Memory& to, const RemoteSpan& from) {
  Batch batch = qp.batch();
  batch.read(1, OpFlags::kSignaled, to, from);
}
