// Waiting on several queues: spins over all of them, then sleeps in poll(2) on their descriptors.
#include <poll.h>

#include <algorithm>
#include <array>

#include "common/check.h"
#include "rdma/transport/spin_window.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma {

namespace {

bool any_ready(std::span<Queue* const> queues) {
  bool ready = false;
  for (Queue* const queue : queues)
    ready = queue->is_ready() || ready;
  return ready;
}

// Returns true when there is a reason to return.
bool spin(std::span<Queue* const> queues, PollMode mode, const Deadline& deadline) {
  // Some events, such as the end of a peer, are signaled by the descriptor alone. Only a sleep sees
  // them.
  constexpr unsigned kBusyRounds = 16'384;
  unsigned round = 0;
  const auto ready = [&] {
    return any_ready(queues) || (mode == PollMode::kBusy && ++round == kBusyRounds);
  };
  return SpinWindow().spin(ready, mode, deadline);
}

void sleep(std::span<Queue* const> queues, const Deadline& deadline) {
  std::array<pollfd, kMostQueues> descriptors;
  std::array<bool, kMostQueues> asleep{};
  nfds_t count = 0;
  bool ready = false;
  for (std::size_t i = 0; i < queues.size() && !ready; ++i) {
    const auto descriptor = queues[i]->begin_sleep();
    asleep[i] = descriptor.has_value();
    ready = !descriptor;
    if (descriptor) descriptors[count++] = {.fd = *descriptor, .events = POLLIN, .revents = 0};
  }
  // Longest sleep: queues may have to look after their peers, which only their own wait() does
  // otherwise.
  constexpr int kLongestMs = 500;
  if (!ready) ::poll(descriptors.data(), count, std::min(deadline.left_ms(), kLongestMs));
  for (std::size_t i = 0; i < queues.size(); ++i) {
    if (asleep[i]) queues[i]->end_sleep();
  }
}

}  // namespace

void wait_any(std::span<Queue* const> queues, PollMode mode, const Deadline& deadline) {
  RKV_CHECK(queues.size() <= kMostQueues, "too many queues to wait for at once");
  if (queues.empty() || any_ready(queues)) return;
  if (queues.size() == 1) return queues.front()->wait(deadline);
  if (mode != PollMode::kEvent && spin(queues, mode, deadline)) return;
  if (mode != PollMode::kBusy) sleep(queues, deadline);
}

}  // namespace rkv::rdma
