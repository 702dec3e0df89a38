// Recorded clients on the second machine, at work on the keys of a Crowd of this one.
//
//   Crowd crowd(clock, server.address(), "cut-", seed, Transport::kTcp);
//   OtherClients others(clock, server.address(), "cut-", seed);
//   ...
//   crowd.add(others.stop());
//   judge_crowd(crowd, "cut");
//
// The machines have clocks of their own, and emulated ones drift apart. A thread asks
// for the other machine's time again and again, from before the first operation until after the
// last. An operation that was called there at a time was called after the question whose answer was
// an earlier time, and returned before the answer that was a later time. So it is widened to an
// interval of this clock that is certain to contain it. A right history stays right; the check
// notices a little less.
//
// Thread safety: one thread uses it; it has one of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "tests/history/crowd.h"
#include "tests/history/other_host.h"

namespace rkv::history {

class OtherClients {
 public:
  static constexpr int kThreads = 2;

  // `seed` and `prefix`: as the Crowd's. Returns when they have begun.
  OtherClients(const Clock& clock, const std::string& server, const std::string& prefix,
               std::uint64_t seed);
  ~OtherClients();
  OtherClients(const OtherClients&) = delete;
  OtherClients& operator=(const OtherClients&) = delete;

  // Whether a client of this machine called an operation in a report of stop(), or of a Crowd to
  // which that report was added.
  static bool is_here(const Operation& operation);

  // Operations with an answer, so far.
  std::size_t answered();
  // Returns when they have ended: what they did, by `clock`. EXPECTs that the report is whole.
  CrowdReport stop();
  // After stop(): by how much an operation was widened, in the median.
  Nanos uncertainty() const;

 private:
  // The other clock was `there` at an instant between the two times.
  struct Look {
    Nanos before;
    Nanos there;
    Nanos after;
  };

  std::string ask(const std::string& question);
  void look_at_clock();
  void end_looking();
  void translate(History& history) const;

  const Clock& clock_;
  Mutex mutex_;
  OtherHost host_;           // a shell of their own; after the constructor only with the mutex
  std::vector<Look> looks_;  // in the order of time; the looker's, until it has ended
  std::atomic<bool> over_{false};
  std::thread looker_;
};

}  // namespace rkv::history
