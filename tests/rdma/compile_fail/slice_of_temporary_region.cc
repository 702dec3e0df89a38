// expect: use of deleted function.*first
using namespace rkv::rdma;

MemoryRegion allocate();

void send(Batch& batch) {
#ifndef RKV_WRONG
  const MemoryRegion region = allocate();
  batch.send(1, OpFlags::kSignaled, region.local().first(64));
#else
  batch.send(1, OpFlags::kSignaled, allocate().first(64));
#endif
}
