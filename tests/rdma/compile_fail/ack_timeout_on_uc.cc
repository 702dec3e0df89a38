// expect: ack_timeout
using namespace rkv::rdma;

auto connect(PreparedQueuePair<Uc>& prepared, const Endpoint& peer) {
#ifndef RKV_WRONG
  return std::move(prepared).handshake(peer, {.remote_access = AccessFlags::kRemoteWrite});
#else
  return std::move(prepared).handshake(peer,
                                       UnreliableParameters{.ack_timeout = kDefaultAckTimeout});
#endif
}
