// needs: rkv/rdma/region_pool.h
// expect: use of deleted function.*operator->
using namespace rkv::rdma;

void send(Batch& batch, RegionPool& pool) {
#ifndef RKV_WRONG
  if (const auto piece = pool.take(64)) batch.send(1, OpFlags::kSignaled, piece->local(64));
#else
  batch.send(1, OpFlags::kSignaled, pool.take(64)->local(64));
#endif
}
