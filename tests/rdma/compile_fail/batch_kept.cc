// expect: use of deleted function
using namespace rkv::rdma;

void fill(Batch& batch);

void keep(QueuePair& qp) {
  Batch batch = qp.batch();
#ifndef RKV_WRONG
  fill(batch);
#else
  Batch kept = std::move(batch);
  fill(kept);
#endif
}
