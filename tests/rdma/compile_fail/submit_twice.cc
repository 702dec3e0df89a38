// expect: invalid invocation of method 'submit'.*'consumed' state
// only: clang
using namespace rkv::rdma;

void send(QueuePair& qp, const RegisteredSpan& what) {
  Batch batch = qp.batch();
  batch.send(1, OpFlags::kSignaled, what);
  if (!std::move(batch).submit()) return;
#ifndef RKV_WRONG
  Batch second = qp.batch();
  second.send(2, OpFlags::kSignaled, what);
  std::ignore = std::move(second).submit();
#else
  batch.send(2, OpFlags::kSignaled, what);
  std::ignore = std::move(batch).submit();
#endif
}
