// A name that is free, or belongs to a replica that is gone, that answers, or that has moved.
#include "server/group/replica/name_check.h"

#include <gtest/gtest.h>

#include "tests/server/group/connection/connections.h"

namespace rkv::server::test {
namespace {

using Verdict = NameCheck::Verdict;

class NameOfAReplica : public Connections {
 protected:
  void SetUp() override { listen(a_secret()); }
  // A member whose port for replicas is this one.
  static Replica replica(const std::string& name, std::uint64_t epoch, std::uint16_t port) {
    return {.name = name, .address = "127.0.0.1:" + std::to_string(port - 1), .epoch = epoch};
  }
  static GroupConfiguration group_of(const Replica& first) { return *founded(7, first, 1); }
  Verdict verdict_of(const GroupConfiguration& configuration) {
    check_.read(&configuration);
    if (check_.verdict() == Verdict::kUnknown) {
      EXPECT_TRUE(run_until([&] { return known_ != 0; }));
    }
    return check_.verdict();
  }

  const GroupSecret secret_ = a_secret();
  const Replica me_ = replica("a", 2, 2);
  int known_ = 0;
  std::uint16_t own_port_ = 2;
  NameCheck check_{io_, me_, secret_, [this] { return own_port_; }, [this] { ++known_; }};
};

TEST_F(NameOfAReplica, IsUnknownBeforeTheGroupIsRead) {
  EXPECT_EQ(check_.verdict(), Verdict::kUnknown);
  check_.read(nullptr);
  EXPECT_EQ(check_.verdict(), Verdict::kFree) << "the group does not exist yet";
}

TEST_F(NameOfAReplica, IsFreeIfNobodyOrItselfHasIt) {
  EXPECT_EQ(verdict_of(group_of(replica("b", 1, listener_->port()))), Verdict::kFree);
  EXPECT_EQ(verdict_of(group_of(me_)), Verdict::kFree);
  Replica before = me_;
  before.epoch = 1;
  EXPECT_EQ(verdict_of(group_of(before)), Verdict::kFree) << "it has started again";
  EXPECT_EQ(known_, 0) << "nobody was called";
}

TEST_F(NameOfAReplica, IsTakenIfTheOtherAnswers) {
  const Replica other = replica("a", 1, listener_->port());
  EXPECT_EQ(verdict_of(group_of(other)), Verdict::kTaken);
  EXPECT_EQ(check_.taken_by(), other.address);
}

// In an upgrade the new version must not depose an old one by its name.
TEST_F(NameOfAReplica, IsTakenIfTheOtherIsOfAnotherVersion) {
  const UnversionedReplica other(io_, a_secret());
  EXPECT_EQ(verdict_of(group_of(replica("a", 1, other.port()))), Verdict::kTaken);
}

TEST_F(NameOfAReplica, IsFreeIfTheOtherIsGoneAndTakenIfItComesBack) {
  const std::uint16_t port = listener_->port();
  listener_.reset();
  EXPECT_EQ(verdict_of(group_of(replica("a", 1, port))), Verdict::kFree);
  EXPECT_EQ(known_, 1);
  EXPECT_EQ(verdict_of(group_of(replica("a", 1, port))), Verdict::kFree);
  EXPECT_EQ(known_, 1) << "it is not called again";
  listen(a_secret());
  known_ = 0;
  EXPECT_EQ(verdict_of(group_of(replica("a", 3, listener_->port()))), Verdict::kTaken);
}

TEST_F(NameOfAReplica, IsFreeIfItsOwnListenerAnswersByAnotherSpelling) {
  own_port_ = listener_->port();
  Replica before = replica("a", 1, listener_->port());
  before.address.replace(0, std::string("127.0.0.1").size(), "localhost");
  EXPECT_EQ(verdict_of(group_of(before)), Verdict::kFree);
  EXPECT_EQ(known_, 1) << "it was called";
}

TEST_F(NameOfAReplica, IsFreeIfWhatAnswersIsOfAnotherGroup) {
  listener_.reset();
  listen(another_secret());
  EXPECT_EQ(verdict_of(group_of(replica("a", 1, listener_->port()))), Verdict::kFree);
}

TEST_F(NameOfAReplica, IsFreeIfAnotherMemberIsWhereTheOtherWas) {
  const auto both =
      *joined(group_of(replica("a", 1, listener_->port())), replica("b", 4, listener_->port()));
  EXPECT_EQ(verdict_of(both), Verdict::kFree);
}

}  // namespace
}  // namespace rkv::server::test
