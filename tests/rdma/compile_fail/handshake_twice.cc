// expect: (passing .* discards qualifiers|no matching function|cannot convert|rvalue)
using namespace rkv::rdma;

void connect(PreparedQueuePair<Rc>& prepared, const Endpoint& peer) {
#ifndef RKV_WRONG
  const auto qp = std::move(prepared).handshake(peer);
#else
  const auto qp = prepared.handshake(peer);
#endif
}
