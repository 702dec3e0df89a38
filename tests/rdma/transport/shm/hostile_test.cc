// Clients that do the handshake and then write what they like into the memory they share with us.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/random.h"
#include "rdma/transport/shm/peer_regions.h"
#include "tests/rdma/transport/shm/harness.h"

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

// ---- memory that the server is to READ

constexpr std::uint64_t kClaimed = 64 << 10;

Fd memory_of(std::uint64_t bytes, unsigned seals) {
  Fd fd(memfd_create("rkv-hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

// Tells the server of `count` regions of kClaimed bytes with this descriptor.
void share(const RawClient& client, int fd, std::uint64_t count = 1, std::uint32_t first_key = 1) {
  Regions packet;
  std::vector<int> descriptors;
  for (std::uint64_t i = 0; i < count; ++i) {
    packet.entries[i] = {
        .address = 0x1000, .length = kClaimed, .key = first_key + static_cast<std::uint32_t>(i)};
    descriptors.push_back(fd);
  }
  packet.count = count;
  EXPECT_EQ(send_packet(client.socket.get(), packet_of(packet).first(packet.bytes()), descriptors),
            0);
}

Operation read_of(contract::Link& link, std::uint64_t offset, std::size_t bytes,
                  std::uint32_t key = 1) {
  return Operation::read(link.server.piece(0, bytes), 0, 0x1000 + offset, key, 5);
}

TEST_F(ShmHostile, OnlyMemoryThatCannotShrinkIsTaken) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd pipe_out(ends[0]);
  const Fd pipe_in(ends[1]);
  const Fd file(open(harness_.directory().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
  ASSERT_EQ(ftruncate(file.get(), kClaimed), 0);
  const Fd open_ended = memory_of(kClaimed, 0);
  const Fd short_one = memory_of(kClaimed - 1, F_SEAL_SHRINK);
  struct Lie {
    const char* name;
    int fd;
  };
  for (const Lie& lie : {Lie{"a pipe", pipe_out.get()}, Lie{"a file", file.get()},
                         Lie{"memory that may shrink", open_ended.get()},
                         Lie{"memory shorter than said", short_one.get()}}) {
    const Pair pair = intrude();
    ASSERT_TRUE(pair.client.connected);
    share(pair.client, lie.fd);
    const Operation read = read_of(good_, 0, 8);
    std::ignore = pair.connection->post(std::span(&read, 1));
    EXPECT_TRUE(until_ended(pair)) << lie.name;
    for (const auto& one : good_.server.seen)
      EXPECT_FALSE(one.kind == Kind::kRead && one.ok()) << lie.name;
    expect_neighbour_served();
  }
}

// The memory is taken, and then the client does to it whatever the kernel lets it do.
TEST_F(ShmHostile, WhatAClientDoesToItsMemoryIsNoSignalHere) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  const Fd memory = memory_of(kClaimed, F_SEAL_SHRINK);
  ASSERT_EQ(pwrite(memory.get(), "12345678", 8, 0), 8);
  share(pair.client, memory.get());
  const Operation whole = read_of(good_, 0, kClaimed);
  ASSERT_TRUE(pair.connection->post(std::span(&whole, 1)));
  ASSERT_TRUE(good_.server.until_seen(1));
  EXPECT_TRUE(good_.server.seen[0].ok());
  EXPECT_EQ(std::memcmp(good_.server.at(0), "12345678", 8), 0);
  EXPECT_NE(ftruncate(memory.get(), 0), 0) << "sealed";

  std::atomic<bool> stop = false;
  std::atomic<int> holes = 0;
  std::thread vandal([&] {  // takes the pages away and brings them back
    for (; !stop; ++holes) {
      fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kClaimed);
      fallocate(memory.get(), 0, 0, kClaimed);
    }
  });
  for (int i = 0; i < 300 || holes < 300; ++i) {
    good_.server.seen.clear();
    ASSERT_TRUE(pair.connection->post(std::span(&whole, 1)));
    ASSERT_TRUE(good_.server.until_seen(1));
    ASSERT_TRUE(good_.server.seen[0].ok());
  }
  stop = true;
  vandal.join();
  expect_neighbour_served();
}

TEST_F(ShmHostile, LiesAboutPlacesAreRefusedAndEndTheConnection) {
  struct Lie {
    std::uint64_t address;
    std::uint32_t key;
  };
  for (const Lie& lie : {Lie{0x1000, 2}, Lie{0x0FFF, 1}, Lie{0x1000 + kClaimed - 7, 1}, Lie{0, 1},
                         Lie{~0ULL - 3, 1}}) {
    const Pair pair = intrude();
    ASSERT_TRUE(pair.client.connected);
    const Fd memory = memory_of(kClaimed, F_SEAL_SHRINK);
    share(pair.client, memory.get());
    Operation read = read_of(good_, 0, 8, lie.key);
    read.remote_address = lie.address;
    ASSERT_TRUE(pair.connection->post(std::span(&read, 1)));
    ASSERT_TRUE(until_ended(pair)) << lie.address;
    EXPECT_TRUE(std::ranges::any_of(good_.server.seen, [](const auto& one) {
      return one.status == Completion::Status::kRemoteAccess;
    }));
    expect_neighbour_served();
  }
}

TEST_F(ShmHostile, RegionsWithoutEndAreTheEndOfTheirConnection) {
  const Pair pair = intrude();
  ASSERT_TRUE(pair.client.connected);
  const Fd memory = memory_of(kClaimed, F_SEAL_SHRINK);
  for (std::uint32_t i = 0; i <= kMaxPeerRegions / kPeerRegionsPerPacket; ++i) {
    share(pair.client, memory.get(), kPeerRegionsPerPacket,
          1 + i * std::uint32_t{kPeerRegionsPerPacket});
  }
  EXPECT_TRUE(until_ended(pair));
  expect_neighbour_served();
}

}  // namespace
}  // namespace rkv::rdma::shm
