// Ctrl-C (SIGINT) ends a command of the shell instead of the shell.
//
//   Interrupt interrupt;
//   do print(); while (!interrupt.wait_until(next));
//
// Only the first SIGINT of an object's life is caught. A second one does what it did before the
// object was made, so that a command that does not look can be ended too. An ignored SIGINT stays
// ignored.
//
// Thread safety: one thread makes and uses it. One object at a time.
#pragma once

#include <signal.h>

#include <chrono>

namespace rkv::cli {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Blocks until SIGINT has come, which returns true, or until the time, which returns false.
  bool wait_until(std::chrono::steady_clock::time_point time) const;

 private:
  int event_;  // -1: none, and SIGINT is not caught
  bool is_caught_ = false;
  struct sigaction before_{};
};

}  // namespace rkv::cli
