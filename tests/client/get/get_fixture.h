// GetMachine over scripted memory: runs a GET to its end, with things to happen before chosen
// READs.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "client/get/get.h"
#include "tests/client/get/scripted_memory.h"
#include "tests/support/manual_clock.h"

namespace rkv::client {

using testing::ScriptedMemory;
using Next = GetMachine::Next;

class GetTest : public ::testing::Test {
 protected:
  // Runs a GET to its end. Before READ number n (from 1) the step scripted for n is done.
  Next get(std::string_view key) {
    key_ = key;
    return run([&] { return machine_.start(as_bytes(key_), *memory_); });
  }
  // The same where the server has named the place.
  Next get_at(std::string_view key, Slot slot, Version version) {
    key_ = key;
    return run([&] { return machine_.start_at(as_bytes(key_), *memory_, slot, version); });
  }
  template <class Start>
  Next run(Start start) {
    refreshes_ = 0;
    reads_ = 0;
    Next next = start();
    for (;;) {
      switch (next) {
        case Next::kRead:
          do_reads();
          break;
        case Next::kRefreshExtents:
        case Next::kRefreshDirectory:
          ++refreshes_;
          if (on_refresh_) on_refresh_();
          EXPECT_TRUE(server_.load_into(map_));
          break;
        case Next::kLargeBuffer:
          machine_.give_buffer(large_);
          break;
        case Next::kValueBuffer:
          value_.assign(machine_.value_bytes(), std::byte{0xEE});
          machine_.give_value_buffer(value_, 4711);
          break;
        default:
          EXPECT_EQ(server_.bad_reads, 0);
          EXPECT_LE(machine_.counts().reads, GetMachine::kMaxReads);
          EXPECT_EQ(machine_.counts().reads, static_cast<std::uint32_t>(reads_));
          return next;
      }
      next = machine_.step();
    }
  }
  void do_reads() {
    for (const ReadRequest& read : machine_.reads()) {
      ++reads_;
      if (const auto step = before_.find(reads_); step != before_.end()) step->second();
      if (before_every_) before_every_();
      if (read.swaps) {
        server_.swap(read.from.address, read.from.remote_key, read.compare, read.desired, read.to);
      } else {
        server_.read(read.from.address, read.from.remote_key, read.to);
      }
    }
  }
  void before_read(int number, std::function<void()> step) { before_[number] = std::move(step); }

  void expect_value(std::string_view key, std::string_view value, std::uint32_t reads) {
    ASSERT_EQ(get(key), Next::kFound) << key;
    EXPECT_EQ(as_text(machine_.value()), value);
    EXPECT_EQ(machine_.counts().reads, reads);
  }
  void expect_missing(std::string_view key, std::uint32_t reads) {
    ASSERT_EQ(get(key), Next::kMissing) << key;
    EXPECT_EQ(machine_.counts().reads, reads);
  }
  void expect_two_sided(std::string_view key, GetMachine::Reason reason) {
    ASSERT_EQ(get(key), Next::kTwoSided) << key;
    EXPECT_EQ(machine_.reason(), reason);
  }
  // As a writer moves a record that was the only one of its group: superseded, then the slot.
  void move(std::string_view key, Slot old, std::string_view value) {
    const Slot now = server_.store(key, value);
    server_.set_state(old, RecordState::kLive, RecordState::kSuperseded);
    server_.clear_slots(ScriptedMemory::home(key));
    server_.add(key, now);
  }
  // A live record of another key under our key's fingerprint.
  Slot foreign_slot(std::string_view key, std::string_view owner) {
    const Slot slot = server_.store(owner, "the owner's value");
    return Slot::of(ScriptedMemory::hash(key).fingerprint(), slot.units(), slot.location());
  }

  ScriptedMemory server_;
  RemoteMap map_ = server_.load_map();
  GroupCache cache_{1 << 16};
  SlotCache slots_{0};  // off: most tests are about what groups say
  ManualClock clock_;
  GetMachine machine_{map_, cache_, slots_, clock_};
  std::unique_ptr<GetMemory> memory_ = std::make_unique<GetMemory>();
  std::vector<std::byte> large_ = std::vector<std::byte>(GetMachine::kLargeBufferBytes);
  std::vector<std::byte> value_;
  std::string key_;
  std::map<int, std::function<void()>> before_;
  std::function<void()> before_every_;
  std::function<void()> on_refresh_;
  int reads_ = 0;
  int refreshes_ = 0;
};

inline constexpr const char* kKey = "the key";
inline const GroupPlace home_of_key = ScriptedMemory::home(kKey);

}  // namespace rkv::client
