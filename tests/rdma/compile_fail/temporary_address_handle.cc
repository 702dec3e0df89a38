// expect: use of deleted function.*to\(
using namespace rkv::rdma;

void send(BasicQueuePair<Ud>& qp, const ProtectionDomain& pd, const RegisteredSpan& message) {
  auto batch = qp.batch();
  auto to = AddressHandle::create(pd, {});
#ifndef RKV_WRONG
  batch.to(*to, 17, 42).send(1, OpFlags::kSignaled, message);
#else
  batch.to(*AddressHandle::create(pd, {}), 17, 42).send(1, OpFlags::kSignaled, message);
#endif
}
