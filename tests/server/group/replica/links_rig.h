// Shared by the tests of both links: a replica with its membership, and the other end of a
// connection over the loopback interface.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "server/group/replica/link_surroundings.h"
#include "tests/server/group/connection/connections.h"
#include "tests/support/manual_clock.h"

namespace rkv::server::test {

inline constexpr std::uint64_t kLinksGroup = 7;

class LinksRig : public Connections {
 protected:
  // This replica's name tells what it is: "a" is the primary of the first configuration.
  explicit LinksRig(const std::string& name, const LaneTransports& lanes = {})
      : me_{.name = name, .address = "127.0.0.1:1", .epoch = name == "a" ? 1U : 2U},
        membership_(log_, me_, {.new_group = kLinksGroup}, {}),
        around_{io_, clock_, membership_, me_, directory_.path(), secret_, lanes} {}

  // The replica whose port for replicas is the listener's.
  Replica listening(const std::string& name, std::uint64_t epoch) const {
    return {.name = name,
            .address = "127.0.0.1:" + std::to_string(listener_->port() - 1),
            .epoch = epoch};
  }
  void read(const GroupConfiguration& configuration) {
    membership_.read({.configuration = configuration, .revision = ++revision_}, clock_.now());
  }
  // The next message that an end has got.
  template <class Message>
  Message take(End& end) {
    if (!run_until([&] { return !end.got.empty(); })) {
      ADD_FAILURE() << "nothing came";
      return {};
    }
    const auto message = decode_replication(end.got.front());
    end.got.erase(end.got.begin());
    const Message* const wanted = message ? std::get_if<Message>(&*message) : nullptr;
    EXPECT_NE(wanted, nullptr) << "another message came";
    return wanted != nullptr ? *wanted : Message{};
  }

  const TempDir directory_;
  const GroupSecret secret_ = a_secret();
  const Replica me_;
  ManualClock clock_;
  ReplicaLog log_;
  Membership membership_;
  const LinkSurroundings around_;
  std::int64_t revision_ = 0;
};

}  // namespace rkv::server::test
