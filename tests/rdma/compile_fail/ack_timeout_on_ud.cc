// expect: ack_timeout
using namespace rkv::rdma;

#ifndef RKV_WRONG
using Parameters = HandshakeParameters<Rc>;
#else
using Parameters = HandshakeParameters<Ud>;
#endif

Parameters patient() {
  return {.ack_timeout = AckTimeout::at_least(std::chrono::milliseconds(1))};
}
