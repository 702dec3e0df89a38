// Common part of the streams of bench_verbs_streams: the amount of data, a barrier at the
// beginning, the clock, and how a side waits.
#pragma once

#include <latch>
#include <stdexcept>
#include <thread>

#include "bench/program.h"
#include "common/clock.h"
#include "rkv/rdma/adaptive_wait.h"

namespace rkv::bench {

// The peer has buffers for this many times the messages that one side has in flight.
inline constexpr std::uint32_t kReceivesPerSend = 8;

struct Flow {
  std::uint64_t bytes = 0;  // of each write, and of the longest read
  std::uint64_t total = 0;  // a multiple of `bytes`
  std::uint32_t depth = 0;  // messages in flight
};

// Counts of one side.
struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;  // calls that moved any bytes
  std::uint64_t sleeps = 0;
};

json tcp(const Flow& flow);
json raw(const Flow& flow);

inline Deadline no_longer() {
  static const SteadyClock clock;
  return Deadline::after_ms(clock, 60'000);
}

inline void must(const char* what, const Status& status) {
  if (!status) give_up(what, status.error());
}

// Call after a poll that found nothing. `sleep` must arm, poll once more and then block.
template <class Sleep>
void pause(rdma::AdaptiveWait& policy, Moved& moved, Sleep sleep) {
  switch (policy.miss()) {
    case rdma::AdaptiveWait::Step::kPoll:
      break;
    case rdma::AdaptiveWait::Step::kYield:
      std::this_thread::yield();
      break;
    case rdma::AdaptiveWait::Step::kSleep:
      ++moved.sleeps;
      sleep();
      break;
  }
}

// Runs `write` on this thread and `read` on another, and measures from the first write to the last
// byte read. An exception of either thread ends the program, because the peer would wait for it.
template <class Write, class Read>
json move(Write write, Read read) {
  std::latch ready(2);
  Moved got;
  Clock::time_point end;
  std::jthread reader([&] {
    ready.arrive_and_wait();
    got = read();
    end = Clock::now();
  });
  ready.arrive_and_wait();
  const auto begin = Clock::now();
  const Moved sent = write();
  reader.join();
  return {{"seconds", std::chrono::duration<double>(end - begin).count()},
          {"bytes_sent", sent.bytes},
          {"bytes_received", got.bytes},
          {"writes", sent.calls},
          {"reads", got.calls},
          {"sleeps", {{"writer", sent.sleeps}, {"reader", got.sleeps}}}};
}

}  // namespace rkv::bench
