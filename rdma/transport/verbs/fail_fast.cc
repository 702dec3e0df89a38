#include "rdma/transport/verbs/fail_fast.h"

#include <mutex>
#include <utility>

namespace rkv::rdma::verbs {
namespace {

class FailFast final : public Atomics {
 public:
  FailFast(std::unique_ptr<Atomics> atomics, const Clock& clock)
      : clock_(clock), atomics_(std::move(atomics)), ask_at_(clock.now()) {}

  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return ask([&] { return atomics_->fetch_add(word, addend); });
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    return ask([&] { return atomics_->compare_swap(word, expected, desired); });
  }

 private:
  // Holds the lock during the call, so that callers that waited for a failed call fail with it.
  template <class Call>
  Result<std::uint64_t> ask(Call call) {
    const std::scoped_lock lock(mutex_);
    const Nanos begun = clock_.now();
    if (begun < ask_at_) {
      return fail(Code::kInternal,
                  "the device did not answer an atomic operation of its own lately: it is asked "
                  "again within a second");
    }
    Result<std::uint64_t> told = call();
    if (!told) [[unlikely]] {
      const Nanos now = clock_.now();
      if (now - begun >= kStuckMs * kNanosPerMs) ask_at_ = now + kPauseMs * kNanosPerMs;
    }
    return told;
  }

  const Clock& clock_;
  std::mutex mutex_;  // guards the following
  const std::unique_ptr<Atomics> atomics_;
  Nanos ask_at_;  // earliest time of the next call to the device
};

}  // namespace

std::unique_ptr<Atomics> fail_fast(std::unique_ptr<Atomics> atomics, const Clock& clock) {
  return std::make_unique<FailFast>(std::move(atomics), clock);
}

}  // namespace rkv::rdma::verbs
