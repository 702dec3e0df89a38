// Connecting and accepting as coroutines of one thread, on real verbs.
#include "rkv/rdma/message/connecting.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <string>
#include <thread>

#include "rkv/rdma/message/operations.h"
#include "rkv/rdma/message/task.h"
#include "tests/rdma/extras/message/ends.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kBuffer = 64;

// One thread with an executor and a listener. Coroutines of both sides share the operations, which
// are made on the device of the first connection: all ids of one device have the same context.
struct Town {
  std::unique_ptr<EpollExecutor> executor = need(EpollExecutor::create());
  CmListener listener = need(CmListener::listen(device_address()));
  Device device = *listener.device();
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  Operations operations =
      need(Operations::create(device, *executor, {.outstanding = 16, .receives = 256}));
  MemoryRegion memory =
      need(MemoryRegion::allocate(pd, std::size_t{1} << 20, AccessFlags::kLocalWrite));
  std::size_t used = 0;
  bool has_immediate = !need(device.attributes()).iwarp;

  RegisteredSpan buffer() { return memory.local(used++ * kBuffer, kBuffer); }
  PreparedQueuePair<> prepare() {
    return need(QueuePair::create(pd, operations.queue(), operations.queue(),
                                  {.send_length = 16, .receive_length = 4}));
  }
  // Connects, sends `number`, and expects it back, also as immediate data if the device has that.
  Task<Status> call(std::uint64_t number);
  // Answers one client: sends its message back.
  Task<Status> answer(ConnectRequest request, Until until);
  // Takes `count` requests and starts a coroutine for each.
  Task<Status> serve(std::size_t count, std::list<Task<Status>>& answers);
};

Task<Status> Town::call(std::uint64_t number) {
  RKV_CO_ASSIGN_OR_RETURN(Connector connector,
                          co_await resolve(*executor, listener.address(), {}, soon(20'000)));
  PreparedQueuePair<> prepared = prepare();
  RKV_CO_RETURN_IF_ERROR(connector.prepare(prepared, {}));
  const RegisteredSpan in = buffer();
  RKV_CO_ASSIGN_OR_RETURN(PostedReceive reply, operations.post_receive(prepared, in));
  RKV_CO_ASSIGN_OR_RETURN(CmConnection link,
                          co_await connect(*executor, std::move(connector), std::move(prepared), {},
                                           as_bytes("hello"), soon(20'000)));
  const RegisteredSpan out = buffer().first(8);
  store_le(out.bytes().data(), number);
  RKV_CO_RETURN_IF_ERROR(co_await operations.send(link.qp, out, soon(20'000)));
  RKV_CO_ASSIGN_OR_RETURN(const WorkCompletion got,
                          co_await operations.receive(reply, soon(20'000)));
  EXPECT_EQ(load_le<std::uint64_t>(in.bytes().data()), number);
  EXPECT_EQ(got.has_immediate, has_immediate);
  EXPECT_EQ(got.immediate, has_immediate ? number : 0);
  RKV_CO_RETURN_IF_ERROR(link.disconnect());
  co_return co_await operations.drained(link.qp, soon(20'000));
}

Task<Status> Town::answer(ConnectRequest request, Until until) {
  EXPECT_EQ(as_text(request.private_data().first(5)), "hello");
  PreparedQueuePair<> prepared = prepare();
  RKV_CO_RETURN_IF_ERROR(request.prepare(prepared, {}));
  const RegisteredSpan in = buffer();
  RKV_CO_ASSIGN_OR_RETURN(PostedReceive posted, operations.post_receive(prepared, in));
  RKV_CO_ASSIGN_OR_RETURN(CmConnection link,
                          std::move(request).accept(std::move(prepared), {}, {}));
  RKV_CO_RETURN_IF_ERROR(co_await established(*executor, link, until));
  RKV_CO_ASSIGN_OR_RETURN(const WorkCompletion got, co_await operations.receive(posted, until));
  const RegisteredSpan message = in.first(got.byte_length);
  const auto number = static_cast<unsigned>(load_le<std::uint64_t>(in.bytes().data()));
  if (has_immediate) {
    RKV_CO_RETURN_IF_ERROR(co_await operations.send_immediate(link.qp, message, number, until));
  } else {
    RKV_CO_RETURN_IF_ERROR(co_await operations.send(link.qp, message, until));
  }
  RKV_CO_RETURN_IF_ERROR(co_await peer_left(*executor, link, until));
  RKV_CO_RETURN_IF_ERROR(link.disconnect());
  co_return co_await operations.drained(link.qp, until);
}

Task<Status> Town::serve(std::size_t count, std::list<Task<Status>>& answers) {
  for (std::size_t i = 0; i < count; ++i) {
    RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request,
                            co_await next_request(*executor, listener, soon(20'000)));
    answers.push_back(answer(std::move(request), soon(20'000)));
    answers.back().start();
  }
  co_return Status{};
}

// A client by hand that sends its request and never looks at the answer.
struct HalfOpen {
  EventChannel channel = need(EventChannel::create());
  CmId id = need(CmId::create(channel));
  std::optional<PreparedQueuePair<>> prepared;

  explicit HalfOpen(Town& town) {
    need(id.resolve_address(town.listener.address(), nullptr, kPatienceMs));
    EXPECT_EQ(need(channel.wait(soon())).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    need(id.resolve_route(kPatienceMs));
    EXPECT_EQ(need(channel.wait(soon())).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    prepared = town.prepare();
    need(id.to_init(*prepared, {}));
    need(id.connect(*prepared, {}, {.initiator = 1, .responder = 1}, as_bytes("hello")));
  }
};

TEST(ConnectingCoroutines, ManyClientsConnectAtTheSameTimeInOneThread) {
  Town town;
  constexpr std::size_t kClients = 24;
  std::list<Task<Status>> answers;
  std::list<Task<Status>> calls;
  auto serving = town.serve(kClients, answers);
  serving.start();
  for (std::size_t i = 0; i < kClients; ++i) {
    calls.push_back(town.call(1000 + i));
    calls.back().start();
  }
  // All of them are under way before the first one is connected.
  EXPECT_EQ(town.executor->waiters(), kClients + 1);
  need(run(*town.executor, soon(30'000), serving));
  need(serving.take());
  for (auto* tasks : {&calls, &answers}) {
    for (Task<Status>& one : *tasks) {
      need(run(*town.executor, soon(30'000), one));
      need(one.take());
    }
  }
  EXPECT_EQ(answers.size(), kClients);
  EXPECT_EQ(town.operations.outstanding(), 0U);
}

// SETUP-1. The half-open client comes first, and its coroutine still waits when all others are
// done.
TEST(ConnectingCoroutines, AHalfOpenClientHoldsUpNobody) {
  Town town;
  std::optional<HalfOpen> half(town);
  std::stop_source source;
  const auto take_first = [&]() -> Task<Status> {
    RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request,
                            co_await next_request(*town.executor, town.listener, soon()));
    co_return co_await town.answer(std::move(request), source.get_token());
  };
  auto first = take_first();
  first.start();
  const Deadline deadline = soon();
  while (town.operations.outstanding() == 0) {  // its receive: the request has been answered
    ASSERT_FALSE(deadline.passed());
    if (town.executor->poll() == 0) need(town.executor->sleep(deadline));
  }
  constexpr std::size_t kClients = 6;
  std::list<Task<Status>> answers;
  auto serving = town.serve(kClients, answers);
  std::list<Task<Status>> calls;
  for (std::size_t i = 0; i < kClients; ++i)
    calls.push_back(town.call(i));
  serving.start();
  for (auto& one : calls) {
    need(run(*town.executor, soon(20'000), one));
    need(one.take());
  }
  for (auto& one : answers) {
    need(run(*town.executor, soon(20'000), one));
    need(one.take());
  }
  EXPECT_TRUE(serving.done());
  EXPECT_FALSE(first.done());
  EXPECT_EQ(town.operations.outstanding(), 1U);
  source.request_stop();
  need(run(*town.executor, soon(), first));
  const Status ended = first.take();
  ASSERT_FALSE(ended);
  EXPECT_TRUE(is_stopped(ended.error()));
  EXPECT_EQ(town.executor->waiters(), 0U);
}

// The way in which a wait ends.
enum class How { kStop, kDeadline, kDestroy };
constexpr std::array kHow = {How::kStop, How::kDeadline, How::kDestroy};

// Starts the coroutine that `make` returns, which must wait, and ends it in this way.
template <class Make>
void end_early(Town& town, How how, Make make) {
  SCOPED_TRACE(static_cast<int>(how));
  std::stop_source source;
  const std::size_t before = town.executor->waiters();
  auto task = make(how == How::kDeadline ? Until(soon(20)) : Until(source.get_token()));
  task.start();
  if (how != How::kDeadline) {
    EXPECT_FALSE(task.done());  // a deadline may have passed before the wait
  }
  if (how == How::kDestroy) {
    {
      const auto gone = std::move(task);
    }
    EXPECT_EQ(town.executor->waiters(), before);
    return;
  }
  std::jthread stopper;
  if (how == How::kStop) stopper = std::jthread([&] { source.request_stop(); });
  need(run(*town.executor, soon(), task));
  const auto result = task.take();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kTimeout);
  EXPECT_EQ(is_stopped(result.error()), how == How::kStop);
  EXPECT_EQ(town.executor->waiters(), before);
}

TEST(ConnectingCoroutines, AWaitForARequestEndsEarly) {
  Town town;
  for (const How how : kHow) {
    end_early(town, how, [&](Until until) -> Task<Result<bool>> {
      RKV_CO_ASSIGN_OR_RETURN(
          const ConnectRequest request,
          co_await next_request(*town.executor, town.listener, std::move(until)));
      co_return true;
    });
  }
}

// The listener exists, and nobody takes its requests.
TEST(ConnectingCoroutines, AWaitForAnAnswerEndsEarlyAndThePeerIsTold) {
  for (const How how : kHow) {
    Town town;
    auto connector = need(Connector::resolve(town.listener.address(), {}, soon()));
    end_early(town, how, [&](Until until) -> Task<Result<bool>> {
      RKV_CO_ASSIGN_OR_RETURN(const CmConnection link,
                              co_await connect(*town.executor, std::move(connector), town.prepare(),
                                               {}, as_bytes("hello"), std::move(until)));
      co_return true;
    });
    // Its request is there still, or the kernel has removed it, and then nothing comes. An answer
    // to it is refused, since the peer has left, and does not wait for the deadline.
    bool was_there = false;
    const auto take = [&]() -> Task<Status> {
      RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request,
                              co_await next_request(*town.executor, town.listener, soon(500)));
      was_there = true;
      RKV_CO_ASSIGN_OR_RETURN(CmConnection link, std::move(request).accept(town.prepare(), {}, {}));
      RKV_CO_RETURN_IF_ERROR(co_await established(*town.executor, link, soon(500)));
      co_return Status{};
    };
    auto taking = take();
    need(run(*town.executor, soon(), taking));
    const Status taken = taking.take();
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code == Code::kTimeout, !was_there) << to_string(taken.error());
  }
}

TEST(ConnectingCoroutines, AWaitForTheEndOfTheHandshakeEndsEarly) {
  Town town;
  for (const How how : kHow) {
    HalfOpen half(town);
    auto request = std::make_optional(need(town.listener.wait(soon())));
    end_early(town, how, [&](Until until) -> Task<Result<bool>> {
      RKV_CO_ASSIGN_OR_RETURN(CmConnection link,
                              std::move(*request).accept(town.prepare(), {}, {}));
      RKV_CO_RETURN_IF_ERROR(co_await established(*town.executor, link, std::move(until)));
      co_return true;
    });
  }
}

// Lets an interface ask for addresses: the tests' own has none to ask.
class AsksForNeighbours {
 public:
  explicit AsksForNeighbours(const std::string& interface) {
    interface.copy(static_cast<char*>(request_.ifr_name), sizeof request_.ifr_name - 1);
    before_ = flags();
    set(before_ & ~IFF_NOARP);
  }
  AsksForNeighbours(const AsksForNeighbours&) = delete;
  AsksForNeighbours& operator=(const AsksForNeighbours&) = delete;
  ~AsksForNeighbours() {
    set(before_);
    ::close(socket_);
  }

 private:
  int flags() {
    EXPECT_EQ(::ioctl(socket_, SIOCGIFFLAGS, &request_), 0);
    return request_.ifr_flags;
  }
  void set(int flags) {
    request_.ifr_flags = static_cast<short>(flags);
    EXPECT_EQ(::ioctl(socket_, SIOCSIFFLAGS, &request_), 0) << "this takes CAP_NET_ADMIN";
  }
  int socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request_{};
  int before_ = 0;
};

// A neighbour that does not exist: the kernel asks for it for some seconds.
TEST(ConnectingCoroutines, AWaitForAnAddressEndsEarly) {
  Town town;
  std::string host = town.listener.address().host();
  const std::size_t last = host.rfind('.') + 1;
  host = host.substr(0, last) + std::to_string(std::stoi(host.substr(last)) ^ 0x2A);
  const SocketAddress nobody = need(rkv::rdma::resolve({.host = host, .port = 7}, soon())).front();
  const std::uint8_t port = need(town.device.first_active_port());
  const AsksForNeighbours asks(need(town.device.routable_gid(port)).netdev);
  for (const How how : kHow) {
    end_early(town, how, [&](Until until) -> Task<Result<bool>> {
      RKV_CO_ASSIGN_OR_RETURN(const Connector found,
                              co_await resolve(*town.executor, nobody, {}, std::move(until)));
      co_return true;
    });
  }
}

// An address that is resolved at once may be there before the first attempt.
TEST(ConnectingCoroutines, AResolutionMayEndAnyTime) {
  Town town;
  for (const bool stop : {true, false}) {
    std::stop_source source;
    const auto look = [&]() -> Task<Status> {
      auto found =
          co_await resolve(*town.executor, town.listener.address(), {}, source.get_token());
      co_return found ? Status{} : Status(std::unexpected(found.error()));
    };
    auto looking = look();
    looking.start();
    if (!stop) continue;
    source.request_stop();
    need(run(*town.executor, soon(), looking));
    const Status done = looking.take();
    EXPECT_TRUE(done || is_stopped(done.error()));
  }
  EXPECT_EQ(town.executor->waiters(), 0U);
}

TEST(ConnectingCoroutines, ARequestThatIsTakenAndNotAnsweredIsRejected) {
  Town town;
  const auto take = [&]() -> Task<Status> {
    RKV_CO_ASSIGN_OR_RETURN(const ConnectRequest request,
                            co_await next_request(*town.executor, town.listener, soon()));
    co_return Status{};
  };
  auto taking = take();
  auto calling = town.call(1);
  need(run(*town.executor, soon(), taking, calling));
  need(taking.take());
  const Status called = calling.take();
  ASSERT_FALSE(called);
  EXPECT_EQ(called.error().code, Code::kRejected);
}

TEST(ConnectingCoroutines, AReasonOfARejectionArrives) {
  Town town;
  const auto refuse = [&]() -> Task<Status> {
    RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request,
                            co_await next_request(*town.executor, town.listener, soon()));
    co_return std::move(request).reject(as_bytes("full"));
  };
  PrivateData reason;
  const auto call = [&]() -> Task<Status> {
    RKV_CO_ASSIGN_OR_RETURN(Connector connector,
                            co_await resolve(*town.executor, town.listener.address(), {}, soon()));
    RKV_CO_ASSIGN_OR_RETURN(const CmConnection link,
                            co_await connect(*town.executor, std::move(connector), town.prepare(),
                                             {}, {}, soon(), &reason));
    co_return Status{};
  };
  auto refusing = refuse();
  auto calling = call();
  need(run(*town.executor, soon(), refusing, calling));
  need(refusing.take());
  const Status called = calling.take();
  ASSERT_FALSE(called);
  EXPECT_EQ(called.error().code, Code::kRejected);
  EXPECT_EQ(as_text(reason.bytes().first(4)), "full");
}

TEST(ConnectingCoroutines, NobodyWhoListensIsAnError) {
  Town town;
  SocketAddress closed = town.listener.address();
  {
    const CmListener other = need(CmListener::listen(device_address()));
    closed.set_port(other.port());
  }
  const auto call = [&]() -> Task<Status> {
    RKV_CO_ASSIGN_OR_RETURN(Connector connector,
                            co_await resolve(*town.executor, closed, {}, soon()));
    RKV_CO_ASSIGN_OR_RETURN(
        const CmConnection link,
        co_await connect(*town.executor, std::move(connector), town.prepare(), {}, {}, soon()));
    co_return Status{};
  };
  auto calling = call();
  need(run(*town.executor, soon(), calling));
  const Status called = calling.take();
  ASSERT_FALSE(called);
  EXPECT_EQ(called.error().code, Code::kUnreachable);
}

}  // namespace
}  // namespace rkv::rdma
