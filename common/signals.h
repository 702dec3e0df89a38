// The signals that ask a program to end.
#pragma once

#include <csignal>

namespace rkv {

inline sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace rkv
