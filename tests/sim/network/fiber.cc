#include "tests/sim/network/fiber.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "common/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace rkv::rdma::sim {

namespace {

// The size is sufficient with sanitizers, which make frames several times as large. Pages are
// allocated on first use.
constexpr std::size_t kStackBytes = std::size_t{1} << 20;
constexpr std::size_t kGuardBytes = 4096;

std::byte* map_stack() {
  void* const at = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  RKV_CHECK(at != MAP_FAILED && mprotect(at, kGuardBytes, PROT_NONE) == 0,
            "no memory for a fiber's stack");
  return static_cast<std::byte*>(at);
}

// Never unmapped: a simulation creates thousands of short-lived fibers, a few at a time.
std::vector<std::byte*>& spare_stacks() {
  static std::vector<std::byte*> spare;
  return spare;
}

Fiber* starting = nullptr;  // passed to enter(): makecontext passes only ints

#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer takes a jump for one within a stack.
class Place {
 public:
  void start(ucontext_t& there) { swap(there); }
  void go(Place& there) { swap(there.context_); }

 private:
  void swap(ucontext_t& there) { RKV_CHECK(swapcontext(&context_, &there) == 0, "swapcontext(3)"); }
  ucontext_t context_;
};
#else
// Where one side is while the other one runs. swapcontext(3) makes a system call for the mask of
// signals, which takes ten times as long as a jump.
class Place {
 public:
  // Stores the place of the caller, and goes to the beginning of a stack.
  void start(const ucontext_t& there) {
    if (_setjmp(here_) == 0) setcontext(&there);
  }
  // Stores the place of the caller, and goes to one that was stored.
  void go(Place& there) {
    if (_setjmp(here_) == 0) _longjmp(there.here_, 1);
  }

 private:
  jmp_buf here_;
};
#endif

}  // namespace

struct Fiber::Machine {
  Place inside;
  Place outside;
  std::byte* stack = nullptr;
  void* fake_inside = nullptr;  // AddressSanitizer's second stack of each side
  void* fake_outside = nullptr;
  const void* outside_bottom = nullptr;
  std::size_t outside_bytes = 0;

  // Notify AddressSanitizer of the next stack, and that the switch is done. `save` receives the
  // second stack of the side that is left; nullptr if that side does not continue.
  static void leave([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom,
                    [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(save, bottom, bytes);
#endif
  }
  static void arrive([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom,
                     [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(saved, bottom, bytes);
#endif
  }
};

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), machine_(std::make_unique<Machine>()) {
  auto& spare = spare_stacks();
  if (spare.empty()) {
    machine_->stack = map_stack();
  } else {
    machine_->stack = spare.back();
    spare.pop_back();
  }
}

Fiber::~Fiber() {
  RKV_CHECK(done_ || !started_, "a fiber is destroyed before its end");
  spare_stacks().push_back(machine_->stack);
}

void Fiber::enter() {
  Fiber& self = *starting;
  Machine& machine = *self.machine_;
  Machine::arrive(nullptr, &machine.outside_bottom, &machine.outside_bytes);
  self.body_();
  self.done_ = true;
  Machine::leave(nullptr, machine.outside_bottom, machine.outside_bytes);
  machine.inside.go(machine.outside);
}

void Fiber::resume() {
  RKV_CHECK(!done_, "a fiber that has ended is resumed");
  Machine& machine = *machine_;
  Machine::leave(&machine.fake_outside, machine.stack + kGuardBytes, kStackBytes - kGuardBytes);
  if (started_) {
    machine.outside.go(machine.inside);
  } else {
    started_ = true;
    start();
  }
  Machine::arrive(machine.fake_outside, nullptr, nullptr);
}

void Fiber::start() {
  starting = this;
  ucontext_t beginning;
  RKV_CHECK(getcontext(&beginning) == 0, "getcontext(3)");
  beginning.uc_stack.ss_sp = machine_->stack + kGuardBytes;
  beginning.uc_stack.ss_size = kStackBytes - kGuardBytes;
  beginning.uc_link = nullptr;
  makecontext(&beginning, &Fiber::enter, 0);
  machine_->outside.start(beginning);
}

void Fiber::give_way() {
  Machine& machine = *machine_;
  Machine::leave(&machine.fake_inside, machine.outside_bottom, machine.outside_bytes);
  machine.inside.go(machine.outside);
  Machine::arrive(machine.fake_inside, &machine.outside_bottom, &machine.outside_bytes);
}

}  // namespace rkv::rdma::sim
