// expect: (discards qualifiers|no matching function|cannot convert|rvalue)
using namespace rkv::rdma;

rkv::Status send(QueuePair& qp, const RegisteredSpan& what) {
  Batch batch = qp.batch();
  batch.send(1, OpFlags::kSignaled, what);
#ifndef RKV_WRONG
  return std::move(batch).submit();
#else
  return batch.submit();
#endif
}
