// A fiber: a function with a separate stack that runs until it gives way. So blocking code of many
// clients and servers runs on one thread, and the caller of resume() decides which fiber runs.
//
//   Fiber fiber([&] { one(); fiber.give_way(); two(); });
//   fiber.resume();  // one()
//   fiber.resume();  // two(); fiber.done()
//
// Stacks are reused by later fibers; below each stack lies an inaccessible guard page.
// AddressSanitizer is notified of every switch. Does not work with ThreadSanitizer.
//
// Thread safety: none; all fibers of a process belong to one thread.
#pragma once

#include <functional>
#include <memory>

namespace rkv::rdma::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // REQUIRES: done(), or never resumed: objects on an unfinished stack cannot be destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it gives way or returns. REQUIRES: not called from inside a fiber.
  void resume();
  // Called from inside the body: returns to the caller of resume().
  void give_way();
  bool done() const { return done_; }

 private:
  struct Machine;
  void start();
  static void enter();

  std::function<void()> body_;
  std::unique_ptr<Machine> machine_;
  bool started_ = false;
  bool done_ = false;
};

}  // namespace rkv::rdma::sim
