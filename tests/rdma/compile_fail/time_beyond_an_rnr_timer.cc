// expect: check_failed
using namespace rkv::rdma;

RnrTimer patient() {
#ifndef RKV_WRONG
  return RnrTimer::at_least(std::chrono::milliseconds(655));
#else
  return RnrTimer::at_least(std::chrono::milliseconds(656));
#endif
}
