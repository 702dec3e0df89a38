// Objects that several threads share: a queue pair to which many post, and a queue that many poll.
#include "rkv/rdma/locked.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "rkv/rdma/accounting.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kPosters = 4;
constexpr std::uint64_t kWritesOfEach = 2000;

// A queue pair and the count of its requests change together.
struct Sender {
  QueuePair qp;
  SendSlots slots;
};

// The value that a poster writes with its i-th request, unlike any other.
std::uint64_t value_of(std::size_t poster, std::uint64_t i) {
  return (poster + 1) << 32 | i;
}
std::size_t place_of(std::size_t poster, std::uint64_t i) {
  return (poster * kWritesOfEach + i) * sizeof(std::uint64_t);
}

// Posts up to three WRITEs, as many as there are slots, with one doorbell; returns their number.
std::uint64_t post_some(Locked<Sender>& sender, Loopback& loop, std::size_t poster,
                        std::uint64_t from) {
  return sender.with([&](Sender& to) {
    std::uint64_t count = 0;
    Batch batch = to.qp.batch();
    for (; count < 3 && from + count < kWritesOfEach && to.slots.free() != 0; ++count) {
      const auto slot = to.slots.take();
      const std::size_t place = place_of(poster, from + count);
      batch.write(slot.number, slot.signaled ? OpFlags::kSignaled : OpFlags::kNone,
                  loop.client.memory.local(place, 8),
                  *loop.server.memory.remote().subspan(place, 8));
    }
    need(std::move(batch).submit());
    return count;
  });
}

TEST(LockedQueuePairs, TakeRequestsOfManyThreadsWhileAnotherPolls) {
  Loopback loop;
  for (std::size_t poster = 0; poster < kPosters; ++poster) {
    for (std::uint64_t i = 0; i < kWritesOfEach; ++i) {
      const std::uint64_t value = value_of(poster, i);
      std::memcpy(loop.client.at(place_of(poster, i)), &value, sizeof value);
    }
  }
  const std::uint32_t length = loop.client.qp->send_length();
  Locked<Sender> sender(
      Sender{std::move(*loop.client.qp), SendSlots({.slots = length, .signal_every = 8})});
  loop.client.qp.reset();
  std::vector<std::thread> posters;
  std::atomic<bool> stop{false};
  for (std::size_t poster = 0; poster < kPosters; ++poster) {
    posters.emplace_back([&, poster] {
      for (std::uint64_t done = 0; done < kWritesOfEach && !stop;) {
        const std::uint64_t count = post_some(sender, loop, poster, done);
        done += count;
        if (count == 0) std::this_thread::yield();
      }
    });
  }
  // The queue is this thread's alone, so it waits without the lock.
  constexpr std::uint64_t kTotal = kPosters * kWritesOfEach;
  std::uint64_t completed = 0;
  while (completed < kTotal) {
    std::array<WorkCompletion, 16> some;
    const std::size_t count = need(loop.client.queue.wait(some, soon()));
    if (count == 0) break;
    completed += sender.with([&](Sender& to) {
      std::uint64_t freed = 0;
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(some[i].ok());
        freed += to.slots.complete(static_cast<std::uint32_t>(some[i].wr_id));
      }
      return freed;
    });
  }
  stop = true;
  for (std::thread& poster : posters)
    poster.join();
  const Sender last = std::move(sender).take();
  EXPECT_EQ(completed, kTotal);
  EXPECT_EQ(last.slots.posted(), kTotal);
  EXPECT_EQ(last.slots.completed(), kTotal);
  EXPECT_EQ(last.slots.signaled(), kTotal / 8);
  for (std::size_t poster = 0; poster < kPosters; ++poster) {
    for (std::uint64_t i = 0; i < kWritesOfEach; ++i)
      ASSERT_EQ(loop.server.word(place_of(poster, i)), value_of(poster, i)) << poster << ' ' << i;
  }
}

TEST(LockedQueues, GiveEachCompletionToOneOfTheirThreads) {
  constexpr std::uint64_t kReads = 400;
  Loopback loop;
  Locked<CompletionQueue> queue(std::move(loop.client.queue));
  std::array<std::atomic<int>, kReads> seen{};
  std::atomic<std::uint64_t> total{0};
  const Deadline end = soon();
  const auto poll = [&] {
    while (total < kReads && !end.passed()) {
      std::array<WorkCompletion, 3> some;
      const std::size_t count =
          need(queue.with([&](CompletionQueue& of) { return of.poll(some); }));
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(some[i].ok());
        ++seen.at(some[i].wr_id);
      }
      total += count;
      if (count == 0) std::this_thread::yield();
    }
  };
  std::array<std::thread, 3> pollers;
  for (std::thread& one : pollers)
    one = std::thread(poll);
  for (std::uint64_t i = 0; i < kReads; ++i) {
    // At most as many as the send queue has slots.
    while (i - total >= 64 && !end.passed())
      std::this_thread::yield();
    Batch batch = loop.client.qp->batch();
    batch.read(i, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
    need(std::move(batch).submit());
  }
  for (std::thread& one : pollers)
    one.join();
  for (std::uint64_t i = 0; i < kReads; ++i)
    ASSERT_EQ(seen.at(i), 1) << i;
}

}  // namespace
}  // namespace rkv::rdma
