// The store behind an rkv_client: one server, or several as one store.
//
// Invariants:
//  CSTORE-1  One thread at a time is in a call of the Cluster.
//
// Thread safety: any thread, apart from construction, moves and the destructor.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "client/c/errors.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "rkv/cluster.h"
#include "rkv/fork.h"
#include "rkv/one_user.h"
#include "rkv/shared_client.h"

namespace rkv::c {

class Store {
 public:
  explicit Store(SharedClient&& client) : store_(std::move(client)) {}
  // `timeout`: of operations that have none of their own.
  Store(Cluster&& cluster, std::chrono::milliseconds timeout)
      : store_(std::make_unique<Several>(std::move(cluster), timeout)) {}

  // Calls `body(client, timeout)`, which returns a status, with a SharedClient& or a Cluster&, and
  // the time that is left for it. RKV_TIMEOUT: other threads' calls of the Cluster took all of it.
  template <class Body>
  rkv_status call(Timeout timeout, rkv_error* error, Body body) {
    if (auto* const shared = std::get_if<SharedClient>(&store_)) return body(*shared, timeout);
    Several& several = *std::get<1>(store_);
    if (std::get<1>(store_).get_deleter().guard.is_inherited())
      return report(client::kInherited, error);
    const SteadyClock clock;
    const auto time = timeout.count() == 0 ? several.timeout : timeout;
    const Deadline deadline = Deadline::after_ms(clock, time.count());
    const Turn turn(several, deadline);
    if (!turn) return report(RKV_TIMEOUT, "other threads' calls took the time", error);
    return body(several.cluster, Timeout(std::max<std::int64_t>(1, deadline.left_ms())));
  }
  const std::string& describe() const {
    if (const auto* const shared = std::get_if<SharedClient>(&store_)) return shared->describe();
    return std::get<1>(store_)->cluster.describe();
  }

 private:
  struct Several {
    Several(Cluster&& servers, std::chrono::milliseconds patience)
        : cluster(std::move(servers)), timeout(patience) {}
    Cluster cluster;
    std::chrono::milliseconds timeout;
    Mutex mutex;
    ConditionVariable turn_ends;
    bool is_taken RKV_GUARDED_BY(mutex) = false;
  };
  // Has the Cluster while it lives, unless the deadline has passed.
  class Turn {
   public:
    Turn(Several& several, const Deadline& deadline) : several_(several) {
      const MutexLock lock(several_.mutex);
      while (several_.is_taken) {
        if (deadline.passed()) return;
        several_.turn_ends.wait_for(several_.mutex, std::chrono::milliseconds(deadline.left_ms()));
      }
      has_ = several_.is_taken = true;
    }
    ~Turn() {
      if (!has_) return;
      {
        const MutexLock lock(several_.mutex);
        several_.is_taken = false;
      }
      several_.turn_ends.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return has_; }

   private:
    Several& several_;
    bool has_ = false;
  };

  std::variant<SharedClient, ForkOwned<Several>> store_;
};

}  // namespace rkv::c
