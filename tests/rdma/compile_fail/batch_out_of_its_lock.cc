// expect: static assertion failed
// needs: rkv/rdma/locked.h
using namespace rkv::rdma;

void post(Locked<QueuePair>& shared, const RegisteredSpan& message) {
  const auto fill = [&](QueuePair& qp) {
    Batch batch = qp.batch();
    batch.send(1, OpFlags::kSignaled, message);
    return std::move(batch).submit();
  };
#ifndef RKV_WRONG
  const rkv::Status posted = shared.with(fill);
#else
  const Batch kept = shared.with([](QueuePair& qp) { return qp.batch(); });
  const rkv::Status posted = shared.with(fill);
#endif
  static_cast<void>(posted);
}
