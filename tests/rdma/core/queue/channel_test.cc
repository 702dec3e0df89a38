// Waiting: many queues on one descriptor, edge-triggered loops, several threads on one channel. No
// wake-up may be lost; a further test proves that these checks notice a lost wake-up.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/rdma/support/pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// A queue on the shared channel, with a pair whose other end sends to it.
struct Member {
  CompletionQueue queue;
  std::optional<Pair> pair;
  std::uint64_t got = 0;
  std::uint64_t sent = 0;
};

struct SharedChannel {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  CompletionChannel channel = need(CompletionChannel::create(device));
  CompletionQueue senders = need(CompletionQueue::create(device, {.entries = 1024}));
  MemoryRegion memory = need(MemoryRegion::allocate(pd, 4096, kEverything));
  std::vector<std::unique_ptr<Member>> members;

  explicit SharedChannel(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto member = std::make_unique<Member>(make_queue());
      member->pair.emplace(pd, member->queue, senders);
      members.push_back(std::move(member));
    }
  }
  Member make_queue() {
    return {.queue = need(CompletionQueue::create(device, {.entries = 64, .channel = &channel})),
            .pair = {}};
  }
  // Sends a message to the member's queue. One thread only.
  void send_to(Member& member) {
    post_receive(member.pair->a, memory.local(0, 64), member.sent);
    // Some are signaled, because most devices free slots only at a signaled request.
    send(member.pair->b, memory.local(64, 8), member.sent,
         member.sent % 32 == 31 ? OpFlags::kSignaled : OpFlags::kNone);
    ++member.sent;
    std::array<WorkCompletion, 4> done;
    need(senders.poll(done));
  }
  Member* member_of(const CompletionEvent& event) {
    for (const auto& member : members) {
      if (event.is_of(member->queue)) return member.get();
    }
    return nullptr;
  }
};

// Takes all available completions; returns their number.
std::size_t take_all(Member& member) {
  std::size_t count = 0;
  std::array<WorkCompletion, 8> some;
  while (const std::size_t found = need(member.queue.poll(some))) {
    for (std::size_t i = 0; i < found; ++i) {
      EXPECT_TRUE(some[i].ok());
      EXPECT_EQ(some[i].wr_id, std::atomic_ref(member.got).fetch_add(1));
    }
    count += found;
  }
  return count;
}

TEST(Channels, SayWhichQueueItWas) {
  SharedChannel shared(5);
  for (const auto& member : shared.members)
    need(member->queue.arm());
  EXPECT_FALSE(need(shared.channel.next_event()));
  for (const std::size_t which : {3U, 0U, 3U}) {
    Member& member = *shared.members[which];
    shared.send_to(member);
    ASSERT_TRUE(need(wait_readable(shared.channel.fd(), soon())));
    const auto event = need(shared.channel.next_event());
    ASSERT_TRUE(event);
    EXPECT_EQ(shared.member_of(*event), &member);
    need(member.queue.arm());
    EXPECT_EQ(take_all(member), 1U);
  }
  EXPECT_FALSE(need(shared.channel.next_event())) << "nothing of the others";
}

TEST(Channels, GiveTheCallersContextBack) {
  SharedChannel shared(0);
  int mine = 0;
  Member member{.queue = need(CompletionQueue::create(
                    shared.device, {.entries = 8, .channel = &shared.channel, .context = &mine})),
                .pair = {}};
  member.pair.emplace(shared.pd, member.queue, shared.senders);
  need(member.queue.arm());
  shared.send_to(member);
  ASSERT_TRUE(need(wait_readable(shared.channel.fd(), soon())));
  const auto event = need(shared.channel.next_event());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->context, &mine);
}

// More events than an acknowledgement batch, then destruction, which would hang if one were
// missing.
TEST(Channels, AcknowledgeEverythingBeforeAQueueIsDestroyed) {
  for (const int events : {1, 15, 16, 17, 33}) {
    SharedChannel shared(1);
    Member& member = *shared.members[0];
    for (int i = 0; i < events; ++i) {
      need(member.queue.arm());
      shared.send_to(member);
      ASSERT_TRUE(need(wait_readable(shared.channel.fd(), soon())));
      EXPECT_EQ(need(shared.channel.drain()), 1U);
      take_all(member);
    }
    EXPECT_EQ(member.queue.events(), static_cast<std::uint64_t>(events));
  }
}

// An event loop: edge-triggered epoll on the one descriptor, all events at each wake-up.
TEST(Channels, ServeAnEdgeTriggeredLoop) {
  constexpr std::uint64_t kMessages = 400;
  SharedChannel shared(6);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  ASSERT_GE(epoll, 0);
  epoll_event interest{.events = EPOLLIN | EPOLLET, .data = {.fd = shared.channel.fd()}};
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, shared.channel.fd(), &interest), 0);
  for (const auto& member : shared.members)
    need(member->queue.arm());
  std::thread peer([&] {
    Random random(7);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      Member& to = *shared.members[random.below(shared.members.size())];
      // At most as many as the receive queue holds.
      const Deadline end = soon();
      while (to.sent - std::atomic_ref(to.got).load() > 32 && !end.passed())
        std::this_thread::yield();
      shared.send_to(to);
    }
  });
  std::uint64_t received = 0;
  int lost = 0;
  while (received < kMessages) {
    epoll_event ready{};
    if (epoll_wait(epoll, &ready, 1, kPatienceMs) != 1) {
      ++lost;
      break;
    }
    for (;;) {
      const auto event = need(shared.channel.next_event());
      if (!event) break;
      Member* member = shared.member_of(*event);
      ASSERT_NE(member, nullptr);
      need(member->queue.arm());
      received += take_all(*member);
    }
  }
  peer.join();
  close(epoll);
  EXPECT_EQ(lost, 0) << "no wake-up while " << kMessages - received << " messages were to come";
  EXPECT_EQ(received, kMessages);
}

enum class Order : unsigned char { kArmThenPoll, kPollThenArm };

// Waits for messages at random instants, with the right or the wrong order of arming and polling.
// Returns the number of lost wake-ups: a message had arrived and no event came.
int lost_wake_ups(Order order, int messages, int patience_ms, int enough) {
  SharedChannel shared(1);
  Member& member = *shared.members[0];
  std::atomic<int> wanted{0};
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    Random random(11);
    for (int sent = 0; sent < messages; ++sent) {
      while (wanted.load() <= sent && !stop)
        std::this_thread::yield();
      if (stop) return;
      // A message every few to some hundred microseconds: around the moment of arming.
      for (std::uint64_t spin = random.below(20'000); spin != 0; --spin)
        asm volatile("" ::: "memory");
      shared.send_to(member);
    }
  });
  int lost = 0;
  for (int i = 0; i < messages && lost < enough; ++i) {
    wanted = i + 1;
    for (bool there = false; !there;) {
      const std::uint64_t seen = member.queue.events();
      if (order == Order::kArmThenPoll) need(member.queue.arm());
      there = take_all(member) != 0;
      if (there) break;
      if (order == Order::kPollThenArm) {
        std::this_thread::sleep_for(std::chrono::microseconds(i % 100));
        need(member.queue.arm());
      }
      if (need(member.queue.wait_event(seen, soon(patience_ms)))) continue;
      there = take_all(member) != 0;
      if (there) {
        ++lost;
      } else {
        EXPECT_TRUE(there) << "the message itself did not come";
        break;
      }
    }
  }
  stop = true;
  peer.join();
  return lost;
}

TEST(WakeUps, AreNotLostWhoeverSendsWhenever) {
  EXPECT_EQ(lost_wake_ups(Order::kArmThenPoll, 2000, kPatienceMs, 1), 0);
}
// The same check with the wrong order: it must notice lost wake-ups.
TEST(WakeUps, ALostOneIsNoticed) {
  EXPECT_GE(lost_wake_ups(Order::kPollThenArm, 2000, 200, 1), 1);
}

// Threads that wait on queues of one channel: one of them reads the descriptor for all, so each
// takes events of others. No thread may sleep while it has a completion.
TEST(WakeUps, ReachEachThreadOfAChannel) {
  constexpr std::uint64_t kMessages = 300;
  SharedChannel shared(3);
  std::vector<std::thread> waiters;
  std::atomic<int> lost{0};
  for (const auto& one : shared.members) {
    waiters.emplace_back([&, member = one.get()] {
      std::array<WorkCompletion, 4> some;
      while (std::atomic_ref(member->got).load() < kMessages) {
        const auto found = member->queue.wait(some, soon());
        if (!found || *found == 0) {
          ++lost;
          return;
        }
        std::atomic_ref(member->got).fetch_add(*found);
      }
    });
  }
  Random random(3);
  std::uint64_t sent = 0;
  while (sent < kMessages * shared.members.size() && lost == 0) {
    Member& to = *shared.members[random.below(shared.members.size())];
    if (to.sent == kMessages || to.sent - std::atomic_ref(to.got).load() > 32) {
      std::this_thread::yield();
      continue;
    }
    shared.send_to(to);
    ++sent;
  }
  for (std::thread& waiter : waiters)
    waiter.join();
  EXPECT_EQ(lost, 0) << "a thread slept over its completions";
}

// Waits as if no other thread used the channel.
Result<bool> wait_alone(Member& member, CompletionChannel& channel, int patience_ms) {
  for (const Deadline end = soon(patience_ms); !end.passed();) {
    need(member.queue.arm());
    if (take_all(member) != 0) return true;
    if (need(wait_readable(channel.fd(), end))) need(channel.drain());
  }
  return false;
}

// The check above with these waiters: a thread that never gets a message takes the event of another
// thread, which continues to sleep. The leader of a channel exists to prevent this; here it
// happens, and the check notices.
TEST(WakeUps, AreLostToAnotherThreadOfAChannelWithoutALeader) {
  SharedChannel shared(2);
  Member& busy = *shared.members[0];
  Member& idle = *shared.members[1];
  std::atomic<bool> stop{false};
  std::thread thief([&] {
    while (!stop)
      need(wait_alone(idle, shared.channel, 20));
  });
  int lost = 0;
  for (int i = 0; i < 2000 && lost == 0; ++i) {
    std::thread peer([&] {
      for (int spin = 0; spin < i * 7 % 5000; ++spin)
        asm volatile("" ::: "memory");
      shared.send_to(busy);
    });
    if (!need(wait_alone(busy, shared.channel, 200))) {
      peer.join();
      EXPECT_EQ(take_all(busy), 1U) << "the message itself did not come";
      ++lost;
      break;
    }
    peer.join();
  }
  stop = true;
  thief.join();
  EXPECT_EQ(lost, 1);
}

TEST(WakeUps, TwoThreadsMayWaitOnOneQueue) {
  constexpr std::uint64_t kMessages = 300;
  SharedChannel shared(1);
  Member& member = *shared.members[0];
  std::atomic<std::uint64_t> got{0};
  std::atomic<bool> done{false};
  std::mutex polling;  // one thread at a time may poll a queue; sleeping needs no lock
  const auto work = [&] {
    while (!done) {
      const std::uint64_t seen = member.queue.events();
      std::array<WorkCompletion, 1> one;
      std::size_t found = 0;
      {
        const std::lock_guard lock(polling);
        need(member.queue.arm());
        found = need(member.queue.poll(one));
      }
      got += found;
      if (found == 0) need(member.queue.wait_event(seen, soon(100)));
    }
  };
  std::thread first(work);
  std::thread second(work);
  const Deadline end = soon(4 * kPatienceMs);
  while (got < kMessages && !end.passed()) {
    if (member.sent < kMessages && member.sent - got < 16) shared.send_to(member);
    std::this_thread::yield();
  }
  done = true;
  first.join();
  second.join();
  EXPECT_EQ(got, kMessages);
}

// A thread takes events while another destroys queues: neither hangs or uses freed memory.
TEST(Channels, AQueueMayGoWhileItsEventsAreTaken) {
  SharedChannel shared(0);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> taken{0};
  std::thread taker([&] {
    while (!stop) {
      if (need(shared.channel.next_event())) {
        ++taken;
      } else {
        std::this_thread::yield();
      }
    }
  });
  // At least one event must be taken while its queue exists: the others may be dropped with it.
  const Deadline end = soon(4 * kPatienceMs);
  for (int i = 0; i < 60 || (taken == 0 && !end.passed()); ++i) {
    Member member = shared.make_queue();
    member.pair.emplace(shared.pd, member.queue, shared.senders);
    need(member.queue.arm());
    shared.send_to(member);
    // Destroyed while the event is on its way, queued, or taken.
    for (int spin = 0; spin < i * 40; ++spin)
      asm volatile("" ::: "memory");
  }
  stop = true;
  taker.join();
  EXPECT_GT(taken, 0U);
}

TEST(Channels, AWaitEndsWithItsDeadlineForEachOfItsThreads) {
  SharedChannel shared(2);
  std::array<std::thread, 2> waiters;
  std::atomic<int> ended{0};
  for (std::size_t i = 0; i < waiters.size(); ++i) {
    waiters[i] = std::thread([&, i] {
      std::array<WorkCompletion, 1> none;
      const auto found = shared.members[i]->queue.wait(none, soon(20 + 30 * static_cast<int>(i)));
      if (found && *found == 0) ++ended;
    });
  }
  for (std::thread& waiter : waiters)
    waiter.join();
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace rkv::rdma
