// A fiber: a function with a stack of its own that runs until it gives way. So blocking code of
// many actors runs on one thread, and who runs when is decided by whoever resumes them.
//
//   Fiber fiber([&] { one(); fiber_gives_way(); two(); });
//   fiber.resume();  // one()
//   fiber.resume();  // two(); fiber.done()
//
// Stacks are kept and used again by later fibers; below each lies a page that nobody may touch.
// AddressSanitizer is told of every switch. Not for ThreadSanitizer.
//
// Thread safety: none; all fibers of a process belong to one thread.
#pragma once

#include <functional>
#include <memory>

namespace rkv::rdma::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // REQUIRES done(), or never resumed: what lives on an unfinished stack cannot be destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it gives way or returns. Not from inside a fiber.
  void resume();
  // From inside the body: back to resume()'s caller.
  void give_way();
  bool done() const { return done_; }

 private:
  struct Machine;
  static void enter();

  std::function<void()> body_;
  std::unique_ptr<Machine> machine_;
  bool started_ = false;
  bool done_ = false;
};

}  // namespace rkv::rdma::sim
