// A transport that outlives its device, on a simulated device: how users notice the loss, what is
// left, and in which order things return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "common/clock.h"
#include "rdma/transport/reopening/transport.h"
#include "tests/rdma/support/made_up_device.h"

namespace rkv::rdma {
namespace {

using ::testing::HasSubstr;

class ReopeningTest : public ::testing::Test {
 protected:
  ReopeningTest() {
    auto wrapped = ReopeningTransport::wrap(std::make_unique<MadeUpTransport>(lab_),
                                            [this]() -> Result<std::unique_ptr<Transport>> {
                                              const std::scoped_lock lock(present_mutex_);
                                              if (!lab_.present)
                                                return fail(Code::kNoDevice, "no such device");
                                              return std::make_unique<MadeUpTransport>(lab_);
                                            });
    transport_ = std::move(*wrapped);
    transport_->observe([this](const DeviceReport& now) {
      seen_.push_back(now);
      if (region_ != nullptr) key_when_told_ = region_->remote_key();
    });
    region_ = transport_->allocate(8192, Access::kRemoteReadAtomic).value();
    atomics_ = transport_->create_atomics(*region_).value();
    queue_ = transport_->create_queue({}).value();
    listener_ = transport_->listen("192.0.2.1:0").value();
  }
  ~ReopeningTest() override {
    connection_.reset();
    listener_.reset();
    queue_.reset();
    atomics_.reset();
    region_.reset();
    transport_.reset();
    EXPECT_EQ(lab_.transports, 0);
  }

  void present(bool is) {
    const std::scoped_lock lock(present_mutex_);
    lab_.present = is;
  }
  Deadline now() const { return Deadline(clock_, clock_.now()); }
  void step() { transport_->step(now()); }
  DeviceState state() const { return transport_->report().state; }
  void let_in() {
    lab_.request = true;
    auto incoming = listener_->next(now()).value();
    ASSERT_NE(incoming, nullptr);
    connection_ = incoming->accept(*queue_, {}, {}, now()).value();
  }
  std::size_t poll() { return queue_->poll(got_); }
  void lose() {
    present(false);
    lab_.happens(DeviceEvent::Kind::kLost, "the device was removed");
    step();
    ASSERT_EQ(state(), DeviceState::kGone);
  }
  // Like a real user.
  void let_go() {
    while (poll() != 0) {
      if (got_[0].kind == Completion::Kind::kReceive) queue_->release({&got_[0].receive_buffer, 1});
    }
    connection_.reset();
    poll();
    ASSERT_EQ(listener_->next(now()).value(), nullptr);
    step();
    ASSERT_EQ(state(), DeviceState::kWaiting);
  }
  void until(DeviceState wanted) {
    while (state() != wanted)
      transport_->step(Deadline::after_ms(clock_, 1000));
  }

  SteadyClock clock_;
  Lab lab_;
  std::mutex present_mutex_;
  std::vector<DeviceReport> seen_;
  std::uint32_t key_when_told_ = 0;
  std::unique_ptr<ReopeningTransport> transport_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Atomics> atomics_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> connection_;
  std::array<Completion, 4> got_;
};

TEST_F(ReopeningTest, NothingIsLookedForBeforeUsersHaveLetGo) {
  let_in();
  ASSERT_EQ(poll(), 1U);  // a message, which is not released yet
  lose();
  EXPECT_EQ(transport_->report().losses, 1U);
  EXPECT_EQ(transport_->report().why, "the device was removed");
  ASSERT_EQ(poll(), 1U);
  EXPECT_EQ(got_[0].kind, Completion::Kind::kDisconnected);
  EXPECT_EQ(listener_->next(now()).value(), nullptr);
  step();
  EXPECT_EQ(state(), DeviceState::kGone) << "there is a connection";
  connection_.reset();
  EXPECT_EQ(poll(), 0U);
  step();
  EXPECT_EQ(state(), DeviceState::kGone) << "there is a message";
  const std::uint32_t buffer = 0;
  queue_->release({&buffer, 1});
  EXPECT_EQ(lab_.given_back, 0) << "to a queue that is to end";
  EXPECT_EQ(poll(), 0U);
  EXPECT_EQ(lab_.opened, 1);
  step();
  EXPECT_EQ(state(), DeviceState::kWaiting);
  EXPECT_EQ(lab_.transports, 0) << "the driver may wait for it";
}

TEST_F(ReopeningTest, ServesAgainWithOtherKeysInTheSameMemory) {
  const MutableBytes memory = region_->bytes();
  store_le<std::uint64_t>(memory.data(), 77);
  const std::uint32_t key = region_->remote_key();
  let_in();
  lose();
  let_go();
  step();
  EXPECT_EQ(state(), DeviceState::kWaiting);
  EXPECT_THAT(transport_->report().why, HasSubstr("no such device"));
  EXPECT_THAT(transport_->report().why, HasSubstr("the device was removed"));
  present(true);
  until(DeviceState::kServing);
  EXPECT_EQ(transport_->report().keys, 1U);
  EXPECT_EQ(seen_.back().state, DeviceState::kServing);
  EXPECT_EQ(seen_.back().why, "fake 2");
  EXPECT_NE(region_->remote_key(), key);
  EXPECT_EQ(key_when_told_, region_->remote_key()) << "the listener publishes it";
  EXPECT_EQ(region_->bytes().data(), memory.data());
  EXPECT_EQ(load_le<std::uint64_t>(memory.data()), 77U);
  EXPECT_EQ(lab_.listening, "192.0.2.1:4711") << "the port that it had";
  EXPECT_EQ(listener_->port(), 4711);
  EXPECT_EQ(poll(), 0U);
  let_in();
  EXPECT_EQ(poll(), 1U);
  const std::uint32_t buffer = 0;
  queue_->release({&buffer, 1});
  EXPECT_EQ(lab_.given_back, 1);
}

// (REOPEN-3)
TEST_F(ReopeningTest, WordsAreChangedByTheDeviceOrByTheProcessor) {
  auto* const word = reinterpret_cast<std::uint64_t*>(region_->bytes().data());
  EXPECT_EQ(atomics_->fetch_add(word, 1).value(), 0U);
  EXPECT_EQ(*word, 10U);
  lose();
  EXPECT_EQ(atomics_->fetch_add(word, 1).error().code, Code::kInternal);
  EXPECT_EQ(*word, 10U) << "the region is registered";
  let_go();
  EXPECT_EQ(atomics_->fetch_add(word, 1).value(), 10U);
  EXPECT_EQ(atomics_->compare_swap(word, 11, 20).value(), 11U);
  EXPECT_EQ(atomics_->compare_swap(word, 11, 30).value(), 20U);
  EXPECT_EQ(*word, 20U);
  present(true);
  until(DeviceState::kServing);
  EXPECT_EQ(atomics_->fetch_add(word, 1).value(), 20U);
  EXPECT_EQ(*word, 30U);
}

// Connections whose peers access no region may go on while a process ends.
TEST_F(ReopeningTest, RegionsThatNoPeerMayAccessAreKeptToTheEnd) {
  const auto local = transport_->allocate(4096, Access::kLocal);
  ASSERT_TRUE(local);
  transport_->end_registrations();
  EXPECT_EQ(lab_.regions, 1);
}

// (REOPEN-3) As in a process that ends. The queue and the listener are still there.
TEST_F(ReopeningTest, WordsAreTheProcessorsAfterTheLastConnection) {
  auto* const word = reinterpret_cast<std::uint64_t*>(region_->bytes().data());
  EXPECT_EQ(atomics_->fetch_add(word, 1).value(), 0U);
  EXPECT_EQ(*word, 10U);
  transport_->end_registrations();
  EXPECT_EQ(lab_.regions + lab_.atomics, 0);
  EXPECT_EQ(atomics_->fetch_add(word, 1).value(), 10U);
  EXPECT_EQ(*word, 11U);
}

TEST_F(ReopeningTest, WordsAreTheProcessorsAfterTheLastConnectionOfALostDevice) {
  let_in();
  lose();
  auto* const word = reinterpret_cast<std::uint64_t*>(region_->bytes().data());
  EXPECT_FALSE(atomics_->fetch_add(word, 1));
  connection_.reset();
  transport_->end_registrations();
  EXPECT_EQ(lab_.regions + lab_.atomics, 0);
  EXPECT_EQ(atomics_->fetch_add(word, 1).value(), 0U);
  EXPECT_EQ(*word, 1U);
}

TEST_F(ReopeningTest, WhatCannotBeMadeOnceMoreIsLetGoAgain) {
  lose();
  let_go();
  lab_.attaches_left = 0;
  present(true);
  step();
  EXPECT_EQ(state(), DeviceState::kWaiting);
  EXPECT_THAT(transport_->report().why, HasSubstr("no room for a region"));
  EXPECT_EQ(lab_.transports, 0);
  auto* const word = reinterpret_cast<std::uint64_t*>(region_->bytes().data());
  EXPECT_TRUE(atomics_->fetch_add(word, 1)) << "nothing is registered";
  lab_.attaches_left = 1000;
  until(DeviceState::kServing);
  EXPECT_EQ(poll(), 0U);
  let_in();
  EXPECT_EQ(poll(), 1U);
  const std::uint32_t buffer = 0;
  queue_->release({&buffer, 1});
}

TEST_F(ReopeningTest, MemoryMadeMeanwhileIsRegisteredWithTheNextDevice) {
  lose();
  const auto early = transport_->allocate(4096, Access::kRemoteRead).value();
  let_go();
  const auto late = transport_->allocate(4096, Access::kRemoteRead).value();
  EXPECT_EQ(early->remote_key() + late->remote_key(), 0U);
  EXPECT_EQ(transport_->create_queue({}).error().code, Code::kNoDevice);
  EXPECT_EQ(transport_->connect(*queue_, {}, "192.0.2.2:1", {}, now(), nullptr).error().code,
            Code::kNoDevice);
  present(true);
  until(DeviceState::kServing);
  EXPECT_NE(early->remote_key(), 0U);
  EXPECT_NE(late->remote_key(), 0U);
  EXPECT_NE(early->remote_key(), late->remote_key());
}

TEST_F(ReopeningTest, APortThatIsDownLosesNothing) {
  let_in();
  ASSERT_EQ(poll(), 1U);
  lab_.happens(DeviceEvent::Kind::kDown, "port 1 is DOWN");
  step();
  EXPECT_EQ(state(), DeviceState::kPortDown);
  EXPECT_EQ(transport_->report().why, "port 1 is DOWN");
  EXPECT_EQ(poll(), 0U);
  lab_.happens(DeviceEvent::Kind::kWell, "port 1 is ACTIVE");
  step();
  EXPECT_EQ(state(), DeviceState::kServing);
  EXPECT_EQ(transport_->report().losses, 0U);
  EXPECT_EQ(transport_->report().keys, 0U);
  EXPECT_EQ(seen_.size(), 2U) << "one for each change";
  const std::uint32_t buffer = 0;
  queue_->release({&buffer, 1});
}

// Another thread looks for what is left just while a user's thread releases the last part.
TEST_F(ReopeningTest, ADeviceStaysUntilItsLastPartHasEnded) {
  const auto look = [this] {
    lab_.while_ending = nullptr;
    step();
    EXPECT_EQ(state(), DeviceState::kGone) << "a part of the device is still ending";
  };
  const auto end_queue = [this] { EXPECT_EQ(poll(), 0U); };
  const auto end_listener = [this] { EXPECT_EQ(listener_->next(now()).value(), nullptr); };
  for (const bool queue_first : {true, false}) {
    lose();
    queue_first ? end_queue() : end_listener();
    lab_.while_ending = look;
    queue_first ? end_listener() : end_queue();
    EXPECT_EQ(lab_.while_ending, nullptr) << "nothing has ended";
    step();
    ASSERT_EQ(state(), DeviceState::kWaiting);
    present(true);
    until(DeviceState::kServing);
    end_queue();  // takes the new ones
    end_listener();
  }
}

// Users on their own threads, like the server's.
TEST_F(ReopeningTest, ManyLossesUnderUsers) {
  constexpr int kLosses = 50;
  std::atomic<bool> stop{false};
  std::mutex connections_mutex;
  std::vector<std::unique_ptr<Connection>> arrived;
  std::thread acceptor([&] {
    while (!stop) {
      auto incoming = listener_->next(Deadline::after_ms(clock_, 10));
      if (!incoming || *incoming == nullptr) continue;
      auto connection = (*incoming)->accept(*queue_, {}, {}, now());
      const std::scoped_lock lock(connections_mutex);
      if (connection) arrived.push_back(std::move(*connection));
      queue_->wake();
    }
  });
  std::thread worker([&] {
    while (!stop) {
      std::array<Completion, 4> out;
      const std::size_t count = queue_->poll(out);
      for (const Completion& one : std::span(out).first(count)) {
        if (one.kind == Completion::Kind::kReceive) queue_->release({&one.receive_buffer, 1});
        if (one.kind != Completion::Kind::kDisconnected) continue;
        // The acceptor hands the connection over soon, if not before: its end is reported once.
        for (bool found = false; !found;) {
          const std::scoped_lock lock(connections_mutex);
          found = std::erase_if(
                      arrived, [&](const auto& each) { return each.get() == one.connection; }) != 0;
        }
      }
      if (count == 0) queue_->wait(Deadline::after_ms(clock_, 1000));
    }
  });
  for (int i = 0; i < kLosses; ++i) {
    while (transport_->report().losses == static_cast<std::uint64_t>(i)) {
      const bool connected = [&] {
        const std::scoped_lock lock(lab_.mutex);
        if (lab_.connections != 0) return true;
        lab_.request = true;  // repeated, in case it came before the queue existed
        return false;
      }();
      if (connected) lab_.happens(DeviceEvent::Kind::kLost, "the device was removed");
      transport_->step(Deadline::after_ms(clock_, 10));
      const std::scoped_lock lock(lab_.mutex);
      lab_.events.clear();
    }
    until(DeviceState::kServing);
  }
  stop = true;
  queue_->wake();
  listener_->wake();
  acceptor.join();
  worker.join();
  EXPECT_EQ(transport_->report().keys, static_cast<std::uint64_t>(kLosses));
  EXPECT_EQ(lab_.opened, kLosses + 1);
  arrived.clear();
}

}  // namespace
}  // namespace rkv::rdma
