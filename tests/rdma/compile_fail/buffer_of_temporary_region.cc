// expect: use of deleted function.*local
using namespace rkv::rdma;

MemoryRegion allocate();

void send(Batch& batch) {
#ifndef RKV_WRONG
  const MemoryRegion region = allocate();
  batch.send(1, OpFlags::kSignaled, region.local(0, 64));
#else
  batch.send(1, OpFlags::kSignaled, allocate().local(0, 64));
#endif
}
