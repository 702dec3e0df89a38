// needs: rkv/rdma/special_regions.h
// expect: use of deleted function.*local
using namespace rkv::rdma;

NullRegion allocate();

void send(Batch& batch) {
#ifndef RKV_WRONG
  const NullRegion region = allocate();
  batch.send(1, OpFlags::kSignaled, region.local(64));
#else
  batch.send(1, OpFlags::kSignaled, allocate().local(64));
#endif
}
