// What the connection manager tells of a connection and of a listener, and how long contexts stay
// open: on a connection manager that says what the test wants.
#include <gtest/gtest.h>

#include <optional>

#include "loopback.h"
#include "rkv/rdma/connect.h"
#include "tests/rdma/fake_rdma.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// A queue pair and what it stands on.
struct Made {
  ProtectionDomain pd;
  CompletionQueue queue;
  PreparedQueuePair<> prepared;

  explicit Made(const Device& device)
      : pd(need(ProtectionDomain::allocate(device))),
        queue(need(CompletionQueue::create(device, {.entries = 16}))),
        prepared(need(QueuePair::create(pd, queue, queue, {}))) {}
};

struct Dialled {
  std::optional<Made> made;
  std::optional<CmConnection> link;

  explicit Dialled(const ConnectionParameters& parameters = {}) {
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    made.emplace(connector.device());
    link.emplace(
        need(std::move(connector).connect(std::move(made->prepared), parameters, {}, soon())));
  }
  Dialled(const Dialled&) = delete;
  Dialled& operator=(const Dialled&) = delete;
  ~Dialled() = default;
};

TEST(ConnectionEvents, ABondThatFailsOverEndsNothing) {
  FakeRdma fake;
  fake.announce_changes(true);  // and disturbs no set-up
  Dialled dialled;
  CmConnection& link = *dialled.link;
  fake.tell(link.id.raw(), RDMA_CM_EVENT_ADDR_CHANGE);
  const Status stands = link.check();
  EXPECT_TRUE(stands) << to_string(stands.error());
  fake.tell(link.id.raw(), RDMA_CM_EVENT_ADDR_CHANGE);
  fake.tell(link.id.raw(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(link.check().error().code, Code::kDisconnected);
  EXPECT_TRUE(link.peer_left);
}

TEST(ConnectionEvents, ARemovedDeviceIsNotAPeerThatLeft) {
  FakeRdma fake;
  Dialled dialled;
  fake.tell(dialled.link->id.raw(), RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(dialled.link->check().error().code, Code::kNoDevice);
  EXPECT_EQ(dialled.link->check().error().code, Code::kNoDevice) << "told once, true ever after";
  EXPECT_FALSE(dialled.link->peer_left);
}

TEST(ConnectionEvents, AListenerSaysThatItsDeviceWasRemoved) {
  FakeRdma fake;
  CmListener listener = need(CmListener::listen(FakeRdma::address()));
  rdma_cm_id* const own = fake.ids().front();
  EventChannel elsewhere = need(EventChannel::create());
  const CmId other = need(CmId::create(elsewhere));
  // About a request that its peer has given up: nothing that the listener's user asked for.
  rdma_cm_id* const of_request = other.raw();
  of_request->channel = own->channel;
  fake.tell(of_request, RDMA_CM_EVENT_DISCONNECTED);
  fake.tell(of_request, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_FALSE(need(listener.next()));
  fake.tell(own, RDMA_CM_EVENT_ADDR_CHANGE);
  EXPECT_FALSE(need(listener.next()));

  fake.tell(own, RDMA_CM_EVENT_DEVICE_REMOVAL);
  const auto waited = listener.wait(soon());
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Code::kNoDevice) << to_string(waited.error());
  const auto again = listener.next();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kNoDevice);
}

TEST(Contexts, OfTheConnectionManagerStayOpenForAsLongAsTheirHandles) {
  FakeRdma fake;
  {
    std::optional<Device> device = need(Device::of_connection_manager("fake1"));
    EXPECT_EQ(fake.references(1), 1U);
    EXPECT_EQ(fake.references(0), 0U) << "a device that nobody uses must not stay open";
    const std::optional<ProtectionDomain> pd = need(ProtectionDomain::allocate(*device));
    device.reset();
    fake.unplug(1);
    EXPECT_TRUE(fake.is_open(1)) << "the domain uses its context";
  }
  EXPECT_FALSE(fake.is_open(1));
  EXPECT_EQ(fake.references(1), 0U);
}

TEST(Contexts, OfAnIdOutliveTheId) {
  FakeRdma fake;
  std::optional<Device> device;
  {
    const CmListener listener = need(CmListener::listen(FakeRdma::address()));
    device = listener.device();
    // Asked for again, it costs no further reference and gives the same context.
    EXPECT_EQ(listener.device()->raw(), device->raw());
    EXPECT_EQ(fake.references(), 2U);  // the id's, and one of all handles
  }
  EXPECT_EQ(device->raw(), fake.context());
  fake.unplug();
  EXPECT_TRUE(fake.is_open());
  device.reset();
  EXPECT_FALSE(fake.is_open());
}

// librdmacm lists the device no longer, so the id is all that keeps the context open.
TEST(Contexts, OfAnIdWhoseDeviceHasBeenUnpluggedKeepTheId) {
  FakeRdma fake;
  std::optional<CmListener> listener = need(CmListener::listen(FakeRdma::address()));
  fake.unplug();
  std::optional<Device> device = listener->device();
  listener.reset();
  EXPECT_TRUE(fake.is_open());
  EXPECT_EQ(fake.ids().size(), 1U);
  device.reset();
  EXPECT_FALSE(fake.is_open());
  EXPECT_TRUE(fake.ids().empty());
}

}  // namespace
}  // namespace rkv::rdma
