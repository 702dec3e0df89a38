// Outcomes in the log against a model that forgets nothing: what is said to be applied was, and
// what is said to be not applied was not.
#include "server/log/logged_outcomes.h"

#include <gtest/gtest.h>

#include <map>

#include "common/random.h"

namespace rkv::server {
namespace {

using Fate = LoggedOutcomes::Fate;

CommitLog::Entry entry_of(std::uint64_t version, const WriteTag& tag, Bytes value = {}) {
  return {.record = {.version = {version}, .key = as_bytes("key"), .value = value}, .tag = tag};
}

TEST(LoggedOutcomes, TellWhatAWriteHasAnswered) {
  LoggedOutcomes outcomes(Version{10});
  std::array<std::byte, kCounterBytes> number{};
  store_le(number.data(), std::int64_t{-7});
  outcomes.note(entry_of(11, {.session = 1, .sequence = 16, .opcode = Opcode::kAdd}, number));
  outcomes.note({.record = {.version = {12}, .key = as_bytes("of nobody")}});
  const auto found = outcomes.find(1, 0, 16, Version{10});
  EXPECT_EQ(found.fate, Fate::kApplied);
  EXPECT_EQ(found.count, 0U);
  ASSERT_EQ(found.operations.size(), 1U);
  EXPECT_EQ(found.operations[0].version.bits, 11U);
  EXPECT_EQ(found.operations[0].number, -7);
  EXPECT_EQ(found.operations[0].opcode, Opcode::kAdd);
}

TEST(LoggedOutcomes, TellOfAPackWhichOperationsWereApplied) {
  LoggedOutcomes outcomes(Version{10});
  for (const std::uint8_t index : {std::uint8_t{0}, std::uint8_t{2}})
    outcomes.note(entry_of(11 + index, {.session = 1, .sequence = 16, .index = index, .count = 5}));
  const auto found = outcomes.find(1, 0, 16, Version{10});
  EXPECT_EQ(found.fate, Fate::kApplied);
  EXPECT_EQ(found.count, 5U);
  ASSERT_EQ(found.operations.size(), 2U);
  EXPECT_EQ(found.operations[1].index, 2U);
  EXPECT_EQ(found.operations[1].version.bits, 13U);
}

TEST(LoggedOutcomes, ToAnotherUserASessionIsNotKnown) {
  LoggedOutcomes outcomes(Version{10});
  outcomes.note(entry_of(11, {.session = 1, .sequence = 16, .user = 5}));
  EXPECT_EQ(outcomes.find(1, 5, 16, Version{10}).fate, Fate::kApplied);
  EXPECT_EQ(outcomes.find(1, 6, 16, Version{10}).fate, Fate::kNotKnown);
  EXPECT_EQ(outcomes.find(1, 6, 32, Version{10}).fate, Fate::kNotKnown);
  EXPECT_EQ(outcomes.find(1, 0, 32, Version{10}).fate, Fate::kNotKnown);
}

TEST(LoggedOutcomes, OfOtherLanesNothingIsSaid) {
  LoggedOutcomes outcomes(Version{10});
  outcomes.note(entry_of(11, {.session = 1, .sequence = 20}));
  EXPECT_EQ(outcomes.find(1, 0, 20, Version{10}).fate, Fate::kNotKnown);
  EXPECT_EQ(outcomes.find(1, 0, 36, Version{10}).fate, Fate::kNotKnown);
}

TEST(LoggedOutcomes, ASequenceThatIsUsedAgainTakesNoMoreMemory) {
  LoggedOutcomes outcomes(Version{10});
  for (std::uint64_t version = 11; version < 100; ++version)
    outcomes.note(entry_of(version, {.session = 1, .sequence = 16}));
  ASSERT_EQ(outcomes.find(1, 0, 16, Version{10}).operations.size(), 1U);
  EXPECT_EQ(outcomes.find(1, 0, 16, Version{10}).operations[0].version.bits, 99U);
}

TEST(LoggedOutcomes, OfALaneTheLastWriteIsKnown) {
  LoggedOutcomes outcomes(Version{10});
  outcomes.note(entry_of(11, {.session = 1, .sequence = 16}));
  outcomes.note(entry_of(12, {.session = 1, .sequence = 17}));
  outcomes.note(entry_of(13, {.session = 1, .sequence = 32}));
  EXPECT_EQ(outcomes.find(1, 0, 16, Version{10}).fate, Fate::kNotKnown)
      << "its client has its answer";
  EXPECT_EQ(outcomes.find(1, 0, 32, Version{10}).fate, Fate::kApplied);
  EXPECT_EQ(outcomes.find(1, 0, 48, Version{10}).fate, Fate::kNotApplied);
  EXPECT_EQ(outcomes.find(1, 0, 17, Version{10}).fate, Fate::kApplied);
  EXPECT_EQ(outcomes.find(2, 0, 17, Version{10}).fate, Fate::kNotApplied);
}

TEST(LoggedOutcomes, OfWritesThatMayBeOlderNothingIsSaid) {
  LoggedOutcomes outcomes(Version{10});
  outcomes.note(entry_of(11, {.session = 1, .sequence = 16}));
  EXPECT_EQ(outcomes.find(1, 0, 32, Version{9}).fate, Fate::kNotKnown);
  EXPECT_EQ(outcomes.find(2, 0, 32, Version{9}).fate, Fate::kNotKnown);
  EXPECT_EQ(outcomes.find(1, 0, 16, Version{9}).fate, Fate::kApplied) << "it is here";
}

TEST(LoggedOutcomes, WhoWasDroppedIsNotTakenForAnother) {
  LoggedOutcomes outcomes(Version{10}, 2);
  outcomes.note(entry_of(11, {.session = 1, .sequence = 16}));
  outcomes.note(entry_of(12, {.session = 2, .sequence = 16}));
  outcomes.note(entry_of(13, {.session = 1, .sequence = 17}));
  outcomes.note(entry_of(14, {.session = 3, .sequence = 16}));
  EXPECT_EQ(outcomes.find(1, 0, 16, Version{10}).fate, Fate::kApplied) << "it wrote later than 2";
  EXPECT_EQ(outcomes.find(2, 0, 16, Version{11}).fate, Fate::kNotKnown);
  EXPECT_EQ(outcomes.find(2, 0, 32, Version{12}).fate, Fate::kNotApplied);
  EXPECT_EQ(outcomes.find(3, 0, 32, Version{11}).fate, Fate::kNotKnown);
  outcomes.note(entry_of(15, {.session = 4, .sequence = 16}));
  EXPECT_EQ(outcomes.find(4, 0, 17, Version{13}).fate, Fate::kNotApplied);
  EXPECT_EQ(outcomes.find(4, 0, 16, Version{0}).fate, Fate::kApplied);
  EXPECT_EQ(outcomes.find(4, 0, 17, Version{12}).fate, Fate::kNotKnown) << "1 was dropped";
}

// ---- random writers, and a judge who has seen everything

struct Played {
  std::uint64_t lies = 0;
  std::uint64_t applied = 0;
  std::uint64_t not_applied = 0;
  std::uint64_t not_known = 0;
};

// Clients write in lanes. One in three writes does not get into the log. `lost_in`: one entry in so
// many is not noted, 0: none.
Played play(std::uint64_t seed, std::uint64_t lost_in) {
  constexpr std::uint64_t kWriters = 12;
  Random random(seed);
  std::uint64_t version = 100;
  LoggedOutcomes outcomes(Version{version}, 6);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> all;   // writes in the log
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> last;  // sequences, by lane
  Played played;
  for (int round = 0; round < 3000; ++round) {
    const std::uint64_t writer = 1 + random.below(kWriters);
    const std::uint64_t lane = random.below(4);
    std::uint64_t& sequence = last[{writer, lane}];
    sequence += kLanes + (sequence == 0 ? lane : 0);
    const std::uint64_t since = version - random.below(std::min<std::uint64_t>(version, 20));
    if (random.below(3) != 0) {
      all[{writer, sequence}] = ++version;
      if (lost_in == 0 || random.below(lost_in) != 0)
        outcomes.note(entry_of(version, {.session = writer, .sequence = sequence}));
    }
    for (std::uint64_t others = random.below(3); others != 0; --others)
      outcomes.note(
          entry_of(++version, {.session = kWriters + 1 + random.below(100), .sequence = 1}));
    const auto found = outcomes.find(writer, 0, sequence, Version{since});
    const auto truth = all.find({writer, sequence});
    switch (found.fate) {
      case Fate::kApplied:
        ++played.applied;
        played.lies += truth == all.end() || found.operations[0].version.bits != truth->second;
        break;
      case Fate::kNotApplied:
        ++played.not_applied;
        played.lies += truth != all.end();
        break;
      case Fate::kNotKnown:
        ++played.not_known;
        break;
    }
  }
  return played;
}

TEST(LoggedOutcomes, NeverLie) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Played played = play(seed, 0);
    ASSERT_EQ(played.lies, 0U) << "seed " << seed;
    ASSERT_GT(played.applied, 300U);
    ASSERT_GT(played.not_applied, 100U);
    ASSERT_GT(played.not_known, 20U);
  }
}

TEST(LoggedOutcomes, TheJudgeNoticesAnEntryThatWasNotNoted) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    EXPECT_GT(play(seed, 100).lies, 0U) << "seed " << seed;
}

}  // namespace
}  // namespace rkv::server
