// The thread that adds memory to a store while it serves: registering an extent takes longer than
// any operation may.
//
//   Grower grower(store);
//   grower.start();   // adds what is low already, then waits until the store calls
//   ...
//   grower.stop();
//
// When no memory is to be had (the limit on locked memory, a full machine), the log says so once,
// and it is tried again every second while the store asks for it.
//
// Thread safety: one owner; the store's calls come from any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/store.h"

namespace rkv::server {

class Grower {
 public:
  explicit Grower(Store& store);
  ~Grower();  // stops. The store must make no call afterwards
  Grower(const Grower&) = delete;
  Grower& operator=(const Grower&) = delete;

  void start();
  void stop();

 private:
  void run();
  void call();

  Store& store_;
  std::mutex mutex_;  // guards the two below
  bool called_ = true;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace rkv::server
