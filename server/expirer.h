// The thread that removes what has expired.
//
//   Expirer expirer(store, clock);
//   expirer.start();   // before clients are let in: what expired meanwhile has gone when it
//   returns
//   ...
//   expirer.stop();
//
// Thread safety: one owner; the store's calls come from any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/clock.h"
#include "server/store.h"

namespace rkv::server {

class Expirer {
 public:
  Expirer(Store& store, const Clock& clock);
  ~Expirer();  // stops. The store must make no call afterwards
  Expirer(const Expirer&) = delete;
  Expirer& operator=(const Expirer&) = delete;

  void start();
  void stop();

 private:
  void run();
  void call();

  Store& store_;
  const Clock& clock_;
  std::mutex mutex_;  // guards the two below
  bool called_ = false;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace rkv::server
