#include "server/background/background_thread.h"

#include <chrono>
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
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
  bool running() const override { return !threads_.empty(); }
  void join() override {
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }
  void wait(std::unique_lock<std::mutex>& lock, Nanos at_most) override {
    if (at_most == kUntilNotified) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(at_most));
    }
  }
  void notify() override { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BackgroundThread> background_threads() {
  return std::make_unique<Threads>();
}

}  // namespace rkv::server
