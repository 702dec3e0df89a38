// Arguments outside their range, devices without a feature, and ports that are down: refused with
// an error that names verb, field and range. Also what a program can do with the layer below the
// library: C objects, regions over its own memory, fewer operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "rkv/rdma/address_handle.h"
#include "rkv/rdma/cm.h"
#include "rkv/rdma/route.h"
#include "rkv/rdma/window.h"
#include "tests/rdma/support/pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct Made {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  CompletionQueue queue = need(CompletionQueue::create(device, {.entries = 64}));
  std::uint8_t port = need(device.first_active_port());
  GidEntry gid = need(device.routable_gid(port));

  PreparedQueuePair<> prepared(const QueuePairOptions& options = {}) const {
    return need(QueuePair::create(pd, queue, queue, options));
  }
};

// Expects an error of this code and verb whose text contains `part`.
template <class T>
void expect_refused(const Result<T>& answer, Code code, const char* verb, const char* part) {
  ASSERT_FALSE(answer) << part;
  EXPECT_EQ(answer.error().code, code) << to_string(answer.error());
  EXPECT_STREQ(answer.error().call, verb);
  EXPECT_NE(to_string(answer.error()).find(part), std::string::npos) << to_string(answer.error());
}

TEST(QueuePairOptionsOfADevice, OutOfRangeAreRefusedByName) {
  const Made made;
  const DeviceAttributes limits = need(made.device.attributes());
  const auto refused = [&](const QueuePairOptions& options, const char* part) {
    expect_refused(QueuePair::create(made.pd, made.queue, made.queue, options),
                   Code::kInvalidArgument, "ibv_create_qp_ex", part);
  };
  refused({.send_length = limits.max_work_requests + 1}, "send_length is above the device's");
  refused({.receive_length = limits.max_work_requests + 1}, "receive_length is above the device's");
  refused({.send_sge = 33}, "send_sge is above 32");
  refused({.receive_sge = 33}, "receive_sge is above 32");
  made.prepared({.send_sge = std::min(limits.max_sge, 32U)});  // the twin that must succeed
  // With a shared receive queue, the options of receives are ignored.
  const auto srq = need(SharedReceiveQueue::create(made.pd, {.length = 8}));
  made.prepared({.receive_length = limits.max_work_requests + 1, .shared = &srq});
}

TEST(SharedReceiveQueueOptionsOfADevice, OutOfRangeAreRefusedByName) {
  const Made made;
  const DeviceAttributes limits = need(made.device.attributes());
  const auto refused = [&](const SharedReceiveQueueOptions& options, const char* part) {
    expect_refused(SharedReceiveQueue::create(made.pd, options), Code::kInvalidArgument,
                   "ibv_create_srq", part);
  };
  refused({.length = 0}, "SharedReceiveQueueOptions::length");
  refused({.length = limits.max_srq_work_requests + 1}, "SharedReceiveQueueOptions::length");
  refused({.sge = 0}, "SharedReceiveQueueOptions::sge");
  refused({.sge = limits.max_srq_sge + 1}, "SharedReceiveQueueOptions::sge");
  need(SharedReceiveQueue::create(made.pd, {.length = 1, .sge = limits.max_srq_sge}));
}

TEST(Ports, OutOfRangeAreRefusedByName) {
  const Made made;
  const char* const range = "port is 1 to the device's port_count";
  expect_refused(made.device.port(0), Code::kInvalidArgument, "ibv_query_port", range);
  expect_refused(made.device.port(200), Code::kInvalidArgument, "ibv_query_port", range);
  expect_refused(made.device.gid(200, 0), Code::kInvalidArgument, "ibv_query_port", range);
  const GlobalRoute route{.gid = made.gid.gid, .gid_index = made.gid.index};
  expect_refused(AddressHandle::create(made.pd, {.port = 200, .global = route}),
                 Code::kInvalidArgument, "ibv_create_ah", range);
}

TEST(GidIndexes, ThatAreWrongAreRefusedBeforeThePeerIsTold) {
  const Made made;
  EXPECT_EQ(need(made.device.gid(made.port, made.gid.index)).gid, made.gid.gid);
  expect_refused(made.device.gid(made.port, 60'000), Code::kNotFound, "ibv_query_gid_table",
                 "index");
  auto qp = made.prepared();
  GidEntry wrong = made.gid;
  wrong.index = 255;
  expect_refused(qp.endpoint(made.port, wrong), Code::kInvalidArgument, "ibv_query_gid_table",
                 "gid.index");
  wrong = made.gid;
  wrong.gid[15] ^= 1;
  expect_refused(qp.endpoint(made.port, wrong), Code::kInvalidArgument, "ibv_query_gid_table",
                 "gid.index");
  EXPECT_EQ(need(qp.state()), IBV_QPS_RESET) << "nothing was done";
  need(qp.endpoint(made.port, made.gid));
}

// The device's answers about its ports and itself, modified on their way; no cable is pulled.
struct Altered {
  static inline decltype(verbs_context::query_port) real_port = nullptr;
  static inline decltype(verbs_context::query_device_ex) real_device = nullptr;
  verbs_context* context;

  explicit Altered(const Device& device) : context(verbs_get_ctx(device.raw())) {
    real_port = context->query_port;
    real_device = context->query_device_ex;
  }
  Altered(const Altered&) = delete;
  Altered& operator=(const Altered&) = delete;
  ~Altered() {
    context->query_port = real_port;
    context->query_device_ex = real_device;
  }
  void port_down() const {
    context->query_port = [](ibv_context* c, std::uint8_t port, ibv_port_attr* out,
                             std::size_t length) {
      const int answer = real_port(c, port, out, length);
      out->state = IBV_PORT_DOWN;
      return answer;
    };
  }
  void mtu(ibv_mtu active) const {
    static ibv_mtu value;
    value = active;
    context->query_port = [](ibv_context* c, std::uint8_t port, ibv_port_attr* out,
                             std::size_t length) {
      const int answer = real_port(c, port, out, length);
      out->active_mtu = value;
      return answer;
    };
  }
  void without_shared_receive_queues() const {
    context->query_device_ex = [](ibv_context* c, const ibv_query_device_ex_input* in,
                                  ibv_device_attr_ex* out, std::size_t length) {
      const int answer = real_device(c, in, out, length);
      out->orig_attr.max_srq = 0;
      return answer;
    };
  }
};

TEST(Ports, ThatAreDownAreRefusedByName) {
  const Made made;
  auto qp = made.prepared();
  {
    const Altered altered(made.device);
    altered.port_down();
    expect_refused(qp.endpoint(made.port, made.gid), Code::kNoDevice, "ibv_query_port",
                   "not ACTIVE");
    expect_refused(made.device.first_active_port(), Code::kNoDevice, "ibv_query_port",
                   "active port");
  }
  need(qp.endpoint(made.port, made.gid));  // the same queue pair, once the port is up
}

TEST(Ports, OfDifferentMtuAgreeOnTheSmallerAndUnknownOnesAreRefused) {
  const Made made;
  auto a = made.prepared();
  auto b = made.prepared();
  const Endpoint of_b = need(b.endpoint(made.port, made.gid));
  {
    const Altered altered(made.device);
    altered.mtu(static_cast<ibv_mtu>(7));
    EXPECT_EQ(a.endpoint(made.port, made.gid).error().code, Code::kUnsupported);
    altered.mtu(IBV_MTU_256);
    EXPECT_EQ(need(a.endpoint(made.port, made.gid)).mtu, Mtu::k256);
  }
  const QueuePair connected = need(std::move(a).handshake(of_b));
  EXPECT_EQ(need(connected.query(IBV_QP_PATH_MTU)).attributes.path_mtu, IBV_MTU_256);
}

TEST(DevicesThatLack, SharedReceiveQueuesSaySo) {
  const Made made;
  const Altered altered(made.device);
  altered.without_shared_receive_queues();
  expect_refused(SharedReceiveQueue::create(made.pd, {}), Code::kUnsupported, "ibv_create_srq",
                 "does not support");
}

// A device without atomics refuses a queue pair that requests them, and accepts one that does not.
TEST(SendOperations, MayBeFewerForDevicesThatLackSome) {
  Made made;
  static decltype(verbs_context::create_qp_ex) real = nullptr;
  static std::uint64_t asked = 0;
  verbs_context* const context = verbs_get_ctx(made.device.raw());
  real = std::exchange(context->create_qp_ex, [](ibv_context* c, ibv_qp_init_attr_ex* wanted) {
    asked = wanted->send_ops_flags;
    if ((asked & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) == 0) return real(c, wanted);
    errno = EOPNOTSUPP;
    return static_cast<ibv_qp*>(nullptr);
  });
  made.prepared();  // refused with all operations, and made by ibv_create_qp, which names none
  EXPECT_NE(asked & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, 0U);
  made.prepared({.operations = SendOps::kSend | SendOps::kRead});
  EXPECT_EQ(asked, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ);
  context->create_qp_ex = real;

  Pair pair(made.pd, made.queue, made.queue, {.operations = SendOps::kSend | SendOps::kRead});
  auto memory = need(MemoryRegion::allocate(made.pd, 4096, kEverything));
  Batch batch = pair.a.batch();
  batch.read(7, OpFlags::kSignaled, memory.local(0, 8), memory.remote());
  need(std::move(batch).submit());
  std::array<WorkCompletion, 1> one;
  const Deadline deadline = soon();
  while (need(made.queue.poll(one)) == 0) {
    ASSERT_FALSE(deadline.passed());
  }
  EXPECT_TRUE(one[0].ok());
}

// Operations that the library lacks use the C objects of its handles.
TEST(RawHandles, AreThoseThatTheVerbsKnow) {
  const Made made;
  auto channel = need(CompletionChannel::create(made.device));
  const auto srq = need(SharedReceiveQueue::create(made.pd, {.length = 8}));
  const auto region = need(MemoryRegion::allocate(made.pd, 4096, kEverything));
  auto qp = made.prepared({.shared = &srq});
  const auto window = need(Window::allocate(made.pd, WindowType::kTwo));
  const Endpoint self = need(qp.endpoint(made.port, made.gid));
  const Route route = need(choose_route(made.port, made.gid, self, self));
  const auto handle = need(AddressHandle::create(made.pd, route.address));
  const auto events = need(EventChannel::create());
  const auto id = need(CmId::create(events));
  EXPECT_EQ(made.pd.raw()->context, made.device.raw());
  EXPECT_EQ(made.queue.raw()->context, made.device.raw());
  EXPECT_EQ(channel.raw()->context, made.device.raw());
  EXPECT_EQ(region.raw()->pd, made.pd.raw());
  EXPECT_EQ(srq.raw()->pd, made.pd.raw());
  EXPECT_EQ(qp.raw()->pd, made.pd.raw());
  EXPECT_EQ(qp.raw()->srq, srq.raw());
  EXPECT_EQ(qp.raw()->send_cq, made.queue.raw());
  EXPECT_EQ(qp.raw()->recv_cq, made.queue.raw());
  EXPECT_EQ(window.raw()->pd, made.pd.raw());
  EXPECT_EQ(handle.raw()->pd, made.pd.raw());
  EXPECT_EQ(id.raw()->channel, events.raw());
  EXPECT_EQ(qp.raw()->qp_num, qp.number());
  ibv_srq_attr found{};
  EXPECT_EQ(ibv_query_srq(srq.raw(), &found), 0) << "plain verbs take it";
}

// More receives than one chain holds, over the caller's memory: each buffer once, in order.
TEST(Receives, ManyAtOnceOverTheCallersMemory) {
  constexpr std::size_t kCount = 100;
  constexpr std::size_t kSlot = 64;
  const Made made;
  std::vector<std::byte> memory(2 * kCount * kSlot);
  const auto region = need(MemoryRegion::attach(made.pd, memory, AccessFlags::kLocalWrite));
  auto sends = need(CompletionQueue::create(made.device, {.entries = 256}));
  auto arrived = need(CompletionQueue::create(made.device, {.entries = 256}));
  Pair pair(made.pd, sends, arrived);
  std::vector<ReceiveRequest> requests;
  for (std::size_t i = 0; i < kCount; ++i)
    requests.push_back({.wr_id = i, .buffer = region.local(i * kSlot, kSlot)});
  need(pair.b.post_receives(requests));
  for (std::size_t i = 0; i < kCount; ++i) {
    memory[(kCount + i) * kSlot] = static_cast<std::byte>(i + 1);
    send(pair.a, region.local((kCount + i) * kSlot, i % kSlot + 1), i);
  }
  std::array<WorkCompletion, 16> some;
  const Deadline deadline = soon();
  for (std::size_t seen = 0; seen < kCount;) {
    ASSERT_FALSE(deadline.passed()) << seen;
    const std::size_t found = need(arrived.poll(some));
    for (const WorkCompletion& one : std::span(some).first(found)) {
      ASSERT_TRUE(one.ok());
      ASSERT_EQ(one.wr_id, seen);
      ASSERT_EQ(one.byte_length, seen % kSlot + 1);
      ASSERT_EQ(memory[seen * kSlot], static_cast<std::byte>(seen + 1));
      ++seen;
    }
  }
}

}  // namespace
}  // namespace rkv::rdma
