// expect: has no member named 'batch'
using namespace rkv::rdma;

rkv::Status send(PreparedQueuePair<Rc>& prepared, const Endpoint& peer,
                 const RegisteredSpan& what) {
#ifndef RKV_WRONG
  auto connected = std::move(prepared).handshake(peer);
  auto batch = connected->batch();
#else
  auto batch = prepared.batch();
#endif
  batch.send(1, OpFlags::kSignaled, what);
  return std::move(batch).submit();
}
