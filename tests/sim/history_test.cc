// The model: histories that a linearizable store can produce, and histories that it cannot.
#include "tests/sim/history.h"

#include <gtest/gtest.h>

#include <tuple>

namespace rkv::sim {
namespace {

using Kind = Op::Kind;
using Outcome = Op::Outcome;

class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() { history_.server_starts(2, 5, {}, keys_); }

  std::size_t put(Nanos called, Nanos returned, std::uint64_t sequence, std::size_t key = 0) {
    const std::size_t number = history_.begin(
        {.client = next_client_++, .kind = Kind::kPut, .key = key, .called = called});
    Op& op = history_[number];
    op.returned = returned;
    op.length = 20;
    op.outcome = sequence == 0 ? Outcome::kUnknown : Outcome::kDone;
    op.version = sequence == 0 ? Version{} : Version::of(boot_, sequence);
    return number;
  }
  void get(Nanos called, Nanos returned, std::size_t writer, std::uint64_t sequence) {
    const std::size_t number = history_.begin({.client = next_client_++, .called = called});
    history_[number].returned = returned;
    history_.answered(number, History::value_of(writer, 20), Version::of(boot_, sequence));
  }
  void miss(Nanos called, Nanos returned, Kind kind = Kind::kGet) {
    const std::size_t number =
        history_.begin({.client = next_client_++, .kind = kind, .called = called});
    history_[number].returned = returned;
    history_[number].outcome = Outcome::kMissing;
  }
  void remove(Nanos called, Nanos returned, std::uint64_t sequence) {
    history_[put(called, returned, sequence)].kind = Kind::kRemove;
  }
  void flush(Nanos called, Nanos returned, std::uint64_t sequence) {
    history_[put(called, returned, sequence)].kind = Kind::kFlush;
  }
  bool good() { return !history_.check(keys_.size(), 0); }

  const std::vector<std::string> keys_ = {"a", "b"};
  History history_;
  std::uint32_t boot_ = 2;
  int next_client_ = 0;
};

TEST_F(HistoryTest, ReadsOfWhatWasCurrent) {
  miss(10, 11);
  const std::size_t first = put(20, 30, 1);
  miss(22, 23);
  get(24, 25, first, 1);
  const std::size_t second = put(40, 50, 2);
  get(41, 60, first, 1);
  get(55, 60, second, 2);
  remove(70, 80, 3);
  miss(81, 82);
  EXPECT_TRUE(good());
}

TEST_F(HistoryTest, AnOldValueAfterANewOne) {
  const std::size_t first = put(20, 30, 1);
  const std::size_t second = put(40, 50, 2);
  get(42, 43, second, 2);
  get(44, 45, first, 1);
  EXPECT_FALSE(good());
}

TEST_F(HistoryTest, AMissBesideAValueThatStays) {
  put(20, 30, 1);
  miss(31, 32);
  EXPECT_FALSE(good());
}

TEST_F(HistoryTest, AValueThatNobodyPut) {
  const std::size_t number = history_.begin({.called = 10});
  EXPECT_FALSE(history_.answered(number, "000000:000001:", Version::of(2, 1)));
  EXPECT_FALSE(good());
}

TEST_F(HistoryTest, ARemovedKeyThatComesBack) {
  const std::size_t first = put(20, 30, 1);
  remove(40, 50, 2);
  get(51, 52, first, 1);
  EXPECT_FALSE(good());
}

TEST_F(HistoryTest, AnUnknownWriteMayShowLateOrNever) {
  const std::size_t first = put(20, 30, 1);
  const std::size_t unknown = put(40, 50, 0);
  get(60, 61, first, 1);
  get(70, 71, unknown, 2);
  put(40, 50, 0);
  EXPECT_TRUE(good());
}

TEST_F(HistoryTest, AnUnknownWriteAfterItsClientWasServedAgain) {
  const std::size_t first = put(20, 30, 1);
  const std::size_t unknown = put(40, 50, 0);
  const std::size_t again = history_.begin({.client = history_[unknown].client, .called = 52});
  history_[again].returned = 53;
  history_.answered(again, History::value_of(first, 20), Version::of(2, 1));
  get(60, 61, first, 1);
  get(70, 71, unknown, 2);
  EXPECT_FALSE(good());
}

TEST_F(HistoryTest, VersionsAgainstTime) {
  put(20, 30, 2);
  put(40, 50, 1, 1);
  EXPECT_FALSE(good());
}

TEST_F(HistoryTest, AfterACrashAPrefixIsThere) {
  const std::size_t first = put(20, 30, 1);
  put(40, 50, 2, 1);
  flush(60, 70, 2);
  put(80, 90, 3);
  const Disk::Records content = {
      {"a", {.version = Version::of(2, 1), .value = History::value_of(first, 20)}},
      {"b", {.version = Version::of(2, 2), .value = History::value_of(first + 1, 20)}}};
  history_.server_ends(100, History::End::kMachine, content, keys_);
  history_.server_starts(3, 110, content, keys_);
  get(120, 130, first, 1);
  EXPECT_TRUE(good());
}

TEST_F(HistoryTest, AfterACrashSomethingFlushedIsGone) {
  put(20, 30, 1);
  flush(60, 70, 1);
  history_.server_ends(100, History::End::kMachine, {}, keys_);
  EXPECT_FALSE(good());
}

// Each level of durability promises to survive its own kind of end, and no more.
TEST_F(HistoryTest, AfterACrashADurableWriteIsGone) {
  using End = History::End;
  for (const auto& [durability, end, promised] :
       {std::tuple{Durability::kDefault, End::kProcess, false},
        std::tuple{Durability::kWal, End::kProcess, true},
        std::tuple{Durability::kWal, End::kMachine, false},
        std::tuple{Durability::kSync, End::kProcess, true},
        std::tuple{Durability::kSync, End::kMachine, true},
        std::tuple{Durability::kMemory, End::kStopped, true}}) {
    history_ = History();
    history_.server_starts(2, 5, {}, keys_);
    const std::size_t number = put(20, 30, 1);
    history_[number].durability = durability;
    history_.server_ends(100, end, {}, keys_);
    EXPECT_EQ(good(), !promised) << to_string(durability) << " " << static_cast<int>(end);
  }
}

TEST_F(HistoryTest, AfterACrashALaterWriteSurvivedAnEarlierOne) {
  put(20, 30, 1);
  const std::size_t later = put(40, 50, 2, 1);
  history_.server_ends(
      100, History::End::kMachine,
      {{"b", {.version = Version::of(2, 2), .value = History::value_of(later, 20)}}}, keys_);
  EXPECT_FALSE(good());
}

// A flush covers every change acknowledged to its client, whatever happened to the server.
TEST_F(HistoryTest, AFlushAfterACrashThatTookAWriteOfItsClient) {
  for (const bool told : {false, true}) {
    for (const bool of_another : {false, true}) {
      history_ = History();
      history_.server_starts(2, 5, {}, keys_);
      boot_ = 2;
      const std::size_t lost = put(20, 30, 1);
      history_.server_ends(100, History::End::kMachine, {}, keys_);
      history_.server_starts(3, 110, {}, keys_);
      boot_ = 3;
      const int client = history_[lost].client + (of_another ? 1000 : 0);
      const auto flush_by_client = [&](Nanos called, Outcome outcome) {
        const std::size_t number = history_.begin(
            {.client = client, .kind = Kind::kFlush, .called = called, .outcome = outcome});
        history_[number].returned = called + 10;
        if (outcome == Outcome::kDone) history_[number].version = Version::of(3, 0);
      };
      if (told) flush_by_client(120, Outcome::kStale);
      flush_by_client(140, Outcome::kDone);
      EXPECT_EQ(good(), told != of_another) << told << of_another;
    }
  }
}

TEST_F(HistoryTest, AFlushThatSucceedsThoughTheWriteSurvived) {
  const std::size_t kept = put(20, 30, 1);
  const Disk::Records content = {
      {"a", {.version = Version::of(2, 1), .value = History::value_of(kept, 20)}}};
  history_.server_ends(100, History::End::kStopped, content, keys_);
  history_.server_starts(3, 110, content, keys_);
  boot_ = 3;
  const std::size_t number = history_.begin({.client = history_[kept].client,
                                             .kind = Kind::kFlush,
                                             .called = 120,
                                             .returned = 130,
                                             .outcome = Outcome::kDone,
                                             .version = Version::of(3, 0)});
  EXPECT_TRUE(good()) << number;
}

TEST_F(HistoryTest, WhatACrashTookIsReadAfterIt) {
  const std::size_t lost = put(20, 30, 1);
  history_.server_ends(100, History::End::kMachine, {}, keys_);
  history_.server_starts(3, 110, {}, keys_);
  get(120, 130, lost, 1);
  EXPECT_FALSE(good());
}

}  // namespace
}  // namespace rkv::sim
