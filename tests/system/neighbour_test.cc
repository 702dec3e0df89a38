// A well-behaved client beside one that is not: each kind of hostile client is there and gone in
// turns, and the neighbour's p99 while it is there is held against that of the turn before. What
// the machine does besides strikes both: the median of the ratios counts, of the best of a stated
// number of tries.
//
// What bounds each kind is proved turn by turn, without a clock, in
// tests/server/program/fairness_test.cc; this is the whole of it, over a real transport.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <thread>

#include "common/wire.h"
#include "rdma/choose.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::size_t kLargeValue = 12'000;
constexpr std::int64_t kAnswerMs = 20'000;

std::unique_ptr<rdma::Transport> make_transport(const std::string& address) {
  auto chosen = rdma::choose_for_client({.kind = test_transport() == Transport::kShm
                                                     ? rdma::TransportKind::kShm
                                                     : rdma::TransportKind::kVerbs,
                                         .verbs = {.address = address}});
  EXPECT_TRUE(chosen) << to_string(chosen.error());
  return std::move(chosen->transport);
}

// A connection of nobody's library: sends what it is told to, and takes answers when it is told to.
class Raw {
 public:
  // Room for so many answers of so many bytes that nobody has looked at.
  struct Room {
    std::uint32_t answers = 8;
    std::uint32_t bytes = 16'384;
  };
  Raw(rdma::Transport& transport, const std::string& address, Room room)
      : queue_(std::move(*transport.create_queue(
            {.receive_buffers = room.answers, .receive_bytes = room.bytes}))),
        region_(std::move(*transport.allocate(kSlots * kSlotBytes, rdma::Access::kLocal))) {
    std::byte data[kConnectRequestBytes];
    encode(ConnectRequest{.credits_wanted = 4, .name = "raw"}, data);
    rdma::Rejection rejection;
    auto made = transport.connect(*queue_, {.grant = rdma::Access::kRemoteRead}, address, data,
                                  Deadline::after_ms(clock_, kAnswerMs), &rejection);
    if (made) connection_ = std::move(*made);
  }
  bool connected() const { return connection_ != nullptr; }
  bool alive() const { return connected() && connection_->alive(); }

  bool send(Request request) {
    request.sequence = ++sent_;
    const MutableBytes slot = region_->bytes().subspan(sent_ % kSlots * kSlotBytes, kSlotBytes);
    const std::size_t length = encode(request, slot);
    const auto operation =
        rdma::Operation::send(slot.first(length), region_->local_key(), request.sequence);
    const auto posted = connection_->post({&operation, 1});
    return posted && *posted == 1;
  }
  // Takes what has come; how many answers there were.
  std::size_t take() {
    std::array<rdma::Completion, 16> done;
    std::size_t answers = 0;
    const std::size_t count = queue_->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].kind != rdma::Completion::Kind::kReceive) continue;
      ++answers;
      queue_->release({&done[i].receive_buffer, 1});
    }
    return answers;
  }
  void wait(std::int64_t at_most_ms) { queue_->wait(Deadline::after_ms(clock_, at_most_ms)); }
  bool ask(const Request& request) {
    if (!send(request)) return false;
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    while (take() == 0) {
      if (!alive() || deadline.passed()) return false;
      queue_->wait(deadline);
    }
    return true;
  }

 private:
  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kSlotBytes = 512;
  SteadyClock clock_;
  std::unique_ptr<rdma::Queue> queue_;
  std::unique_ptr<rdma::Region> region_;
  std::unique_ptr<rdma::Connection> connection_;
  std::uint64_t sent_ = 0;
};

class Neighbour : public ::testing::Test {
 protected:
  Neighbour()
      : server_({"--memory", "32MiB", "--threads", "1"}),
        transport_(make_transport(server_.address())),
        mine_(*transport_, server_.address(), {}) {
    EXPECT_TRUE(mine_.connected());
    Client client = server_.client();
    EXPECT_TRUE(client.put("large", std::string(kLargeValue, 'l')));
    EXPECT_TRUE(client.put("small", std::string(150, 's')));
  }
  static Request get(std::string_view key) {
    return {.opcode = Opcode::kGet, .key = as_bytes(key)};
  }

  // The p99 of what a client does whose GETs end as requests: a PUT, a small answer, a large one.
  Nanos p99() {
    // In the VM an operation takes a hundred times as long.
    const std::size_t operations = test_transport() == Transport::kVerbs ? 150 : 450;
    std::vector<Nanos> took;
    for (std::size_t i = 0; i < operations; ++i) {
      const Request requests[] = {
          {.opcode = Opcode::kPut, .key = as_bytes("mine"), .value = as_bytes("value")},
          get("small"),
          get("large")};
      const Nanos began = clock_.now();
      if (!mine_.ask(requests[i % 3])) {
        ADD_FAILURE() << "the neighbour got no answer";
        return kAnswerMs * kNanosPerMs;
      }
      took.push_back(clock_.now() - began);
    }
    std::ranges::sort(took);
    return took[took.size() - took.size() / 100 - 1];
  }

  // One hostile client, as many connections as it wants. `work` goes on until `over`.
  struct Hostile {
    std::size_t connections = 1;
    Raw::Room room{};
    std::function<void(std::deque<Raw>&, const std::atomic<bool>& over)> work;
  };
  // While it is there: the ratio of the neighbour's p99 to what it was just before.
  double ratio_beside(const Hostile& hostile) {
    const Nanos alone = p99();
    std::atomic<bool> ready{false};
    std::atomic<bool> over{false};
    std::thread thread([&] {
      const auto transport = make_transport(server_.address());
      std::deque<Raw> connections;
      for (std::size_t i = 0; i < hostile.connections; ++i)
        connections.emplace_back(*transport, server_.address(), hostile.room);
      EXPECT_TRUE(std::ranges::all_of(connections, &Raw::connected));
      ready.store(true);
      hostile.work(connections, over);
    });
    while (!ready.load())
      std::this_thread::yield();
    p99();  // what it does first is over
    const Nanos beside = p99();
    over.store(true);
    thread.join();
    return static_cast<double>(beside) / static_cast<double>(alone);
  }
  void expect_unhurt(const Hostile& hostile) {
    constexpr int kTries = 5;
    const std::size_t rounds = test_transport() == Transport::kVerbs ? 3 : 7;
    double median = 0;
    for (int tries = 0; tries < kTries; ++tries) {
      std::vector<double> ratios;
      for (std::size_t round = 0; round < rounds; ++round)
        ratios.push_back(ratio_beside(hostile));
      std::ranges::sort(ratios);
      median = ratios[rounds / 2];
      std::printf("p99 beside it: %.2f of alone (%.2f to %.2f)\n", median, ratios.front(),
                  ratios.back());
      if (median <= 2) return;
    }
    ADD_FAILURE() << "its p99 is " << median << " times what it had alone";
  }

  // Asks for `key` over each connection until `each` answers must be on their way or waiting, and
  // takes none.
  static auto takes_nothing(std::string key, int each) {
    return
        [key = std::move(key), each](std::deque<Raw>& connections, const std::atomic<bool>& over) {
          for (int i = 0; i < each && !over.load(); ++i) {
            for (Raw& one : connections) {
              if (one.alive()) one.send(get(key));
            }
            // Never more unanswered than its credits: the server has looked at what was sent.
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
          while (!over.load())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        };
  }
  // Keeps so many requests unanswered, and takes the answers.
  static auto floods(Opcode opcode, int unanswered) {
    return [opcode, unanswered](std::deque<Raw>& connections, const std::atomic<bool>& over) {
      Raw& one = connections.front();
      for (int i = 0; i < unanswered; ++i)
        one.send({.opcode = opcode});
      while (!over.load() && one.alive()) {
        const std::size_t answered = one.take();
        for (std::size_t i = 0; i < answered; ++i)
          one.send({.opcode = opcode});
        if (answered == 0) one.wait(10);
      }
    };
  }

  SteadyClock clock_;
  Server server_;
  std::unique_ptr<rdma::Transport> transport_;
  Raw mine_;
};

TEST_F(Neighbour, OfOneThatTakesNoLargeReplies) {
  expect_unhurt({.room = {.answers = 1}, .work = takes_nothing("large", 8)});
}

TEST_F(Neighbour, OfManyThatTakeNoSmallReplies) {
  expect_unhurt({.connections = 40,
                 .room = {.answers = 1, .bytes = 300},
                 .work = takes_nothing("small", 12)});
}

TEST_F(Neighbour, OfOneThatAsksForStatisticsAllTheTime) {
  expect_unhurt({.work = floods(Opcode::kStats, 4)});
}

// All places but the neighbour's.
TEST_F(Neighbour, OfOneThatHasAllOtherPlacesAndSaysNothing) {
  expect_unhurt({.connections = 60,
                 .room = {.answers = 1, .bytes = 300},
                 .work = [](std::deque<Raw>&, const std::atomic<bool>& over) {
                   while (!over.load())
                     std::this_thread::sleep_for(std::chrono::milliseconds(1));
                 }});
}

// ---- places, for one that comes: another process.

class Places : public Neighbour {
 protected:
  void take_all_places() {
    // The neighbour has one.
    for (int i = 0; i < 63; ++i) {
      others_.emplace_back(*transport_, server_.address(), Raw::Room{.answers = 1, .bytes = 300});
      ASSERT_TRUE(others_.back().connected()) << i;
    }
  }
  void expect_newcomers_get_in() {
    for (int i = 0; i < 3; ++i) {
      const Ended ended = kvclient(server_.address(), {"--timeout", "20s", "put", "new", "client"});
      EXPECT_EQ(ended.status, 0) << ended.output;
    }
  }
  std::deque<Raw> others_;
};

TEST_F(Places, OfSilentClientsAreGivenToWhoComes) {
  take_all_places();
  EXPECT_TRUE(mine_.ask({.opcode = Opcode::kPing}));
  expect_newcomers_get_in();
  EXPECT_TRUE(mine_.ask({.opcode = Opcode::kPing})) << "who was heard lately stays";
}

// Over verbs all of them are of one host here, the newcomer too.
TEST_F(Places, OfOneThatPingsAllTheTimeAreGivenToWhoComes) {
  if (test_transport() == Transport::kVerbs) return expect_newcomers_get_in();
  take_all_places();
  std::atomic<bool> over{false};
  std::thread pinger([&] {
    while (!over.load()) {
      for (Raw& one : others_) {
        if (one.alive() && one.send({.opcode = Opcode::kPing})) one.take();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  expect_newcomers_get_in();
  over.store(true);
  pinger.join();
}

}  // namespace
}  // namespace rkv::testing_support
