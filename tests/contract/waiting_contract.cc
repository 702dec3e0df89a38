// Contract: waiting, waking, and other threads.
#include <array>
#include <atomic>

#include "link.h"

namespace rkv::rdma::contract {
namespace {

using Kind = Completion::Kind;

constexpr Nanos kSoon = 2'000 * kNanosPerMs;  // far from kPatienceMs
constexpr PollMode kModes[] = {PollMode::kAdaptive, PollMode::kBusy, PollMode::kEvent};

TEST_P(TransportContract, WaitEndsWithItsDeadline) {
  for (const PollMode mode : kModes) {
    End end(*harness_, harness_->client(), {.poll = mode});
    // A wake-up without cause is allowed: only the end counts.
    EXPECT_TRUE(ends_within(*harness_, kSoon, [&] { end.queue->wait(end.soon(20)); }));
    EXPECT_EQ(end.poll_once(), 0U);
  }
}

TEST_P(TransportContract, AWakeBeforeTheWaitIsNotLost) {
  for (const PollMode mode : kModes) {
    End end(*harness_, harness_->client(), {.poll = mode});
    for (int round = 0; round < 3; ++round) {
      end.queue->wake();
      end.queue->wake();
      const Deadline deadline = end.soon();
      end.queue->wait(deadline);
      EXPECT_FALSE(deadline.passed()) << "the wake was lost";
    }
  }
}

TEST_P(TransportContract, AWakeFromAnotherThreadEndsTheWait) {
  for (const PollMode mode : kModes) {
    End end(*harness_, harness_->client(), {.poll = mode});
    std::atomic<bool> told = false;
    harness_->run_both(
        [&] {
          const Deadline deadline = end.soon();
          while (!told && !deadline.passed())
            end.queue->wait(deadline);
          EXPECT_TRUE(told);
        },
        [&] {
          told = true;
          end.queue->wake();
        });
  }
}

TEST_P(TransportContract, NoMessageIsMissedInAnyMode) {
  for (const PollMode mode : kModes) {
    LinkOptions options;
    options.queue.poll = mode;
    options.queue.receive_buffers = 256;  // the client may be ahead (Harness::holds_messages)
    Link link(*harness_, options);
    // One at a time: each must wake a waiter that has just gone to sleep.
    harness_->run_both(
        [&] {
          for (std::size_t i = 1; i <= 200; ++i)
            ASSERT_TRUE(link.server.until_seen(i));
        },
        [&] {
          for (std::size_t i = 1; i <= 200; ++i) {
            link.post(link.send(0, 8, i));
            ASSERT_TRUE(link.client.until_seen(i));
          }
        });
  }
}

TEST_P(TransportContract, NoMessageIsMissedByWhoWaitsForSeveralQueues) {
  if (!harness_->waits_for_several()) return;
  for (const PollMode mode : kModes) {
    LinkOptions options;
    options.queue.poll = mode;
    options.queue.receive_buffers = 256;  // the client may be ahead (Harness::holds_messages)
    std::array<Link, 2> links = {Link(*harness_, options), Link(*harness_, options)};
    const std::array<Queue*, 2> queues = {links[0].server.queue.get(), links[1].server.queue.get()};
    constexpr std::size_t kMessages = 200;
    harness_->run_both(
        [&] {
          const auto seen = [&] {
            return links[0].server.seen.size() + links[1].server.seen.size();
          };
          const Deadline deadline = links[0].server.soon();
          while (seen() < kMessages && !deadline.passed()) {
            const std::size_t first = links[0].server.poll_once();
            if (links[1].server.poll_once() + first == 0) wait_any(queues, mode, deadline);
          }
          EXPECT_EQ(seen(), kMessages);
        },
        [&] {
          for (std::size_t i = 1; i <= kMessages; ++i) {
            Link& link = links[i % 3 == 0 ? 1 : 0];
            link.post(link.send(0, 8, i));
            ASSERT_TRUE(link.client.until_seen(link.client.seen.size() + 1));
          }
        });
  }
}

TEST_P(TransportContract, AWaitForSeveralQueuesEndsWithItsDeadlineAndByAnyWake) {
  if (!harness_->waits_for_several()) return;
  for (const PollMode mode : kModes) {
    End first(*harness_, harness_->client(), {.poll = mode});
    End second(*harness_, harness_->client(), {.poll = mode});
    const std::array<Queue*, 2> queues = {first.queue.get(), second.queue.get()};
    EXPECT_TRUE(ends_within(*harness_, kSoon, [&] { wait_any(queues, mode, first.soon(20)); }));
    wait_any({}, mode, first.soon());
    std::atomic<bool> told = false;
    harness_->run_both(
        [&] {
          const Deadline deadline = first.soon();
          while (!told && !deadline.passed())
            wait_any(queues, mode, deadline);
          EXPECT_TRUE(told);
        },
        [&] {
          told = true;
          second.queue->wake();
        });
  }
}

TEST_P(TransportContract, AbortFromAnotherThreadWakesTheQueue) {
  Link link(*harness_, {.queue = {.receive_buffers = 16, .poll = PollMode::kEvent}});
  harness_->run_both([&] { EXPECT_TRUE(link.client.until_disconnected()); },
                     [&] { link.active->abort(); });
}

TEST_P(TransportContract, AcceptingOnAnotherThreadLosesNoMessage) {
  for (int round = 0; round < 5; ++round) {
    const auto listener = need(harness_->server().listen(harness_->listen_address()));
    End client(*harness_, harness_->client());
    End server(*harness_, harness_->server());
    std::unique_ptr<Connection> passive;
    std::unique_ptr<Connection> active;
    std::atomic<bool> accepted = false;
    std::atomic<bool> done = false;
    const auto nudge = [&] {  // as a client's probe of a silent server does
      Operation read = Operation::read(client.piece(0, 8), client.region->local_key(),
                                       server.region->address(), server.region->remote_key(), 2);
      while (!done) {
        const std::size_t before = client.seen.size();
        ASSERT_EQ(need(active->post(std::span(&read, 1))), 1U);
        ASSERT_TRUE(client.until_seen(before + 1));
      }
    };
    harness_->run_both(
        [&] {
          EXPECT_TRUE(server.until([&] { return accepted && server.seen.size() == 10; }));
          done = true;
        },
        [&] {
          harness_->run_both(
              [&] {
                auto incoming = need(listener->next(server.soon()));
                passive = need(incoming->accept(*server.queue, {.grant = Access::kRemoteRead}, {},
                                                client.soon()));
                accepted = true;
                server.queue->wake();  // all messages may have been seen before
              },
              [&] {
                active = need(harness_->client().connect(
                    *client.queue, {}, harness_->connect_address(listener->port()), {},
                    client.soon(), nullptr));
                const Operation send =
                    Operation::send(client.piece(0, 8), client.region->local_key(), 1);
                for (int i = 0; i < 10; ++i) {
                  EXPECT_EQ(need(active->post(std::span(&send, 1))), 1U);
                }
                if (harness_->may_hold_bytes_back()) nudge();
              });
        });
    for (const Seen& one : server.seen)
      EXPECT_EQ(one.connection, passive.get());
  }
}

TEST_P(TransportContract, AListenerCanBeWoken) {
  const auto listener = need(harness_->server().listen(harness_->listen_address()));
  std::atomic<bool> told = false;
  harness_->run_both(
      [&] {
        const Deadline deadline = Deadline::after_ms(harness_->clock(), kPatienceMs);
        while (!told && !deadline.passed())
          EXPECT_EQ(need(listener->next(deadline)), nullptr);
        EXPECT_TRUE(told);
      },
      [&] {
        told = true;
        listener->wake();
      });
}

TEST_P(TransportContract, AListenerGivesUpAtTheDeadline) {
  const auto listener = need(harness_->server().listen(harness_->listen_address()));
  EXPECT_EQ(need(listener->next(Deadline::after_ms(harness_->clock(), 10))), nullptr);
}

}  // namespace
}  // namespace rkv::rdma::contract
