// expect: check_failed
using namespace rkv::rdma;

#ifndef RKV_WRONG
constexpr AckTimeout kTimeout = AckTimeout::from_code(31);
#else
constexpr AckTimeout kTimeout = AckTimeout::from_code(32);
#endif
static_assert(kTimeout.time().count() > 0);
