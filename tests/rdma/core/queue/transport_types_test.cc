// The abilities of transports as types: each of these is a call without an overload, beside one
// that has an overload (compile_fail/ checks the compiler's messages).
#include "rkv/rdma/transport_types.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "rdma/core/queue/queue_pair_state.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {
namespace {

using UcPair = BasicQueuePair<Uc>;
using UdPair = BasicQueuePair<Ud>;

static_assert(Connected<Rc> && Connected<Uc> && !Connected<Ud>);
static_assert(Reliable<Rc> && !Reliable<Uc> && !Reliable<Ud> && Reliable<Srd>);
static_assert(HasRead<Rc> && !HasRead<Uc> && !HasRead<Ud>);
static_assert(HasAtomics<Rc> && !HasAtomics<Uc> && !HasAtomics<Srd>);
static_assert(HasWrite<Uc> && !HasWrite<Ud> && Datagram<Ud> && Datagram<Srd> && !Datagram<Rc>);
static_assert(!TransportType<int> && !Creatable<Srd>);

template <class B>
concept Reads = requires(B& b, RegisteredSpan l, RemoteSpan r) { b.read(1, OpFlags::kNone, l, r); };
template <class B>
concept Writes =
    requires(B& b, RegisteredSpan l, RemoteSpan r) { b.write(1, OpFlags::kNone, l, r); };
template <class B>
concept Adds =
    requires(B& b, RegisteredSpan l, RemoteSpan r) { b.fetch_add(1, OpFlags::kNone, l, r, 1); };
template <class B>
concept SendsToItsPeer = requires(B& b, RegisteredSpan l) { b.send(1, OpFlags::kNone, l); } ||
                         requires(B& b, Bytes l) { b.send(1, OpFlags::kNone, inlined(l)); };
template <class B>
concept Addresses = requires(B& b, const AddressHandle& a) { b.op(1).to(a, 1, 2).send(); };
template <class B>
concept AddressesTemporaries =
    requires(B& b, AddressHandle&& a) { b.op(1).to(std::move(a), 1, 2); };
template <class B>
concept SendsUnaddressed = requires(B& b) { b.op(1).send(); };
template <class B>
concept Invalidates = requires(B& b) { b.op(1).invalidate(7).send(); };
template <class B>
concept WritesWithImmediate =
    requires(B& b, RegisteredSource l, RemoteSpan r) { b.op(1).immediate(7).write(l, r); };
template <class B>
concept ReadsWithImmediate =
    requires(B& b, RegisteredSpan l, RemoteSpan r) { b.op(1).immediate(7).read(l, r); };
template <class B>
concept WritesAndInvalidates =
    requires(B& b, RegisteredSpan l, RemoteSpan r) { b.op(1).invalidate(7).write(l, r); };
template <class B>
concept HasTwoImmediates = requires(B& b) { b.op(1).immediate(7).immediate(8); };
template <class B>
concept ReadsIntoASource =
    requires(B& b, RegisteredSource l, RemoteSpan r) { b.read(1, OpFlags::kNone, l, r); };
static_assert(Reads<Batch> && !Reads<BasicBatch<Uc>> && !Reads<BasicBatch<Ud>>);
static_assert(Writes<Batch> && Writes<BasicBatch<Uc>> && !Writes<BasicBatch<Ud>>);
static_assert(Adds<Batch> && !Adds<BasicBatch<Uc>> && !Adds<BasicBatch<Ud>>);
static_assert(SendsToItsPeer<Batch> && SendsToItsPeer<BasicBatch<Uc>>);
static_assert(!SendsToItsPeer<BasicBatch<Ud>>, "a datagram without address");
static_assert(SendsUnaddressed<Batch> && !SendsUnaddressed<BasicBatch<Ud>>);
static_assert(Invalidates<Batch> && !Invalidates<BasicBatch<Uc>>);
static_assert(WritesWithImmediate<Batch> && WritesWithImmediate<BasicBatch<Uc>>);
static_assert(!ReadsWithImmediate<Batch> && !WritesAndInvalidates<Batch>);
static_assert(!HasTwoImmediates<Batch>);
static_assert(!ReadsIntoASource<Batch>, "the device may not write there");
static_assert(Addresses<BasicBatch<Ud>> && !Addresses<Batch>);
static_assert(!AddressesTemporaries<BasicBatch<Ud>>);

template <class Q>
concept Posts = requires(Q& q) { q.batch(); };
template <class Q>
concept ReadsAtOnce = requires(Q& q, RemoteSpan r) { q.op(1).read({}, r); };
template <class Q>
concept Gates = requires(Q& q) { q.set_remote_access(AccessFlags::kNone); };
static_assert(Posts<QueuePair> && Posts<UcPair> && Posts<UdPair>);
static_assert(!Posts<PreparedQueuePair<Rc>> && !Posts<PreparedQueuePair<Ud>>, "use before connect");
static_assert(ReadsAtOnce<QueuePair> && !ReadsAtOnce<UcPair> && !ReadsAtOnce<UdPair>);
static_assert(Gates<QueuePair> && Gates<UcPair> && !Gates<UdPair>);

template <class P>
concept ShakesHands = requires(P p, Endpoint e) { std::move(p).handshake(e); };
template <class P>
concept ShakesHandsWithTimeout =
    requires(P p, Endpoint e) { std::move(p).handshake(e, {.ack_timeout = kDefaultAckTimeout}); };
template <class P>
concept ShakesHandsTwice = requires(P& p, Endpoint e) { p.handshake(e); };
template <class P>
concept Activates = requires(P p) { std::move(p).activate(1); };
static_assert(ShakesHands<PreparedQueuePair<Rc>> && ShakesHands<PreparedQueuePair<Uc>>);
static_assert(!ShakesHands<PreparedQueuePair<Ud>>);
static_assert(ShakesHandsWithTimeout<PreparedQueuePair<Rc>>);
static_assert(!ShakesHandsWithTimeout<PreparedQueuePair<Uc>>);
static_assert(!ShakesHandsTwice<PreparedQueuePair<Rc>>, "it needs an rvalue");
static_assert(Activates<PreparedQueuePair<Ud>> && !Activates<PreparedQueuePair<Rc>>);

// The stages do not convert to each other implicitly, and no transport converts to another.
static_assert(!std::is_convertible_v<PreparedQueuePair<Rc>, QueuePair>);
static_assert(!std::is_convertible_v<QueuePair, PreparedQueuePair<Rc>>);
static_assert(!std::is_convertible_v<UcPair, QueuePair>);
static_assert(!std::is_constructible_v<CmConnection, EventChannel, CmId, PreparedQueuePair<Rc>>);
static_assert(!std::is_copy_constructible_v<PreparedQueuePair<Rc>>);

TEST(TransportTypes, OperationsThatATransportLacksAreLeftOut) {
  EXPECT_EQ(operations_of<Rc>(kAllSendOps), kAllSendOps);
  EXPECT_FALSE(has(operations_of<Uc>(kAllSendOps), SendOps::kRead));
  EXPECT_TRUE(has(operations_of<Uc>(kAllSendOps), SendOps::kWriteImm));
  EXPECT_EQ(operations_of<Ud>(kAllSendOps), SendOps::kSend | SendOps::kSendImm);
  EXPECT_EQ(operations_of<Ud>(SendOps::kSend), SendOps::kSend);
}

// Records the arguments that a provider gets.
constexpr detail::RequestLimits kLimits = {.inline_bytes = 64, .pieces = 3, .read_pieces = 2};
struct Noted : Batch {
  explicit Noted(ibv_qp_ex* provider) : Batch(provider, kLimits) {}
};
ibv_qp_ex noting_provider() {
  ibv_qp_ex out{};
  out.wr_start = [](ibv_qp_ex*) {};
  out.wr_abort = [](ibv_qp_ex*) {};
  out.wr_send = [](ibv_qp_ex*) {};
  out.wr_rdma_read = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {};
  out.wr_set_sge = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint32_t) {};
  out.wr_set_inline_data = [](ibv_qp_ex*, void*, std::size_t) {};
  return out;
}

struct Peer {
  int number;
};
class Directed : public detail::DirectedBatch<Directed, Peer> {
 public:
  explicit Directed(ibv_qp_ex* provider) : DirectedBatch(provider, kLimits) {}
  void address(const Peer& to) { addressed = to.number; }
  int addressed = 0;
};

TEST(DirectedBatches, NameAReceiverWithEachRequest) {
  ibv_qp_ex provider = noting_provider();
  provider.wr_complete = [](ibv_qp_ex*) { return 0; };
  detail::refuse_the_rest(provider);
  Directed batch(&provider);
  batch.send(1, OpFlags::kSignaled, {.number = 7}, {});
  EXPECT_EQ(batch.addressed, 7);
  EXPECT_EQ(provider.wr_id, 1U);
  batch.read(2, OpFlags::kNone, {.number = 8}, {}, {});
  EXPECT_EQ(batch.addressed, 8);
  EXPECT_EQ(batch.count(), 2U);
  EXPECT_DEATH(batch.send_immediate(3, OpFlags::kNone, {.number = 9}, {}, 5), "made without");
  EXPECT_TRUE(std::move(batch).submit());
}

// The calls that a provider gets: s begins a batch, r is a request, d the doorbell, a an abort.
std::string provider_calls;

TEST(Batches, RingTheProvidersDoorbellOnce) {
  ibv_qp_ex provider = noting_provider();
  provider.wr_start = [](ibv_qp_ex*) { provider_calls += 's'; };
  provider.wr_abort = [](ibv_qp_ex*) { provider_calls += 'a'; };
  provider.wr_send = [](ibv_qp_ex*) { provider_calls += 'r'; };
  provider.wr_complete = [](ibv_qp_ex*) {
    provider_calls += 'd';
    return 0;
  };
  provider_calls.clear();
  {
    Noted batch(&provider);
    for (std::uint64_t i = 0; i < 4; ++i)
      batch.send(i, OpFlags::kSignaled, {});
    EXPECT_EQ(provider_calls, "srrrr") << "nothing is posted before submit()";
    EXPECT_TRUE(std::move(batch).submit());
  }
  EXPECT_EQ(provider_calls, "srrrrd");
  provider_calls.clear();
  {
    Noted dropped(&provider);
    dropped.send(1, OpFlags::kSignaled, {});
  }
  EXPECT_EQ(provider_calls, "sra");
  provider_calls.clear();
  EXPECT_TRUE(Noted(&provider).submit());
  EXPECT_EQ(provider_calls, "sa") << "no doorbell for nothing";
}

TEST(Flags, ReachTheProviderWithEachRequest) {
  ibv_qp_ex provider = noting_provider();
  Noted batch(&provider);
  batch.send(1, OpFlags::kFenced | OpFlags::kSignaled, {});
  EXPECT_EQ(provider.wr_flags, static_cast<unsigned>(IBV_SEND_FENCE | IBV_SEND_SIGNALED));
  EXPECT_EQ(provider.wr_id, 1U);
  batch.read(2, OpFlags::kSolicited, {}, {});
  EXPECT_EQ(provider.wr_flags, static_cast<unsigned>(IBV_SEND_SOLICITED));
  batch.send(3, OpFlags::kFenced, inlined(as_bytes("x")));
  EXPECT_EQ(provider.wr_flags, static_cast<unsigned>(IBV_SEND_FENCE | IBV_SEND_INLINE));
  batch.send(4, OpFlags::kNone, {});
  EXPECT_EQ(provider.wr_flags, 0U) << "nothing stays from the request before";
  EXPECT_EQ(provider.wr_id, 4U);
  // The same as modifiers, each on its own.
  batch.op(5).signaled().send();
  EXPECT_EQ(provider.wr_flags, unsigned{IBV_SEND_SIGNALED});
  batch.op(6).fenced().read({}, {});
  EXPECT_EQ(provider.wr_flags, unsigned{IBV_SEND_FENCE});
  batch.op(7).solicited().send();
  EXPECT_EQ(provider.wr_flags, unsigned{IBV_SEND_SOLICITED});
  EXPECT_EQ(provider.wr_id, 7U);
  EXPECT_EQ(batch.count(), 7U);
}

// On SoftRoCE such lists go another way (QueuePairOptions::send_sge).
TEST(Pieces, ReachTheProviderAsOneList) {
  static std::vector<ibv_sge> list;
  static std::uint32_t immediate;
  ibv_qp_ex provider = noting_provider();
  provider.wr_complete = [](ibv_qp_ex*) { return 0; };
  provider.wr_rdma_write_imm = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, __be32 value) {
    immediate = ntohl(value);
  };
  provider.wr_set_sge_list = [](ibv_qp_ex*, std::size_t count, const ibv_sge* pieces) {
    list.assign(pieces, pieces + count);
  };
  std::array<std::byte, 24> memory{};
  const RegisteredSpan whole = RegisteredSpan::unchecked(memory, 5);
  const RegisteredSource source = whole;
  const RemoteSpan remote{.address = 4096, .length = 24, .rkey = 7};
  const auto expect_list = [&](std::initializer_list<RegisteredSource> wanted) {
    ASSERT_EQ(list.size(), wanted.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(list[i].addr, wanted.begin()[i].address());
      EXPECT_EQ(list[i].length, wanted.begin()[i].size());
      EXPECT_EQ(list[i].lkey, 5U);
    }
  };
  Noted batch(&provider);
  batch.op(1).signaled().immediate(77).write({whole.first(3), whole.last(5)}, remote);
  expect_list({whole.first(3), whole.last(5)});
  EXPECT_EQ(immediate, 77U);
  EXPECT_EQ(provider.wr_flags, unsigned{IBV_SEND_SIGNALED});
  const std::vector<RegisteredSource> sources = {source.first(1), source.subspan(2, 4),
                                                 source.last(1)};
  batch.send(2, OpFlags::kNone, sources);
  expect_list({source.first(1), source.subspan(2, 4), source.last(1)});
  const std::array sinks = {whole.first(8), whole.last(8)};
  batch.read(3, OpFlags::kNone, sinks, remote);
  expect_list({whole.first(8), whole.last(8)});
  EXPECT_EQ(batch.count(), 3U);
  EXPECT_TRUE(std::move(batch).submit());

  Noted again(&provider);
  EXPECT_DEATH(again.write(4, OpFlags::kNone, {whole, whole.first(1)}, remote), "remote span");
  EXPECT_DEATH(again.read(4, OpFlags::kNone, std::array{whole, whole.first(1)}, remote),
               "remote span");
}

TEST(Pieces, MoreThanTheQueuePairAllowsRefuseTheBatch) {
  static int aborts = 0;
  ibv_qp_ex provider = noting_provider();
  provider.wr_set_sge_list = [](ibv_qp_ex*, std::size_t, const ibv_sge*) {};
  provider.wr_complete = [](ibv_qp_ex*) { return 0; };
  provider.wr_abort = [](ibv_qp_ex*) { ++aborts; };
  const std::array<RegisteredSpan, 4> pieces;
  const auto refused = [&](auto add) {
    const int before = aborts;
    Noted batch(&provider);
    batch.send(1, OpFlags::kSignaled, RegisteredSpan());
    add(batch);
    const Status status = std::move(batch).submit();
    return !status && status.error().code == Code::kInvalidArgument && aborts == before + 1;
  };
  const auto most = [&](std::size_t count) { return std::span(pieces).first(count); };
  EXPECT_TRUE(refused([&](Batch& b) { b.send(2, OpFlags::kSignaled, most(4)); }));
  EXPECT_FALSE(refused([&](Batch& b) { b.send(2, OpFlags::kSignaled, most(3)); }));
  EXPECT_TRUE(refused([&](Batch& b) { b.read(2, OpFlags::kSignaled, most(3), {}); }));
  EXPECT_FALSE(refused([&](Batch& b) { b.read(2, OpFlags::kSignaled, most(2), {}); }));
}

}  // namespace
}  // namespace rkv::rdma
