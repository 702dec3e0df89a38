// ROUND-1, with workers that ask while a replicator makes rounds.
#include "server/log/replication_rounds.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace rkv::server {
namespace {

TEST(ReplicationRounds, AnAnswerHasAMessageThatWasMadeAfterItsQuestion) {
  constexpr int kAskers = 3;
  constexpr int kQuestions = 3000;
  std::atomic<std::uint64_t> made = 0;
  std::atomic<int> asking = kAskers;
  std::atomic<int> wrong = 0;
  ReplicationRounds rounds;
  std::thread replicator([&] {
    while (asking.load() != 0 || rounds.is_wanted()) {
      const std::uint64_t round = rounds.begin();
      made.fetch_add(1);  // a message, which each backup answers
      rounds.complete(round);
    }
  });
  std::vector<std::thread> askers;
  for (int i = 0; i < kAskers; ++i) {
    askers.emplace_back([&] {
      for (int n = 0; n < kQuestions; ++n) {
        const std::uint64_t before = made.load();
        const std::uint64_t round = rounds.ask();
        while (!rounds.is_done(round))
          std::this_thread::yield();
        if (made.load() == before) wrong.fetch_add(1);
      }
      asking.fetch_sub(1);
    });
  }
  for (std::thread& asker : askers)
    asker.join();
  replicator.join();
  EXPECT_EQ(wrong.load(), 0);
}

// The judge above: a round that begins after its messages is noticed.
TEST(ReplicationRounds, ARoundThatBeginsAfterItsMessageProvesNothing) {
  ReplicationRounds rounds;
  int made = 0;
  ++made;
  const int before = made;
  const std::uint64_t asked = rounds.ask();
  rounds.complete(rounds.begin());
  EXPECT_TRUE(rounds.is_done(asked));
  EXPECT_EQ(made, before) << "no message was made after the question, and yet it is answered";
}

TEST(ReplicationRounds, AnOlderRoundTakesNothingBack) {
  ReplicationRounds rounds;
  const std::uint64_t first = rounds.ask();
  const std::uint64_t second = rounds.ask();
  rounds.complete(second);
  rounds.complete(first);
  EXPECT_TRUE(rounds.is_done(second));
  EXPECT_FALSE(rounds.is_wanted());
}

}  // namespace
}  // namespace rkv::server
