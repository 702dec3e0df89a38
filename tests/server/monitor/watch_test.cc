// The checks between two requests: how far the disk is behind, and whether threads take turns.
#include <gtest/gtest.h>

#include "common/lag_meter.h"
#include "server/monitor/liveness.h"

namespace rkv::server {
namespace {

TEST(LagMeter, TheOldestThatIsBehindGivesTheAge) {
  LagMeter meter;
  EXPECT_EQ(meter.age(100, 0), 0);
  meter.note(100, 10, 0);
  meter.note(200, 20, 0);
  meter.note(300, 30, 10);
  EXPECT_EQ(meter.age(350, 10), 150) << "what was begun by 200";
  EXPECT_EQ(meter.age(350, 20), 50);
  EXPECT_EQ(meter.age(350, 30), 0);
}

TEST(LagMeter, AnIdleServerIsNotBehind) {
  LagMeter meter;
  for (Nanos now = 0; now < 1000; now += 100)
    meter.note(now, 5, 5);
  EXPECT_EQ(meter.age(1000, 5), 0);
}

TEST(LagMeter, AWriteThatWaitsForEverGrowsOld) {
  LagMeter meter;
  for (Nanos now = 0; now < 1000; now += 100)
    meter.note(now, 5, 4);
  EXPECT_EQ(meter.age(1000, 4), 1000);
}

TEST(LagMeter, NotesAreBoundedAndTheOldestStays) {
  LagMeter meter;
  const std::uint64_t notes = 10 * LagMeter::kMost;
  for (std::uint64_t i = 1; i <= notes; ++i)
    meter.note(static_cast<Nanos>(i), i, 0);
  EXPECT_EQ(meter.age(static_cast<Nanos>(notes) + 1, 0), static_cast<Nanos>(notes));
  // Half-way: too low by no more than the notes that were thinned out.
  const Nanos age = meter.age(static_cast<Nanos>(notes) + 1, notes / 2);
  EXPECT_LE(age, static_cast<Nanos>(notes / 2) + 1);
  EXPECT_GE(age, static_cast<Nanos>(notes / 4));
}

TEST(Liveness, AThreadThatStandsStillIsNamed) {
  Liveness liveness;
  liveness.look(0, {1, 1});
  liveness.look(Liveness::kStuckAfter - 1, {2, 1});
  EXPECT_EQ(liveness.stuck(), std::nullopt);
  liveness.look(Liveness::kStuckAfter, {2, 1});
  EXPECT_EQ(liveness.stuck(), std::optional<std::size_t>(1));
  liveness.look(Liveness::kStuckAfter + 1, {2, 2});
  EXPECT_EQ(liveness.stuck(), std::nullopt) << "it turns again";
}

}  // namespace
}  // namespace rkv::server
