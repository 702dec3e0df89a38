#include "rdma/transport/verbs/fail_fast.h"

#include <utility>

#include "common/mutex.h"

namespace rkv::rdma::verbs {
namespace {

class FailFast final : public Atomics {
 public:
  FailFast(std::unique_ptr<Atomics> atomics, const Clock& clock)
      : clock_(clock), atomics_(std::move(atomics)), ask_at_(clock.now()) {}

  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return ask([&](Atomics& atomics) { return atomics.fetch_add(word, addend); });
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    return ask([&](Atomics& atomics) { return atomics.compare_swap(word, expected, desired); });
  }

 private:
  // Holds the lock during the call, so that callers that waited for a failed call fail with it.
  template <class Call>
  Result<std::uint64_t> ask(Call call) {
    const MutexLock lock(mutex_);
    const Nanos begun = clock_.now();
    if (begun < ask_at_) {
      return fail(Code::kInternal,
                  "the device did not answer its last atomic operation on the server's own memory: "
                  "the next attempt is within a second");
    }
    Result<std::uint64_t> outcome = call(*atomics_);
    if (!outcome) [[unlikely]] {
      const Nanos now = clock_.now();
      if (now - begun >= kStuckMs * kNanosPerMs) ask_at_ = now + kPauseMs * kNanosPerMs;
    }
    return outcome;
  }

  const Clock& clock_;
  Mutex mutex_;
  const std::unique_ptr<Atomics> atomics_ RKV_PT_GUARDED_BY(mutex_);
  Nanos ask_at_ RKV_GUARDED_BY(mutex_);  // earliest time of the next call to the device
};

}  // namespace

std::unique_ptr<Atomics> fail_fast(std::unique_ptr<Atomics> atomics, const Clock& clock) {
  return std::make_unique<FailFast>(std::move(atomics), clock);
}

}  // namespace rkv::rdma::verbs
