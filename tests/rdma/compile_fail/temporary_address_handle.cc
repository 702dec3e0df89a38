// expect: use of deleted function.*to\(
using namespace rkv::rdma;

void send(BasicQueuePair<Ud>& qp, const ProtectionDomain& pd, const RegisteredSpan& message) {
  auto batch = qp.batch();
  auto to = AddressHandle::create(pd, {});
#ifndef RKV_WRONG
  batch.op(1).signaled().to(*to, 17, 42).send(message);
#else
  batch.op(1).signaled().to(*AddressHandle::create(pd, {}), 17, 42).send(message);
#endif
}
