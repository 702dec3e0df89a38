// expect: use of deleted function
// needs: rkv/rdma/extended_completion.h
using namespace rkv::rdma;

using Queue = ExtendedCompletionQueue<WcField::kByteLength>;

std::uint64_t latest(Queue& queue) {
  std::uint64_t number = 0;
  for (const auto& completion : queue.poll()) {
#ifndef RKV_WRONG
    const auto& kept = completion;
#else
    const auto kept = completion;
#endif
    number = kept.wr_id();
  }
  return number;
}
