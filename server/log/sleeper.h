// Sleeper: how a consumer of the commit log sleeps until there is an entry for it.
//
// Thread safety: wait and nap: the consumer only. The others: any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace rkv::server {

class Sleeper {
 public:
  // Sleeps until wake_for_entry() or interrupt() is called, or `us` have passed. `ready` says
  // whether there is an entry already. It loads with seq_cst what wake_for_entry()'s caller stores.
  template <class Ready>
  void wait_for_entry(Ready ready, std::int64_t us) {
    state_.store(kAwaitsEntry, std::memory_order_seq_cst);
    sleep(kAwaitsEntry, ready(), us);
  }
  // Sleeps until interrupt() is called or `us` have passed. Entries do not end it.
  void nap(std::int64_t us) {
    state_.store(kNaps, std::memory_order_seq_cst);
    sleep(kNaps, false, us);
  }

  // Call it after a seq_cst store that makes an entry ready. seq_cst, paired with the mirror image
  // in wait_for_entry(): either the consumer sees that store before it sleeps, or this thread sees
  // that the consumer sleeps. Costs one load if it does not.
  void wake_for_entry() {
    if (state_.load(std::memory_order_seq_cst) == kAwaitsEntry) [[unlikely]]
      wake();
  }
  // Ends the current or next sleep of either kind.
  void interrupt();

 private:
  enum State : std::uint32_t { kAwake = 0, kAwaitsEntry = 1, kNaps = 2 };
  void sleep(State state, bool ready, std::int64_t us);
  void wake();

  std::atomic<std::uint32_t> state_{kAwake};  // a futex word
  std::atomic<bool> interrupted_{false};
};

}  // namespace rkv::server
