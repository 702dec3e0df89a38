// Clients that do the handshake and then write what they like into the memory they share with us.
#include <atomic>
#include <thread>

#include "common/random.h"
#include "tests/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::need;
using Kind = Completion::Kind;

class ShmHostile : public ::testing::Test {
 protected:
  ShmHostile() : good_(harness_) {}

  struct Pair {
    RawClient client;
    std::unique_ptr<Connection> connection;
  };
  Pair intrude() {
    Pair out{.client = RawClient(harness_.directory(), good_.listener->port()), .connection = {}};
    out.connection = accept_on(*good_.listener, good_.server);
    out.client.finish();
    return out;
  }
  std::size_t ended(const Connection* connection) const {
    return static_cast<std::size_t>(std::ranges::count_if(good_.server.seen, [&](const auto& one) {
      return one.kind == Kind::kDisconnected && one.connection == connection;
    }));
  }
  // Until the server has heard the end of `pair`; false when it does not come.
  bool until_ended(const Pair& pair) {
    return good_.server.until([&] { return ended(pair.connection.get()) != 0; });
  }
  // The well-behaved neighbour, on the same queue of the server.
  void expect_neighbour_served() {
    good_.client.seen.clear();
    good_.server.seen.clear();
    const std::string text = "undisturbed";
    std::memcpy(good_.client.at(64), text.data(), text.size());
    good_.post(good_.send(64, text.size(), 1));
    good_.post(good_.read(0, 64, 2));
    ASSERT_TRUE(good_.client.until_seen(2));
    EXPECT_TRUE(good_.client.seen[1].ok());
    const auto came = [&] {
      return std::ranges::any_of(good_.server.seen, [&](const auto& one) {
        return one.connection == good_.passive.get() && one.message == text;
      });
    };
    EXPECT_TRUE(good_.server.until(came));
    EXPECT_TRUE(good_.passive->alive());
  }

  ShmHarness harness_;
  contract::Link good_;
};

TEST_F(ShmHostile, EveryImpossibleIndexEndsItsConnectionAlone) {
  struct Lie {
    const char* name;
    std::uint64_t tail;
    std::uint64_t length;
  };
  const std::uint64_t ring = ring_bytes(4096);
  for (const Lie& lie : {Lie{"beyond the ring", ring + 8, 8}, Lie{"backwards", ~0ULL, 8},
                         Lie{"crooked", 3, 0}, Lie{"longer than there", 16, 4000},
                         Lie{"longer than agreed", ring, 4097}, Lie{"absurd", ring, ~0ULL - 6}}) {
    const Pair pair = intrude();
    ASSERT_TRUE(pair.client.connected);
    store_word(pair.client.to_server(), lie.length);
    store_word(&pair.client.header().to_server.producer.tail, lie.tail);
    EXPECT_TRUE(until_ended(pair)) << lie.name;
    EXPECT_FALSE(pair.connection->alive());
    expect_neighbour_served();
  }
}

TEST_F(ShmHostile, AHeadThatLiesEndsItsConnectionWhenTheServerNeedsRoom) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  store_word(&pair.client.header().to_client.consumer.head, std::uint64_t{1} << 40);
  const Operation send = Operation::send(good_.server.piece(0, 4096), 0, 1);
  for (std::size_t i = 0; i < 100; ++i) {
    if (!pair.connection->post(std::span(&send, 1))) break;
  }
  EXPECT_TRUE(until_ended(pair));
  expect_neighbour_served();
}

TEST_F(ShmHostile, AClientThatNeverReadsHoldsUpItsOwnSendsOnly) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  const Operation send = Operation::send(good_.server.piece(0, 4096), 0, 1);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < 1000; ++i)
    taken += need(pair.connection->post(std::span(&send, 1)));
  EXPECT_EQ(taken, pair.connection->limits().sends_in_flight);
  expect_neighbour_served();
  pair.connection->abort();
  ASSERT_TRUE(until_ended(pair));
  expect_neighbour_served();
}

TEST_F(ShmHostile, AClosedMarkIsAnEndLikeAnyOther) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  store_word(&pair.client.header().to_server.producer.closed, 7);
  EXPECT_TRUE(until_ended(pair));
  expect_neighbour_served();
}

// One that leaves and still goes on publishing from the memory it has kept.
TEST_F(ShmHostile, WhoHasLeftCannotPutOffTheEnd) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  RingIndices& mine = pair.client.header().to_server;
  std::uint64_t tail = 0;
  const auto publish = [&] {  // messages of no bytes: a zero in the ring
    tail += 8;
    store_word(&mine.producer.tail, tail, std::memory_order_seq_cst);
  };
  publish();
  publish();
  store_word(&mine.producer.closed, 1, std::memory_order_seq_cst);
  Completion one;
  bool is_over = false;
  for (int i = 0; i < 10 && !is_over; ++i) {
    if (good_.server.queue->poll({&one, 1}) == 0) continue;
    is_over = one.kind == Kind::kDisconnected;
    if (one.kind == Kind::kReceive) good_.server.queue->release({&one.receive_buffer, 1});
    publish();
  }
  EXPECT_TRUE(is_over);
  expect_neighbour_served();
}

// Scribbles over indices and messages while the server polls them, now and then believably.
void scribble(const RawClient& client, Random& random) {
  RingIndices& mine = client.header().to_server;
  const std::uint64_t ring = client.accept.to_server_bytes;
  switch (random.below(8)) {
    case 0:
      store_word(&mine.producer.tail, random());
      break;
    case 1:
      store_word(&client.header().to_client.consumer.head, random());
      break;
    case 2:
      store_word(&client.header().client_sleeps, random());
      break;
    case 3:
      store_word(&mine.producer.wants_room, random());
      break;
    case 4:
      store_word(client.to_server() + random.below(ring / 8), random());
      break;
    case 5:  // a small step, as a real producer makes it
      store_word(&mine.producer.tail, load_word(&mine.consumer.head) + 8 * random.below(600));
      break;
    case 6:
      store_word(client.to_server() + random.below(ring / 8), random.below(5000));
      break;
    default:
      send_wake(client.socket.get());
      break;
  }
}

TEST_F(ShmHostile, ScribblingEndsTheScribblerAndNobodyElse) {
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  std::size_t scribblers_ended = 0;
  std::size_t messages = 0;
  // Scribbling that ends nobody proves nothing, so: until it has ended many.
  for (int round = 0; round < 1000 && (scribblers_ended < 30 || messages == 0); ++round) {
    const Pair pair = intrude();
    ASSERT_TRUE(pair.client.connected);
    std::atomic<bool> stop = false;
    std::atomic<int> scribbles = 0;
    std::thread scribbler([&, own = random()] {
      Random mine(own);
      for (; !stop; ++scribbles)
        scribble(pair.client, mine);
    });
    const Operation send = Operation::send(good_.server.piece(0, 100), 0, 1);
    // Until both have had many turns: a scribbler that is not caught by then was lucky.
    constexpr int kTurns = 50'000;
    for (int polls = 0; (polls < kTurns || scribbles < kTurns) && ended(pair.connection.get()) == 0;
         ++polls) {
      good_.server.poll_once();
      if (pair.connection->alive()) std::ignore = pair.connection->post(std::span(&send, 1));
      for (const auto& one : good_.server.seen)
        ASSERT_LE(one.message.size(), QueueOptions{}.receive_bytes);
      messages += good_.server.count(Kind::kReceive);
      if (ended(pair.connection.get()) == 0) good_.server.seen.clear();
    }
    scribblers_ended += ended(pair.connection.get());
    stop = true;
    scribbler.join();
    expect_neighbour_served();
  }
  EXPECT_GE(scribblers_ended, 30U) << "the scribbling was too harmless to prove anything";
  EXPECT_GT(messages, 0U) << "and none of it was believable";
}

TEST_F(ShmHostile, WakesWithoutEndDoNotStarveTheOthers) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  std::atomic<bool> stop = false;
  std::thread noise([&] {
    while (!stop)
      send_wake(pair.client.socket.get());
  });
  for (int i = 0; i < 20; ++i)
    expect_neighbour_served();
  stop = true;
  noise.join();
}

}  // namespace
}  // namespace rkv::rdma::shm
