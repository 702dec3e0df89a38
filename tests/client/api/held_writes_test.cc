// The knowledge of a shared client about writes that a restart of the server may have lost
// (SHARED-2).
#include "client/api/held_writes.h"

#include <gtest/gtest.h>

namespace rkv::client {
namespace {

Version version(std::uint64_t number) {
  return Version::of(1, number);
}

TEST(HeldWrites, AFlushCoversWhatWasAcknowledgedBeforeItAndNoMore) {
  HeldWrites held;
  EXPECT_FALSE(held.flushed(held.state(), 7, version(9)));
  held.note(7, version(10), {});
  const auto before = held.state();
  held.note(7, version(12), {});
  EXPECT_FALSE(held.flushed(before, 7, version(11)));
  EXPECT_TRUE(held.flushed(held.state(), 8, version(20))) << "the second one may be lost";
  EXPECT_FALSE(held.flushed(held.state(), 8, version(20))) << "that is said once";
}

// A counter in a cell has no version: a flush that was sent before the change does not cover it.
TEST(HeldWrites, AWriteBesideAFlushIsHeldAlthoughACellWasHeldBefore) {
  for (const bool is_cell : {false, true}) {
    HeldWrites held;
    held.note(7, {}, {});
    const auto before = held.state();
    held.note(7, is_cell ? Version{} : version(12), {});
    EXPECT_FALSE(held.flushed(before, 7, version(11)));
    EXPECT_TRUE(held.flushed(held.state(), 8, version(20)));
  }
}

TEST(HeldWrites, ALossThatAWriteToTheNextServerShowsIsSaidOnce) {
  HeldWrites held;
  held.note(7, version(10), {});
  held.note(8, version(30), {});
  const auto before = held.state();
  held.note(9, version(50), {});  // lost again, beside the flush
  EXPECT_TRUE(held.flushed(before, 9, version(60)));
  EXPECT_TRUE(held.flushed(held.state(), 9, version(60)));
  EXPECT_FALSE(held.flushed(held.state(), 9, version(60)));
}

TEST(HeldWrites, WhatIsKnownToBeOnDiskIsNotHeld) {
  HeldWrites held;
  held.note(7, version(10), {});
  held.note(7, version(11), version(11));
  EXPECT_FALSE(held.flushed(held.state(), 8, version(20)));
}

}  // namespace
}  // namespace rkv::client
