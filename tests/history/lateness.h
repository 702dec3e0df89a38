// How long after their deadlines operations end.
//
// Thread safety: none; one for each thread that calls operations.
#pragma once

#include <string>
#include <utility>

#include "common/clock.h"

namespace rkv::history {

class Lateness {
 public:
  // `describe()` is called for the worst so far only.
  template <class Describe>
  void note(Nanos late, Describe describe) {
    if (late <= worst_) return;
    worst_ = late;
    what_ = describe();
  }
  void add(const Lateness& other) {
    if (other.worst_ > worst_) *this = other;
  }

  Nanos worst() const { return worst_; }             // 0: all ended in time
  const std::string& what() const { return what_; }  // the latest operation, for people

 private:
  Nanos worst_ = 0;
  std::string what_;
};

}  // namespace rkv::history
