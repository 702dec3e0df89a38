// An adapter's atomics on its own host. Each takes time to reach the word and to return, so that
// clients' atomics happen in between.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <utility>

#include "rdma/transport/transport.h"
#include "tests/sim/network/scheduler.h"

namespace rkv::sim {

class SlowAtomics final : public rdma::Atomics {
 public:
  // `stores`: a canary; a swap ignores the word's value and reports the expected one.
  SlowAtomics(std::unique_ptr<rdma::Atomics> device, rdma::sim::Scheduler& scheduler, bool stores)
      : device_(std::move(device)), scheduler_(scheduler), stores_(stores) {}

  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    pass();
    auto told = device_->fetch_add(word, addend);
    pass();
    return told;
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    pass();
    RKV_ASSIGN_OR_RETURN(const std::uint64_t now, device_->fetch_add(word, 0));
    RKV_ASSIGN_OR_RETURN(const std::uint64_t found,
                         device_->compare_swap(word, stores_ ? now : expected, desired));
    pass();
    return stores_ ? expected : found;
  }

 private:
  static constexpr Nanos kOneWay = 10'000;

  void pass() { scheduler_.spend(scheduler_.up_to(kOneWay)); }

  const std::unique_ptr<rdma::Atomics> device_;
  rdma::sim::Scheduler& scheduler_;
  const bool stores_;
};

}  // namespace rkv::sim
