// The events of a device, as its transport's watch reads them: on a device that the test controls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "rdma/transport/verbs/watch.h"
#include "tests/rdma/support/fake_rdma.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::verbs {
namespace {

using ::rkv::rdma::testing::FakeRdma;
using ::rkv::rdma::testing::need;
using ::testing::HasSubstr;

class DeviceEvents : public ::testing::Test {
 protected:
  DeviceEvents() {
    const Device device = Device::borrow(fake_.context());
    GidEntry gid;
    gid.port = 1;
    gid.type = GidType::kRoceV2;
    gid.gid[10] = gid.gid[11] = 0xFF;  // ::ffff:127.0.0.1
    gid.gid[12] = 127;
    gid.gid[15] = 1;
    auto anchor = Anchor::drop(device, gid);
    id_ = anchor == nullptr ? nullptr : fake_.ids().back();
    shared_ = std::make_shared<const Shared>(Shared{.anchor = std::move(anchor),
                                                    .device = device.share(),
                                                    .pd = need(ProtectionDomain::allocate(device)),
                                                    .port = 1,
                                                    .gid = gid,
                                                    .source = {},
                                                    .description = "fake"});
    watch_ = need(VerbsWatch::create(shared_));
  }
  DeviceEvent next() {
    const SteadyClock clock;
    return watch_->next(Deadline(clock, clock.now()));
  }
  // As ReopeningTransport does after a loss.
  void let_go() {
    watch_.reset();
    shared_.reset();
  }

  FakeRdma fake_;
  rdma_cm_id* id_ = nullptr;  // the anchor's
  std::shared_ptr<const Shared> shared_;
  std::unique_ptr<DeviceWatch> watch_;
};

TEST_F(DeviceEvents, ARemovalReleasesTheDescriptors) {
  ASSERT_NE(id_, nullptr);
  fake_.tell(id_, RDMA_CM_EVENT_DEVICE_REMOVAL);
  const DeviceEvent lost = next();
  EXPECT_EQ(lost.kind, DeviceEvent::Kind::kLost);
  EXPECT_EQ(lost.what, "the device was removed");
  EXPECT_FALSE(fake_.descriptors_are_released());
  let_go();
  EXPECT_TRUE(fake_.descriptors_are_released());
}

// A driver that is unloaded reports both, in either order.
TEST_F(DeviceEvents, ARemovalAfterAFailureReleasesTheDescriptors) {
  fake_.tell(IBV_EVENT_DEVICE_FATAL);
  const DeviceEvent lost = next();
  EXPECT_EQ(lost.kind, DeviceEvent::Kind::kLost);
  EXPECT_THAT(lost.what, HasSubstr("the device has failed"));
  EXPECT_EQ(next().kind, DeviceEvent::Kind::kNothing);
  fake_.tell(id_, RDMA_CM_EVENT_ADDR_CHANGE);
  fake_.tell(id_, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(next().kind, DeviceEvent::Kind::kNothing) << "a loss is reported once";
  let_go();
  EXPECT_TRUE(fake_.descriptors_are_released());
}

// librdmacm may use the context again.
TEST_F(DeviceEvents, AFailureAloneLeavesTheDescriptors) {
  fake_.tell(IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(next().kind, DeviceEvent::Kind::kLost);
  let_go();
  EXPECT_FALSE(fake_.descriptors_are_released());
}

TEST_F(DeviceEvents, AQueueThatFailedIsALoss) {
  for (const ibv_event_type type : {IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR}) {
    SCOPED_TRACE(type);
    watch_ = need(VerbsWatch::create(shared_));
    fake_.tell(type);
    const DeviceEvent lost = next();
    EXPECT_EQ(lost.kind, DeviceEvent::Kind::kLost);
    EXPECT_THAT(lost.what, HasSubstr("a queue of the device has failed"));
    EXPECT_THAT(lost.what, HasSubstr(ibv_event_type_str(type)));
  }
}

TEST_F(DeviceEvents, WhatConcernsOneConnectionOrAWarningIsNoLoss) {
  for (const ibv_event_type type : {IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED,
                                    IBV_EVENT_QP_FATAL, IBV_EVENT_COMM_EST}) {
    fake_.tell(type);
    EXPECT_EQ(next().kind, DeviceEvent::Kind::kNothing) << type;
  }
}

}  // namespace
}  // namespace rkv::rdma::verbs
