// needs: rkv/rdma/special_regions.h
// expect: use of deleted function.*local
using namespace rkv::rdma;

ImplicitRegion allocate();

void send(Batch& batch, rkv::MutableBytes some) {
#ifndef RKV_WRONG
  const ImplicitRegion region = allocate();
  batch.send(1, OpFlags::kSignaled, region.local(some));
#else
  batch.send(1, OpFlags::kSignaled, allocate().local(some));
#endif
}
