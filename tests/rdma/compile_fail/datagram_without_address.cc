// expect: (no matching function.*send|constraints not satisfied)
using namespace rkv::rdma;

void send(BasicQueuePair<Ud>& qp, const AddressHandle& to, const RegisteredSpan& message) {
  auto batch = qp.batch();
#ifndef RKV_WRONG
  batch.op(1).signaled().to(to, 17, 42).send(message);
#else
  batch.send(1, OpFlags::kSignaled, message);
#endif
}
