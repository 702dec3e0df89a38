#include "rkv/interruption.h"

#include <utility>

namespace rkv {

namespace {
thread_local const Interruption* innermost = nullptr;
}  // namespace

Interruption::Interruption(bool (*asks)()) : asks_(asks), before_(std::exchange(innermost, this)) {}

Interruption::~Interruption() {
  innermost = before_;
}

const Interruption* Interruption::of_this_thread() {
  return innermost;
}

}  // namespace rkv
