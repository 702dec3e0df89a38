// expect: (no matching function.*handshake|constraints not satisfied)
using namespace rkv::rdma;

auto bring_up(PreparedQueuePair<Ud>& prepared, [[maybe_unused]] const Endpoint& peer) {
#ifndef RKV_WRONG
  return std::move(prepared).activate(peer.qkey);
#else
  return std::move(prepared).handshake(peer);
#endif
}
