// StoreMaintenance: the store's work beside its operations. One thread adds memory, one removes
// expired records, and one evicts records. A store in memory alone that is not a cache moves them
// instead, to make room for long ones.
//
// Thread safety: one owner.
#pragma once

#include <functional>

#include "common/clock.h"
#include "server/background/background_thread.h"
#include "server/background/repeated_step.h"
#include "server/store/store.h"

namespace rkv::server {

class StoreMaintenance {
 public:
  struct Parts {
    Store& store;
    const Clock& clock;
    // Both empty without a database. Both are called by the thread that evicts and must not block.
    std::function<void()> room_made = {};     // data memory is free again
    std::function<void()> request_sync = {};  // of all writes begun so far
    MakeBackground make_background = background_threads;
  };
  // The store calls the threads, so the object must outlive the store's operations.
  explicit StoreMaintenance(Parts parts);

  void start();
  // Blocks until all steps under way have ended.
  void stop();

 private:
  Nanos grow();
  Nanos evict();
  bool evicts() const {
    const Evictor& evictor = parts_.store.evictor();
    return parts_.request_sync || evictor.drops() || evictor.moves();
  }

  const Parts parts_;
  bool logged_that_it_cannot_grow_ = false;  // used by the growing thread
  RepeatedStep growing_;
  RepeatedStep expiring_;
  RepeatedStep evicting_;
};

}  // namespace rkv::server
