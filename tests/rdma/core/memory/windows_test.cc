// Memory windows: the rights of a peer by a key, and their end when the window is invalidated.
#include "tests/rdma/support/windows.h"

#include "rkv/rdma/window.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

WindowRange range_of(const Side& side, std::size_t offset, std::size_t length,
                     AccessFlags access = AccessFlags::kRemoteRead) {
  return {.region = &side.memory, .offset = offset, .length = length, .access = access};
}

RemoteSpan bind(Side& side, Window& window, const WindowRange& range) {
  RemoteSpan offered;
  const WorkCompletion done = run(side, [&](Batch& batch) {
    offered = batch.bind_window(1, OpFlags::kSignaled, window, range);
  });
  window.bind_ended(done.ok());
  EXPECT_TRUE(done.ok()) << done.status;
  EXPECT_EQ(window.remote(), offered);
  return offered;
}

TEST(Windows, AreSupportedAsTheDeviceSays) {
  const Device device = need(Device::open_first_active());
  const WindowSupport support = need(window_support(device));
  const DeviceAttributes limits = need(device.attributes());
  EXPECT_EQ(support.most, limits.max_windows);
  ibv_device_attr told{};
  ASSERT_EQ(ibv_query_device(device.raw(), &told), 0);
  EXPECT_EQ(support.type_one, (told.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0);
  if (!limits.soft_roce) return;
  EXPECT_TRUE(support.type_two);
  EXPECT_FALSE(support.trustworthy);
}

TEST(Windows, OpenAPartOfAClosedRegion) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  EXPECT_FALSE(window.remote());
  store_le<std::uint64_t>(loop.server.at(4096), 4711);
  const RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 4096, 512));
  EXPECT_EQ(offered.length, 512U);
  EXPECT_NE(offered.rkey, loop.server.memory.rkey());
  ASSERT_TRUE(read(loop, *offered.first(8)).ok());
  EXPECT_EQ(loop.client.word(0), 4711U);
  // The region's own key does not open the same bytes.
  expect_refused(loop, *loop.server.memory.remote().subspan(4096, 8));
}

TEST(Windows, RefuseWhatLiesOutsideTheRegion) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  const std::size_t size = loop.server.memory.size();
  RemoteSpan offered = bind(loop.server, window, range_of(loop.server, size - 64, 64));
  ASSERT_TRUE(read(loop, *offered.last(8)).ok());
  offered.length += 8;
  expect_refused(loop, *offered.last(8));
}

// The meaning of WindowSupport::trustworthy: without it this READ is refused.
TEST(Windows, BoundTheirPeerWhereTheyAreTrustworthy) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 4096, 64));
  offered.length += 8;
  const bool trustworthy = need(window_support(loop.device)).trustworthy;
  EXPECT_EQ(read(loop, *offered.last(8)).ok(), !trustworthy);
}

TEST(Windows, GiveTheRightsTheyWereBoundWith) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  auto writable = need(Window::allocate(loop.pd, WindowType::kTwo));
  const RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 0, 64));
  const RemoteSpan target =
      bind(loop.server, writable, range_of(loop.server, 64, 64, AccessFlags::kRemoteWrite));
  store_le<std::uint64_t>(loop.client.at(0), 5);
  const auto write = [&](const RemoteSpan& to) {
    return run(loop.client, [&](Batch& batch) {
      batch.write(3, OpFlags::kSignaled, loop.client.memory.local(0, 8), to);
    });
  };
  EXPECT_TRUE(write(target).ok());
  EXPECT_EQ(loop.server.word(64), 5U);
  EXPECT_EQ(explain(write(offered).status).kind, WcClass::kRemoteRefused);
  EXPECT_EQ(loop.server.word(0), 0U);
}

// Also on a queue pair of several pieces, whose batches SoftRoCE gets in the older way.
void expect_revoked_when_invalidated(std::uint32_t pieces) {
  LoopbackOptions options = with_windows();
  options.qp.send_sge = pieces;
  Loopback loop(options);
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  const RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 0, 64));
  ASSERT_TRUE(read(loop, *offered.first(8)).ok());
  const WorkCompletion done = run(
      loop.server, [&](Batch& batch) { batch.local_invalidate(4, OpFlags::kSignaled, window); });
  EXPECT_TRUE(done.ok()) << done.status;
  window.invalidate_ended(done.ok());
  EXPECT_EQ(window.state(), Window::State::kUnbound);
  EXPECT_FALSE(window.remote());
  expect_refused(loop, *offered.first(8));
}
TEST(Windows, AreRevokedWhenInvalidated) {
  expect_revoked_when_invalidated(1);
  expect_revoked_when_invalidated(3);
}

TEST(Windows, BoundAgainHaveAnotherKeyAndTheOldOneIsRefused) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  const RemoteSpan old = bind(loop.server, window, range_of(loop.server, 0, 64));
  window.invalidate_ended([&] {
    return run(loop.server,
               [&](Batch& batch) { batch.local_invalidate(4, OpFlags::kSignaled, window); })
        .ok();
  }());
  const RemoteSpan now = bind(loop.server, window, range_of(loop.server, 0, 64));
  EXPECT_EQ(window.bindings(), 2U);
  EXPECT_NE(now.rkey, old.rkey);
  EXPECT_EQ(now.rkey, ibv_inc_rkey(old.rkey));
  ASSERT_TRUE(read(loop, *now.first(8)).ok());
  expect_refused(loop, *old.first(8));
}

// The message has one piece or several.
void expect_invalidated_by_message(std::uint32_t pieces) {
  LoopbackOptions options = with_windows();
  options.qp.send_sge = pieces;
  Loopback loop(options);
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  const RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 0, 64));
  need(loop.server.qp->post_receive(9, loop.server.memory.local(8192, 64)));
  store_le<std::uint64_t>(loop.client.at(0), 0x0123'4567);
  const auto invalidate = [&](Batch& batch) {
    const std::vector<RegisteredSpan> message(pieces, loop.client.memory.local(0, 8));
    batch.op(5).signaled().invalidate(offered.rkey).send(message);
  };
  EXPECT_TRUE(run(loop.client, invalidate).ok());
  const WorkCompletion got = loop.server.completion();
  EXPECT_TRUE(got.ok());
  EXPECT_EQ(got.byte_length, 8 * pieces);
  for (std::uint32_t i = 0; i < pieces; ++i)
    EXPECT_EQ(loop.server.word(8192 + 8 * i), 0x0123'4567U);
  EXPECT_TRUE(got.has_invalidated);
  EXPECT_FALSE(got.has_immediate);
  EXPECT_EQ(got.immediate, offered.rkey);
  EXPECT_FALSE(window.invalidated_by_peer(offered.rkey ^ 1));
  EXPECT_TRUE(window.invalidated_by_peer(got.immediate));
  EXPECT_EQ(window.state(), Window::State::kUnbound);
  expect_refused(loop, *offered.first(8));
}
TEST(Windows, AreInvalidatedByThePeersMessage) {
  expect_invalidated_by_message(1);
  expect_invalidated_by_message(3);
}

TEST(Windows, OfTypeTwoServeTheirConnectionAlone) {
  Loopback loop(with_windows());
  Loopback other(with_windows());
  // The window is in the first loopback's domain, so the domain alone already excludes the other
  // loopback.
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  const RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 0, 64));
  expect_refused(other, *offered.first(8));
  EXPECT_TRUE(read(loop, *offered.first(8)).ok());
}

TEST(Windows, OfTypeOneAreBoundByACall) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kOne));
  store_le<std::uint64_t>(loop.server.at(128), 77);
  const RemoteSpan offered =
      need(window.bind(*loop.server.qp, 6, OpFlags::kSignaled, range_of(loop.server, 128, 64)));
  const WorkCompletion bound = loop.server.completion();
  ASSERT_TRUE(bound.ok()) << bound.status;
  EXPECT_EQ(bound.wr_id, 6U);
  window.bind_ended(true);
  ASSERT_TRUE(read(loop, *offered.first(8)).ok());
  EXPECT_EQ(loop.client.word(0), 77U);
  const RemoteSpan moved =
      need(window.bind(*loop.server.qp, 7, OpFlags::kSignaled, range_of(loop.server, 0, 64)));
  ASSERT_TRUE(loop.server.completion().ok());
  window.bind_ended(true);
  EXPECT_NE(moved.rkey, offered.rkey);
  ASSERT_TRUE(read(loop, *moved.first(8)).ok());
  need(window.unbind(*loop.server.qp, 8, OpFlags::kSignaled));
  const WorkCompletion unbound = loop.server.completion();
  EXPECT_TRUE(unbound.ok()) << unbound.status;
  window.invalidate_ended(true);
  expect_refused(loop, *moved.first(8));
}

// A binding that fails leaves the previous one valid, and the error says so.
TEST(Windows, OfTypeOneAreAsBeforeAfterABindingThatFailed) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kOne));
  const auto range = range_of(loop.server, 128, 64);
  const RemoteSpan first = need(window.bind(*loop.server.qp, 6, OpFlags::kSignaled, range));
  ASSERT_TRUE(loop.server.completion().ok());
  window.bind_ended(true);
  need(loop.client.qp->to_error());
  std::ignore =
      need(window.bind(*loop.client.qp, 7, OpFlags::kSignaled, range_of(loop.server, 0, 64)));
  const WorkCompletion flushed = loop.client.completion();
  ASSERT_FALSE(flushed.ok());
  window.bind_ended(false);
  EXPECT_EQ(window.state(), Window::State::kBound);
  EXPECT_EQ(window.remote(), first);
  need(window.unbind(*loop.server.qp, 8, OpFlags::kSignaled));
  EXPECT_TRUE(loop.server.completion().ok());
  window.invalidate_ended(true);
}

TEST(Windows, KeepTheirRegionRegistered) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  bind(loop.server, window, range_of(loop.server, 0, 64));
  const Status early = loop.server.memory.deregister();
  ASSERT_FALSE(early);
  EXPECT_NE(to_string(early.error()).find("window is still bound"), std::string::npos);
  EXPECT_TRUE(loop.server.memory.usable());
  need(window.deallocate());
  need(loop.server.memory.deregister());
}

TEST(Windows, WrongRangesAreToldBeforeAnythingIsPosted) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  auto one = need(Window::allocate(loop.pd, WindowType::kOne));
  const std::size_t size = loop.server.memory.size();
  const auto refused = [](const Window& by, const WindowRange& range) {
    const Status status = by.check(range);
    return !status && status.error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(window.check(range_of(loop.server, size - 1, 1)));
  EXPECT_TRUE(refused(window, {}));
  EXPECT_TRUE(refused(window, range_of(loop.client, 0, 64)));  // without kBindWindow
  EXPECT_TRUE(refused(window, range_of(loop.server, 0, 0)));
  EXPECT_TRUE(refused(window, range_of(loop.server, size - 1, 2)));
  EXPECT_TRUE(refused(window, range_of(loop.server, 1, ~std::size_t{0})));
  EXPECT_TRUE(refused(window, range_of(loop.server, 0, 64, AccessFlags::kLocalWrite)));
  EXPECT_TRUE(refused(one, range_of(loop.server, 0, 64, AccessFlags::kZeroBased)));
  const auto read_only = need(MemoryRegion::allocate(loop.pd, 64, AccessFlags::kBindWindow));
  EXPECT_TRUE(
      refused(window, {.region = &read_only, .length = 64, .access = AccessFlags::kRemoteWrite}));
  const Loopback other(with_windows());
  EXPECT_TRUE(refused(window, range_of(other.server, 0, 64)));
  EXPECT_EQ(
      one.bind(*loop.server.qp, 1, OpFlags::kSignaled, range_of(loop.server, 0, 0)).error().code,
      Code::kInvalidArgument);
}

TEST(Windows, MistakesOfOrderAreBugs) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  EXPECT_DEATH(
      {
        Batch batch = loop.server.qp->batch();
        batch.local_invalidate(1, OpFlags::kSignaled, window);
      },
      "not bound");
  EXPECT_DEATH(window.bind_ended(true), "no bind in flight");
  EXPECT_DEATH(std::ignore = loop.server.qp->batch().bind_window(1, OpFlags::kNone, window,
                                                                 range_of(loop.server, 0, 0)),
               "range is invalid");
  LoopbackOptions without = with_windows();
  without.qp.operations = kAllSendOps;
  Loopback plain(without);
  auto other = need(Window::allocate(plain.pd, WindowType::kTwo));
  EXPECT_DEATH(std::ignore = plain.server.qp->batch().bind_window(1, OpFlags::kNone, other,
                                                                  range_of(plain.server, 0, 64)),
               "made with kWindowOps");
}

TEST(Windows, OfADroppedBatchAreAsTheyWere) {
  Loopback loop(with_windows());
  auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  std::ignore = loop.server.qp->batch().bind_window(1, OpFlags::kSignaled, window,
                                                    range_of(loop.server, 0, 64));
  window.bind_ended(false);
  const RemoteSpan offered = bind(loop.server, window, range_of(loop.server, 0, 64));
  loop.server.qp->batch().local_invalidate(1, OpFlags::kSignaled, window);
  window.invalidate_ended(false);
  EXPECT_EQ(window.remote(), offered);
  EXPECT_TRUE(read(loop, *offered.first(8)).ok());
}

}  // namespace
}  // namespace rkv::rdma
