// needs: rkv/rdma/owned_region.h
// expect: use of deleted function.*local
using namespace rkv::rdma;

OwnedRegion<std::vector<int>> lend();

void send(Batch& batch) {
#ifndef RKV_WRONG
  const OwnedRegion<std::vector<int>> region = lend();
  batch.send(1, OpFlags::kSignaled, region.local());
#else
  batch.send(1, OpFlags::kSignaled, lend().local());
#endif
}
