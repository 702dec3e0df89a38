// Shared by the tests of lanes: two transports, lanes between them, and waiting for conditions.
#pragma once

#include <gtest/gtest.h>

#include <asio/io_context.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "server/group/lane/lane_caller.h"
#include "server/group/lane/lane_listener.h"
#include "server/group/lane/lane_request.h"
#include "server/group/lane/replica_lane.h"
#include "tests/server/group/connection/connections.h"
#include "tests/server/persistence/support.h"

namespace rkv::server::test {

// Over verbs if RKV_TEST_TRANSPORT says so, on the address in RKV_RDMA_ADDRESS; else over shared
// memory.
inline bool lanes_are_verbs() {
  const char* const transport = std::getenv("RKV_TEST_TRANSPORT");
  return transport != nullptr && std::string(transport) == "verbs";
}
inline std::string lanes_host() {
  const char* const host = std::getenv("RKV_RDMA_ADDRESS");
  if (!lanes_are_verbs()) return "127.0.0.1";
  return host != nullptr ? host : "RKV_RDMA_ADDRESS is not set";
}
inline std::unique_ptr<rdma::Transport> open_lane_transport(const std::string& directory) {
  auto made = lanes_are_verbs() ? rdma::open_verbs({.address = lanes_host() + ":0"})
                                : rdma::open_shm({.directory = directory});
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? std::move(*made) : nullptr;
}

// The transports of a primary and of a backup.
struct LaneTransportPair {
  const TempDir directory{};
  const std::unique_ptr<rdma::Transport> primary = open_lane_transport(directory.path());
  const std::unique_ptr<rdma::Transport> backup = open_lane_transport(directory.path());

  static LaneTransports as_lanes(rdma::Transport& transport) {
    return lanes_are_verbs() ? LaneTransports{.verbs = &transport}
                             : LaneTransports{.shm = &transport};
  }
};

// A backup's end of a lane, and what it goes over, which ends by abort().
struct BreakableLane {
  std::unique_ptr<ReplicaLane> lane;
  rdma::Connection* link = nullptr;  // as long as the lane has not ended
};
inline Result<BreakableLane> make_breakable_lane(asio::io_context& io, rdma::Transport& backup,
                                                 const LaneOffer& offer) {
  RKV_ASSIGN_OR_RETURN(auto parts, ReplicaLane::prepare(backup));
  const SteadyClock clock;
  rdma::Rejection rejection;
  const std::uint16_t port = lanes_are_verbs() ? offer.verbs_port : offer.shm_port;
  RKV_ASSIGN_OR_RETURN(
      parts.connection,
      backup.connect(*parts.queue, ReplicaLane::connection_options(),
                     lanes_host() + ":" + std::to_string(port), lane_request(offer.token),
                     Deadline::after_ms(clock, 10'000), &rejection));
  rdma::Connection* const link = parts.connection.get();
  return BreakableLane{
      .lane = std::make_unique<ReplicaLane>(io, std::move(parts), std::make_shared<LaneReaper>()),
      .link = link};
}

// One end of a lane, and what its callbacks reported.
struct LaneEnd {
  explicit LaneEnd(std::unique_ptr<ReplicaLane> made) : lane(std::move(made)) {}
  void start() {
    lane->start(
        {.on_bytes = [this](Bytes bytes) { got.insert(got.end(), bytes.begin(), bytes.end()); },
         .on_delivered = [this] { delivered.push_back(got.size()); },
         .on_end = [this](std::string why) { ends.push_back(std::move(why)); },
         .on_room = [this] { send_rest(); }});
  }
  void send(std::vector<std::byte> bytes) {
    to_send.insert(to_send.end(), bytes.begin(), bytes.end());
    send_rest();
  }
  void send_rest() {
    sent += lane->send(Bytes(to_send).subspan(sent));
    lane->flush();
  }
  std::unique_ptr<ReplicaLane> lane;
  std::vector<std::byte> to_send{};
  std::size_t sent = 0;
  std::vector<std::byte> got{};
  std::vector<std::size_t> delivered{};  // how many bytes had come each time
  std::vector<std::string> ends{};
};

class LaneRig : public ::testing::Test {
 protected:
  bool run_until(const std::function<bool()>& condition) { return test::run_until(io_, condition); }
  // Waits until the threads listen.
  LaneOffer offer(std::uint64_t peer) {
    std::optional<LaneOffer> made;
    EXPECT_TRUE(run_until([&] { return (made = listener_->offer(peer)).has_value(); }));
    return made.value_or(LaneOffer{});
  }
  Result<std::unique_ptr<ReplicaLane>> call(const LaneOffer& offer) {
    std::optional<Result<std::unique_ptr<ReplicaLane>>> made;
    caller_->call(lanes_host(), offer, [&](auto result) { made.emplace(std::move(result)); });
    if (!run_until([&] { return made.has_value(); })) return fail(Code::kTimeout, "never called");
    return std::move(*made);
  }
  // Asks as anybody can who reaches the port.
  Result<std::unique_ptr<rdma::Connection>> ask(const LaneOffer& offer, Bytes request,
                                                LaneParts& parts) {
    auto made = ReplicaLane::prepare(*transports_.backup);
    if (!made) return std::unexpected(made.error());
    parts = std::move(*made);
    rdma::Rejection rejection;
    const std::uint16_t port = lanes_are_verbs() ? offer.verbs_port : offer.shm_port;
    return transports_.backup->connect(*parts.queue, ReplicaLane::connection_options(),
                                       lanes_host() + ":" + std::to_string(port), request,
                                       Deadline::after_ms(clock_, 10'000), &rejection);
  }
  // Makes both ends, which are not started yet.
  void make_lane(std::uint64_t peer = 1) {
    auto made = call(offer(peer));
    ASSERT_TRUE(made) << to_string(made.error());
    ASSERT_TRUE(run_until([&] { return !given_.empty(); }));
    EXPECT_EQ(given_.front().first, peer);
    backup_.emplace(std::move(*made));
    primary_.emplace(std::move(given_.front().second));
    given_.clear();
  }
  void start() {
    for (LaneEnd* const end : {&*primary_, &*backup_}) {
      end->start();
      end->lane->receive();
    }
  }

  const LaneTransportPair transports_;
  const SteadyClock clock_;
  asio::io_context io_;
  std::vector<std::pair<std::uint64_t, std::unique_ptr<ReplicaLane>>> given_;
  std::optional<LaneListener> listener_{
      std::in_place, io_, LaneTransportPair::as_lanes(*transports_.primary), lanes_host(),
      [this](std::uint64_t peer, std::unique_ptr<ReplicaLane> lane) {
        given_.emplace_back(peer, std::move(lane));
      }};
  std::optional<LaneCaller> caller_{std::in_place, io_,
                                    LaneTransportPair::as_lanes(*transports_.backup)};
  std::optional<LaneEnd> primary_;
  std::optional<LaneEnd> backup_;
};

}  // namespace rkv::server::test
