// The ways in, before anybody comes by them.
#include "server/clients/network/endpoints.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/rdma/support/made_up_device.h"
#include "tests/server/request/fake_transport.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

// Its watch wants file descriptors: there may be none left, and clients are served all the same.
TEST(Endpoints, WhatCannotBeWatchedServes) {
  rdma::ServerTransports transports;
  transports.verbs = std::make_unique<test::FakeTransport>();
  transports.reopen_verbs = [] { return fail(Code::kUnsupported, "not wanted"); };
  const Endpoints networks(std::move(transports));
  EXPECT_EQ(networks.describe(), "fake");
  ASSERT_EQ(networks.endpoints().size(), 1U);
  EXPECT_TRUE(networks.endpoints()[0].serves());
}

// A worker that is slow to end its connections delays the release of the lost device until the
// stop.
TEST(Endpoints, CountersOfALostDeviceAreSavedWhenTheServerStops) {
  rdma::Lab lab;
  rdma::ServerTransports transports;
  transports.verbs = std::make_unique<rdma::MadeUpTransport>(lab);
  transports.reopen_verbs = [] { return fail(Code::kNoDevice, "no such device"); };
  const SteadyClock clock;
  Endpoints endpoints(std::move(transports));
  StoreUnderTest under(small_memory());
  ASSERT_TRUE(endpoints.listen("192.0.2.1:0", clock));
  ASSERT_TRUE(endpoints.create_cells(8, under.store));
  std::unique_ptr<rdma::Queue> of_slow_worker;  // nobody polls it
  using Made = Result<std::unique_ptr<Worker>>;
  (void)endpoints.create_workers(1, [&](rdma::Transport& transport, std::uint32_t) -> Made {
    of_slow_worker = transport.create_queue({}).value();
    return fail(Code::kUnsupported, "not wanted");
  });
  ASSERT_TRUE(under.store.counters().open(as_bytes("count"), true, 0)->cell);
  lab.happens(rdma::DeviceEvent::Kind::kLost, "the device was removed");
  while (endpoints.endpoints()[0].state != rdma::DeviceState::kGone)
    std::this_thread::yield();
  endpoints.stop();
  const CounterCells::Swept ended = under.store.counter_cells().end_all();
  EXPECT_TRUE(ended.status) << to_string(ended.status.error());
  EXPECT_EQ(ended.left, 0U);
}

}  // namespace
}  // namespace rkv::server
