#include "rkv/fork.h"

#include "common/at_fork.h"

namespace rkv {

std::atomic<std::uint32_t> ForkGuard::process_ = 0;

struct ForkCount {
  static void raise() { ForkGuard::process_.fetch_add(1, std::memory_order_relaxed); }
};

namespace {
// Never destroyed: a process may fork while it ends.
[[maybe_unused]] const AtFork& counted = *new AtFork(ForkCount::raise);
}  // namespace

}  // namespace rkv
