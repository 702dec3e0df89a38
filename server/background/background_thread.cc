#include "server/background/background_thread.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/mutex.h"
#include "common/thread.h"

namespace rkv::server {

namespace {

class Threads final : public BackgroundThread {
 public:
  ~Threads() override { RKV_CHECK(threads_.empty(), "a part is destroyed while its threads run"); }

  void start(const char* name, std::function<void()> body) override {
    threads_.emplace_back([name, body = std::move(body)] {
      name_thread(name);
      body();
    });
  }
  void wait(Mutex& mutex, Nanos at_most) override RKV_REQUIRES(mutex) {
    if (at_most == kUntilNotified) {
      changed_.wait(mutex);
    } else {
      changed_.wait_for(mutex, std::chrono::nanoseconds(at_most));
    }
  }
  void notify() override { changed_.notify_all(); }

 private:
  void join() override {
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }

  ConditionVariable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BackgroundThread> background_threads() {
  return std::make_unique<Threads>();
}

}  // namespace rkv::server
