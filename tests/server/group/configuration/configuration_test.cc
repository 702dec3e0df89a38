// The configuration of a group: each change, and GROUP-1 to GROUP-6 after random changes.
#include "server/group/configuration/configuration.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace rkv::server {
namespace {

Replica replica(const std::string& name, std::uint64_t epoch) {
  return {.name = name, .address = name + ".example.org:7471", .epoch = epoch};
}
const Replica a = replica("a", 1);
const Replica b = replica("b", 2);
const Replica c = replica("c", 3);

// The value of a change that must succeed.
GroupConfiguration must(const Result<GroupConfiguration>& result) {
  EXPECT_TRUE(result.has_value()) << (result ? "" : to_string(result.error()));
  return result.value_or(GroupConfiguration{});
}
Code code_of(const Result<GroupConfiguration>& result) {
  return result ? Code::kInternal : result.error().code;
}

GroupConfiguration three() {
  return must(joined(must(joined(must(founded(0xfeed, a, 1)), b)), c));
}

TEST(GroupConfiguration, BeginsWithOnePrimaryAlone) {
  const GroupConfiguration first = must(founded(0xfeed, a, 7));
  EXPECT_EQ(first.number, 1U);
  EXPECT_EQ(first.term, 7U);
  EXPECT_TRUE(first.has_primary(a));
  EXPECT_EQ(first.in_sync_count(), 1U);
  EXPECT_EQ(must(founded(0xfeed, a, 0)).term, 1U);
}

TEST(GroupConfiguration, SyncIsOfAProcessNotOfAName) {
  const GroupConfiguration now = three();
  EXPECT_TRUE(now.has_in_sync(b));
  EXPECT_FALSE(now.has_in_sync(replica("b", 20)));
  EXPECT_FALSE(now.has_primary(replica("a", 10)));
  EXPECT_EQ(code_of(taken_over(now, replica("b", 20), 1)), Code::kConflict);
}

TEST(GroupConfiguration, TakeOverRaisesTheTermAndDropsTheLastPrimary) {
  const GroupConfiguration next = must(taken_over(three(), b, 1));
  EXPECT_EQ(next.term, 2U);
  EXPECT_TRUE(next.has_primary(b));
  EXPECT_FALSE(next.has_in_sync(a));
  EXPECT_TRUE(next.has_in_sync(c));  // it has a copy that must count
  EXPECT_EQ(must(taken_over(three(), b, 9)).term, 9U);
  EXPECT_EQ(code_of(taken_over(three(), a, 1)), Code::kConflict);
}

TEST(GroupConfiguration, ABackupThatLeftIsInNoTakeOver) {
  const GroupConfiguration now = must(left(three(), b));
  EXPECT_FALSE(now.has_in_sync(b));
  EXPECT_EQ(code_of(taken_over(now, b, 1)), Code::kConflict);
  EXPECT_EQ(code_of(left(now, b)), Code::kConflict);
  EXPECT_EQ(code_of(left(now, a)), Code::kConflict);  // the primary
  const GroupConfiguration again = must(joined(now, b));
  EXPECT_TRUE(again.has_in_sync(b));
  EXPECT_EQ(again.find("b")->added_in, again.number);
}

TEST(GroupConfiguration, TheLastInSyncCannotLeave) {
  const GroupConfiguration alone = must(left(must(left(three(), b)), c));
  EXPECT_EQ(code_of(left(alone, a)), Code::kConflict);
  const GroupConfiguration orphan = must(restarted(three(), replica("a", 10), 1));
  const GroupConfiguration last = must(left(orphan, b));
  EXPECT_EQ(code_of(left(last, c)), Code::kConflict);  // though it is not the primary
}

TEST(GroupConfiguration, ARestartedReplicaIsOutOfSyncUnlessItWasTheLast) {
  const GroupConfiguration of_backup = must(restarted(three(), replica("b", 20), 1));
  EXPECT_EQ(of_backup.primary, "a");
  EXPECT_EQ(of_backup.in_sync_count(), 2U);
  const GroupConfiguration of_primary = must(restarted(three(), replica("a", 10), 1));
  EXPECT_EQ(of_primary.primary, "");
  EXPECT_EQ(of_primary.term, 1U);
  EXPECT_TRUE(must(taken_over(of_primary, c, 1)).has_in_sync(b));

  const GroupConfiguration alone = must(left(must(left(three(), b)), c));
  const GroupConfiguration again = must(restarted(alone, replica("a", 10), 5));
  EXPECT_TRUE(again.has_primary(replica("a", 10)));
  EXPECT_EQ(again.term, 5U);
  EXPECT_EQ(code_of(restarted(alone, a, 1)), Code::kConflict);  // the same process
  EXPECT_EQ(code_of(restarted(alone, b, 1)), Code::kConflict);  // not in sync
}

TEST(GroupConfiguration, AForcedPrimaryIsAlone) {
  const GroupConfiguration next = must(forced(three(), replica("c", 30), 1));
  EXPECT_TRUE(next.has_primary(replica("c", 30)));
  EXPECT_EQ(next.in_sync_count(), 1U);
  EXPECT_EQ(next.term, 2U);
  EXPECT_EQ(code_of(forced(three(), c, 1)), Code::kConflict);
}

TEST(GroupConfiguration, OnlyAMemberOutOfSyncIsForgotten) {
  EXPECT_EQ(code_of(without(three(), "b")), Code::kConflict);
  EXPECT_EQ(code_of(without(three(), "d")), Code::kNotFound);
  EXPECT_EQ(must(without(must(left(three(), b)), "b")).find("b"), nullptr);
}

RevokedSecret secret_of(const std::string& user, std::uint8_t number) {
  RevokedSecret secret{.user = user};
  secret.digest.fill(std::byte{number});
  return secret;
}
// With one secret of `app`, and two of `web`.
GroupConfiguration three_with_revoked() {
  const std::vector<RevokedSecret> secrets = {secret_of("web", 0xb2), secret_of("app", 0xa1),
                                              secret_of("web", 0xb1)};
  return must(with_revoked(three(), secrets));
}

TEST(GroupConfiguration, ASecretIsRevokedOnceAndStaysSo) {
  const GroupConfiguration now = three_with_revoked();
  EXPECT_EQ(now.number, three().number + 1);
  EXPECT_EQ(now.revoked,
            (std::vector{secret_of("app", 0xa1), secret_of("web", 0xb1), secret_of("web", 0xb2)}));
  EXPECT_TRUE(now.has_revoked(secret_of("web", 0xb2)));
  EXPECT_FALSE(now.has_revoked(secret_of("app", 0xb2)));
  EXPECT_EQ(code_of(with_revoked(now, std::vector{secret_of("app", 0xa1)})), Code::kConflict);
  EXPECT_EQ(code_of(with_revoked(now, {})), Code::kConflict);
  EXPECT_EQ(code_of(with_revoked(now, std::vector{secret_of("a b", 1)})), Code::kInvalidArgument);
  for (const auto& next :
       {taken_over(now, b, 1), left(now, b), restarted(now, replica("a", 9), 1),
        forced(now, replica("c", 9), 1), joined(must(left(now, b)), replica("b", 9)),
        without(must(left(now, b)), "b")})
    EXPECT_EQ(must(next).revoked, now.revoked);
}

TEST(GroupConfiguration, APersonTakesSecretsOffTheList) {
  const GroupConfiguration now = three_with_revoked();
  const GroupConfiguration next = must(without_revoked(now, "web"));
  EXPECT_EQ(next.number, now.number + 1);
  EXPECT_EQ(next.revoked, std::vector{secret_of("app", 0xa1)});
  EXPECT_EQ(must(without_revoked(now, "")).revoked.size(), 0U);
  EXPECT_EQ(code_of(without_revoked(next, "web")), Code::kNotFound);
  EXPECT_EQ(code_of(without_revoked(three(), "")), Code::kNotFound);
}

TEST(GroupConfiguration, LimitsItsRevokedSecrets) {
  GroupConfiguration now = three();
  for (std::size_t i = 0; i < kMostRevoked; ++i)
    now = must(with_revoked(now, std::vector{secret_of("u" + std::to_string(i), 1)}));
  EXPECT_EQ(must(parse_configuration(to_text(now))), now);
  const auto full = with_revoked(now, std::vector{secret_of("one-more", 1)});
  ASSERT_EQ(code_of(full), Code::kConflict);
  EXPECT_LE(std::string(full.error().text).size(), 192U) << "a refusal has no room for more";
  now.revoked.insert(now.revoked.begin(), secret_of("one-more", 1));
  EXPECT_EQ(code_of(parse_configuration(to_text(now))), Code::kCorrupt);
}

TEST(GroupConfiguration, RefusesReplicasWithoutNameAddressOrEpoch) {
  for (const Replica& bad : {Replica{"", "x:1", 1}, Replica{"a b", "x:1", 1}, Replica{"x", "", 1},
                             Replica{"x", "a\nb", 1}, Replica{"x", "x:1", 0}}) {
    EXPECT_EQ(code_of(founded(1, bad, 1)), Code::kInvalidArgument) << bad.name;
    EXPECT_EQ(code_of(joined(three(), bad)), Code::kInvalidArgument) << bad.name;
  }
}

TEST(GroupConfiguration, LimitsItsMembersAndTerms) {
  GroupConfiguration now = must(founded(1, a, 1));
  for (std::uint64_t i = 0; i < 15; ++i)
    now = must(joined(now, replica("m" + std::to_string(i), 100 + i)));
  EXPECT_EQ(code_of(joined(now, replica("z", 9))), Code::kConflict);
  now.term = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(code_of(taken_over(now, replica("m0", 100), 1)), Code::kOutOfRange);
}

TEST(GroupConfiguration, TextIsReadBackAndNothingElse) {
  GroupConfiguration now = must(left(three_with_revoked(), b));
  now.group = 0xfedcba9876543210U;  // more than a double holds
  const std::string text = to_text(now);
  EXPECT_EQ(must(parse_configuration(text)), now);
  EXPECT_EQ(
      must(parse_configuration(to_text(must(restarted(three(), replica("a", 9), 1))))).primary, "");
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(code_of(parse_configuration(text.substr(0, length))), Code::kCorrupt) << length;
  // Any changed byte is refused, or gives another sound configuration: never this one.
  std::mt19937_64 random(4711);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = text;
    char& byte = damaged[random() % damaged.size()];
    const char before = byte;
    byte = static_cast<char>(random());
    if (byte == before) continue;
    const auto read = parse_configuration(damaged);
    if (read)
      EXPECT_NE(*read, now) << damaged;
    else
      EXPECT_EQ(read.error().code, Code::kCorrupt);
  }
}

// A later version adds fields: replicas of this one still learn who the primary is.
TEST(GroupConfiguration, FieldsThatAreNotKnownAreIgnored) {
  const GroupConfiguration now = three();
  std::string text = to_text(now);
  text.insert(1, R"("later": {"a": [1]}, )");
  text.insert(text.find("{\"added_in\"") + 1, R"("zone": "b", )");
  EXPECT_EQ(must(parse_configuration(text)), now);
  text.replace(text.find("\"format\":1"), 10, "\"format\":3");
  EXPECT_EQ(code_of(parse_configuration(text)), Code::kCorrupt);
}

// A release that does not know of revoked secrets would lose them with its next change.
TEST(GroupConfiguration, OnlyAnotherFormatHasRevokedSecrets) {
  EXPECT_NE(to_text(three()).find("\"format\":1"), std::string::npos);
  EXPECT_EQ(to_text(three()).find("revoked"), std::string::npos);
  const std::string text = to_text(three_with_revoked());
  EXPECT_NE(text.find("\"format\":2"), std::string::npos);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    EXPECT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    return code_of(parse_configuration(changed)) == Code::kCorrupt;
  };
  EXPECT_FALSE(refused("", ""));
  EXPECT_TRUE(refused("\"format\":2", "\"format\":1"));
  EXPECT_TRUE(refused("\"revoked\"", "\"revokee\""));
  EXPECT_TRUE(refused("\"app\"", "\"zzz\"")) << "not ascending";
  EXPECT_TRUE(refused("\"app\"", "\"a b\""));
  EXPECT_TRUE(refused("\"app\"", "7"));
  EXPECT_TRUE(refused("\"user\"", "\"name\""));
  EXPECT_TRUE(refused("a1a1", "A1a1")) << "two texts of one secret";
  EXPECT_TRUE(refused("a1a1", "a1a1a1"));
  EXPECT_TRUE(refused(to_hex(secret_of("web", 0xb2).digest), to_hex(secret_of("web", 0xb1).digest)))
      << "twice";
}

TEST(GroupConfiguration, RefusesTextThatBreaksAnInvariant) {
  const auto refused = [](auto change) {
    GroupConfiguration wrong = three();
    change(wrong);
    return code_of(parse_configuration(to_text(wrong))) == Code::kCorrupt;
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& one) { one.group = 0; }));
  EXPECT_TRUE(refused([](auto& one) { one.number = 0; }));
  EXPECT_TRUE(refused([](auto& one) { one.term = 0; }));
  EXPECT_TRUE(refused([](auto& one) { one.primary = "d"; }));
  EXPECT_TRUE(refused([](auto& one) { one.members[0].epoch = one.members[0].added_in = 0; }));
  EXPECT_TRUE(refused([](auto& one) { one.members[1].added_in = 0; }));
  EXPECT_TRUE(refused([](auto& one) { one.members[1].added_in = one.number + 1; }));
  EXPECT_TRUE(refused([](auto& one) { std::swap(one.members[0], one.members[1]); }));
  EXPECT_TRUE(refused([](auto& one) { one.members[1].name = "a"; }));
  EXPECT_TRUE(refused([](auto& one) { one.members[1].name = "../b"; }));
  EXPECT_TRUE(refused([](auto& one) { one.members.clear(); }));
}

// Checks the header's promises about two successive configurations. Returns the tag that is broken.
std::string broken(const GroupConfiguration& before, const GroupConfiguration& after,
                   bool by_force) {
  if (after.number != before.number + 1) return "GROUP-1";
  if (after.term < before.term) return "GROUP-2";
  if (after.revoked != before.revoked) return "GROUP-6";
  const Member* const primary = after.find(after.primary);
  const Member* const last = before.find(before.primary);
  const bool is_other = primary != nullptr && (last == nullptr || *primary != *last);
  if (is_other && after.term <= before.term) return "GROUP-2";
  if (!after.primary.empty() && (primary == nullptr || !primary->in_sync())) return "GROUP-3";
  if (after.in_sync_count() == 0) return "GROUP-3";
  std::size_t came = 0;
  for (const Member& member : after.members) {
    const Member* const was = before.find(member.name);
    const bool same = was != nullptr && was->epoch == member.epoch && member.in_sync();
    if (same && was->added_in != member.added_in) return "GROUP-5";
    if (!member.in_sync() || same) continue;
    ++came;
    if (member.added_in != after.number) return "GROUP-5";
  }
  const bool took_over = is_other && before.in_sync_count() > 1 && !by_force;
  if (took_over && came != 0) return "GROUP-4";
  if (took_over && last != nullptr && after.find(last->name)->in_sync()) return "GROUP-4";
  return "";
}

// One of the changes by chance, of replicas whose processes start again by chance.
struct Story {
  explicit Story(std::uint64_t seed) : random(seed) {
    for (const char* const name : {"a", "b", "c", "d"})
      replicas.push_back(replica(name, random() | 1));
    now = must(founded(1, replicas[0], 1));
    now.revoked = {secret_of("app", 1), secret_of("web", 2)};
  }
  std::optional<GroupConfiguration> next(bool* by_force) {
    Replica& one = replicas[random() % replicas.size()];
    *by_force = false;
    const auto some = [](const Result<GroupConfiguration>& result) {
      return result ? std::optional(*result) : std::nullopt;
    };
    switch (random() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return some(joined(now, one));
      case 5:
      case 6:
        return some(left(now, one));
      case 7:
      case 8:
      case 9:
      case 10:
        return some(taken_over(now, one, static_cast<std::uint32_t>(random() % 4)));
      case 11:
      case 12:
      case 13:
        one.epoch = random() | 1;
        return some(restarted(now, one, 1));
      case 14:
        return some(without(now, one.name));
      default:
        if (random() % 4 != 0) return std::nullopt;
        one.epoch = random() | 1;
        *by_force = true;
        return some(forced(now, one, 1));
    }
  }
  std::mt19937_64 random;
  std::vector<Replica> replicas;
  GroupConfiguration now;
};

TEST(GroupConfiguration, KeepsItsInvariantsThroughAnyChanges) {
  std::size_t changes = 0;
  std::map<std::uint32_t, std::uint64_t> primary_of_term;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Story story(seed);
    primary_of_term.clear();
    for (int i = 0; i < 200; ++i) {
      bool by_force = false;
      const auto next = story.next(&by_force);
      if (!next) continue;
      ++changes;
      ASSERT_EQ(broken(story.now, *next, by_force), "")
          << "seed " << seed << ": " << to_text(*next);
      ASSERT_EQ(must(parse_configuration(to_text(*next))), *next);
      if (const Member* const primary = next->find(next->primary)) {
        const auto [at, is_new] = primary_of_term.emplace(next->term, primary->epoch);
        ASSERT_EQ(at->second, primary->epoch) << "two primaries of a term, seed " << seed;
      }
      story.now = *next;
    }
  }
  EXPECT_GT(changes, 10'000U);
}

TEST(GroupConfiguration, TheJudgeFindsEachBrokenInvariant) {
  const GroupConfiguration now = three();
  const auto judged = [&](const GroupConfiguration& next) { return broken(now, next, false); };
  GroupConfiguration next = must(taken_over(now, b, 1));
  EXPECT_EQ(judged(next), "");
  GroupConfiguration wrong = next;
  wrong.number = now.number;
  EXPECT_EQ(judged(wrong), "GROUP-1");
  wrong = next;
  wrong.term = now.term;
  EXPECT_EQ(judged(wrong), "GROUP-2");
  wrong = next;
  wrong.primary = "a";  // no longer in sync
  EXPECT_EQ(judged(wrong), "GROUP-3");
  wrong = next;
  wrong.members[0] = now.members[0];  // the last primary stays in sync
  EXPECT_EQ(judged(wrong), "GROUP-4");
  wrong = next;
  wrong.members[2].epoch = 30;
  EXPECT_EQ(judged(wrong), "GROUP-5");
  wrong = next;
  wrong.revoked.push_back(secret_of("app", 1));
  EXPECT_EQ(judged(wrong), "GROUP-6");
}

}  // namespace
}  // namespace rkv::server
