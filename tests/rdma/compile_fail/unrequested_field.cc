// expect: (no matching function.*timestamp|constraints not satisfied)
// needs: rkv/rdma/extended_completion.h
using namespace rkv::rdma;

#ifndef RKV_WRONG
using Queue = ExtendedCompletionQueue<WcField::kTimestamp | WcField::kByteLength>;
#else
using Queue = ExtendedCompletionQueue<WcField::kByteLength>;
#endif

std::uint64_t latest(Queue& queue) {
  std::uint64_t ticks = 0;
  for (auto& completion : queue.poll())
    ticks = completion.timestamp();
  return ticks;
}
