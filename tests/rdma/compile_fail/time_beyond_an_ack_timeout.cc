// expect: check_failed
using namespace rkv::rdma;

AckTimeout patient() {
#ifndef RKV_WRONG
  return AckTimeout::at_least(std::chrono::hours(2));
#else
  return AckTimeout::at_least(std::chrono::hours(3));
#endif
}
