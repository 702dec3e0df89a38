// One side with several peers, on real verbs.
#include "rkv/rdma/group/multi_channel.h"

#include <thread>

#include "pair.h"
#include "rdma/extras/group/channel_state.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kPeers = 4;
constexpr int kShortMs = 100;

// `hub` has a channel to each of `peers`; peer i has page i of `theirs`.
struct Star {
  static constexpr std::size_t kPage = 4096;

  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  MemoryRegion mine = need(MemoryRegion::allocate(pd, kPeers* kPage, kEverything));
  MemoryRegion theirs = need(MemoryRegion::allocate(pd, kPeers* kPage, kEverything));
  std::vector<Channel> peers;
  std::optional<MultiChannel> hub;

  Star() {
    std::vector<Channel> channels;
    for (std::uint32_t i = 0; i < kPeers; ++i) {
      PreparedChannel a = need(PreparedChannel::create(pd, {.sends = 8, .receives = 8}));
      PreparedChannel b = need(PreparedChannel::create(pd, {.sends = 8, .receives = 8}));
      const Endpoint a_end = a.endpoint();
      const Endpoint b_end = b.endpoint();
      channels.push_back(need(std::move(a).connect(b_end, {.remote_access = kEverything})));
      peers.push_back(need(std::move(b).connect(a_end, {.remote_access = kEverything})));
    }
    hub.emplace(std::move(channels));
  }
  RegisteredSpan local(std::uint32_t peer, std::size_t length) {
    return mine.local(peer * kPage, length);
  }
  RegisteredSpan of(std::uint32_t peer, std::size_t length) {
    return theirs.local(peer * kPage, length);
  }
  RemoteSpan remote(std::uint32_t peer, std::size_t length) {
    return *theirs.remote().subspan(peer * kPage, length);
  }
  std::vector<RegisteredSpan> locals(std::size_t length) {
    std::vector<RegisteredSpan> out;
    for (std::uint32_t i = 0; i < kPeers; ++i)
      out.push_back(local(i, length));
    return out;
  }
  std::vector<RemoteSpan> remotes(std::size_t length) {
    std::vector<RemoteSpan> out;
    for (std::uint32_t i = 0; i < kPeers; ++i)
      out.push_back(remote(i, length));
    return out;
  }
  // Each peer has a thread: the hub waits for all of them at a time.
  template <class Body>
  std::thread peers_do(Body body) {
    return std::thread([this, body] {
      std::vector<std::thread> threads;
      for (std::uint32_t i = 0; i < kPeers; ++i)
        threads.emplace_back([this, body, i] { body(i, peers[i]); });
      for (std::thread& thread : threads)
        thread.join();
    });
  }
};

std::string name_of(std::uint32_t peer) {
  return "peer" + std::to_string(peer);
}

TEST(MultiChannels, ScatterAndGatherMessages) {
  Star star;
  std::thread peers = star.peers_do([&](std::uint32_t i, Channel& channel) {
    EXPECT_EQ(need(channel.receive(star.of(i, 64), soon())).bytes, 5U);
    need(channel.send(star.of(i, 5), soon()));  // back to its sender
    EXPECT_EQ(need(channel.receive(star.of(i, 64), soon())).bytes, 3U);
  });
  for (std::uint32_t i = 0; i < kPeers; ++i)
    put(star.local(i, 64), name_of(i));
  const GroupOutcome sent = star.hub->scatter_send(star.locals(5), soon());
  need(sent.status());
  EXPECT_EQ(sent.each().size(), kPeers);
  for (std::uint32_t i = 0; i < kPeers; ++i)
    put(star.local(i, 64), "-----");
  const GroupOutcome got = star.hub->gather_receive(star.locals(64), soon());
  need(got.status());
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    EXPECT_EQ(got[i].peer, i);
    EXPECT_EQ(got[i].done.bytes, 5U);
    EXPECT_EQ(text_of(star.local(i, 5)), name_of(i));
  }
  put(star.local(0, 64), "all");
  need(star.hub->multicast_send(star.local(0, 3), soon()).status());
  peers.join();
  for (std::uint32_t i = 0; i < kPeers; ++i)
    EXPECT_EQ(text_of(star.of(i, 3)), "all");
}

TEST(MultiChannels, ScatterWritesAndGatherReads) {
  Star star;
  for (std::uint32_t i = 0; i < kPeers; ++i)
    put(star.local(i, 64), name_of(i));
  need(star.hub->scatter_write(star.locals(5), star.remotes(5), soon()).status());
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    EXPECT_EQ(text_of(star.of(i, 5)), name_of(i));
    put(star.of(i, 64), "p" + name_of(i));
  }
  need(star.hub->gather_read(star.locals(6), star.remotes(6), soon()).status());
  for (std::uint32_t i = 0; i < kPeers; ++i)
    EXPECT_EQ(text_of(star.local(i, 6)), "p" + name_of(i));
}

TEST(MultiChannels, RunAnyWorkAndAnswerAtItsIndex) {
  Star star;
  store_le<std::uint64_t>(star.of(2, 8).bytes().data(), 40);
  const PeerMemory word = {.peer = 2, .span = star.remote(2, 64)};
  const std::array work = {
      PeerWork{.peer = 2, .work = Work::fetch_add(star.local(0, 8), word.subspan(0, 8)->span, 2)},
      read_from(star.local(1, 8), *word.subspan(0, 8)),
      write_to(star.local(3, 8), {.peer = 0, .span = star.remote(0, 8)}),
  };
  store_le<std::uint64_t>(star.local(3, 8).bytes().data(), 7);
  const GroupOutcome out = star.hub->run(work, soon());
  need(out.status());
  EXPECT_EQ(out[0].peer, 2U);
  EXPECT_EQ(out[2].peer, 0U);
  const auto word_at = [](const RegisteredSpan& place) {
    return load_le<std::uint64_t>(place.bytes().data());
  };
  EXPECT_EQ(word_at(star.of(2, 8)), 42U);
  EXPECT_EQ(word_at(star.local(0, 8)), 40U) << "before the addition";
  EXPECT_EQ(word_at(star.local(1, 8)), 42U) << "READ after it";
  EXPECT_EQ(word_at(star.of(0, 8)), 7U);
  EXPECT_FALSE(word.subspan(60, 8));
  EXPECT_EQ(star.hub->run({}, soon()).each().size(), 0U);
}

TEST(MultiChannels, APeerThatFailsFailsAlone) {
  Star star;
  std::vector<RemoteSpan> to = star.remotes(8);
  to[1].rkey ^= 0x5555;
  to[2].length = 7;  // refused before it is posted: that channel stays usable
  const GroupOutcome out = star.hub->scatter_write(star.locals(8), to, soon());
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(out.failed_count(), 2U);
  EXPECT_TRUE(out[0].status);
  EXPECT_STREQ(out[1].status.error().call, "RDMA WRITE");
  EXPECT_EQ(code_of(out[2].status), Code::kInvalidArgument);
  EXPECT_TRUE(out[3].status);
  const GroupOutcome again = star.hub->scatter_write(star.locals(8), star.remotes(8), soon());
  EXPECT_EQ(again.failed_count(), 1U);
  EXPECT_EQ(code_of(again[1].status), Code::kDisconnected);
}

// Two silent peers cost one deadline, and only their own channels.
TEST(MultiChannels, PeersThatDoNotAnswerAreCutOffTogether) {
  Star star;
  std::thread peers = star.peers_do([&](std::uint32_t i, Channel& channel) {
    if (i % 2 == 0) need(channel.send(star.of(i, 5), soon()));
  });
  const GroupOutcome out = star.hub->gather_receive(star.locals(64), soon(10 * kShortMs));
  peers.join();
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    EXPECT_EQ(out[i].status.has_value(), i % 2 == 0) << i;
    EXPECT_EQ((*star.hub)[i].broken(), i % 2 != 0) << i;
    EXPECT_EQ((*star.hub)[i].outstanding(), 0U);
    if (!out[i].status) {
      EXPECT_EQ(code_of(out[i].status), Code::kTimeout);
    }
  }
  // A message that arrives now finds no buffer.
  put(star.local(1, 64), "untouched");
  EXPECT_FALSE(star.peers[1].send(star.of(1, 5), soon()));
  EXPECT_EQ(text_of(star.local(1, 9)), "untouched");
}

TEST(MultiChannels, WhoIsLateCostsTheOthersNothingThatTheyHaveOutstanding) {
  Star star;
  const auto out = star.hub->scope(soon(), [&](GroupScope& s) {
    Pending other = s.receive(0, star.local(0, 64));
    const std::array work = {PeerWork{.peer = 1, .work = Work::receive(star.local(1, 64))}};
    EXPECT_EQ(code_of(star.hub->run(work, soon(kShortMs))[0].status), Code::kTimeout);
    need(star.peers[0].send(star.of(0, 5), soon()));
    EXPECT_EQ(need(other.wait()).bytes, 5U);
  });
  need(out.operations.status());
  EXPECT_FALSE((*star.hub)[0].broken());
  EXPECT_TRUE((*star.hub)[1].broken());
}

// Receives are posted first, so they are outstanding when the sends after them are refused.
TEST(MultiChannels, WorkRefusedHalfwayLeavesNoBufferBehind) {
  Star star;
  detail::ChannelAccess::state((*star.hub)[1]).faults.refuse_sends = true;
  const std::array work = {PeerWork{.peer = 1, .work = Work::receive(star.local(1, 64))},
                           PeerWork{.peer = 1, .work = Work::send(star.local(1, 8))}};
  const GroupOutcome out = star.hub->run(work, soon(kShortMs));
  EXPECT_EQ(code_of(out[0].status), Code::kTimeout);
  EXPECT_EQ(code_of(out[1].status), Code::kBusy);
  EXPECT_EQ((*star.hub)[1].outstanding(), 0U);
  put(star.local(1, 64), "untouched");
  EXPECT_FALSE(star.peers[1].send(star.of(1, 5), soon()));
  EXPECT_EQ(text_of(star.local(1, 9)), "untouched");
}

TEST(MultiChannels, AChannelThatBrokeMayBeReplaced) {
  Star star;
  std::vector<RemoteSpan> to = star.remotes(8);
  to[1].rkey ^= 0x5555;
  EXPECT_EQ(star.hub->scatter_write(star.locals(8), to, soon()).failed_count(), 1U);
  Star fresh;
  (*star.hub)[1] = std::move((*fresh.hub)[1]);
  const std::array work = {write_to(fresh.local(1, 8), {.peer = 1, .span = fresh.remote(1, 8)}),
                           write_to(star.local(2, 8), {.peer = 2, .span = star.remote(2, 8)})};
  need(star.hub->run(work, soon()).status());
  const auto out = star.hub->scope(soon(), [&](GroupScope& s) {
    need(s.write(fresh.local(1, 8), {.peer = 1, .span = fresh.remote(1, 8)}).wait());
  });
  need(out.operations.status());
  EXPECT_DEATH(std::ignore = fresh.hub->multicast_send(fresh.local(0, 8), soon()), "moved from");
}

TEST(GroupScopes, WaitForAllAndTellEachPeersError) {
  Star star;
  RemoteSpan wrong = star.remote(3, 8);
  wrong.rkey ^= 0x5555;
  const auto out = star.hub->scope(soon(10 * kShortMs), [&](GroupScope& s) {
    Pending first = s.write(star.local(0, 8), {.peer = 0, .span = star.remote(0, 8)});
    const std::array two = {Work::write(star.local(1, 8), star.remote(1, 8)),
                            Work::read(star.local(1, 8), star.remote(1, 8))};
    need(s.post(1, two));
    s.receive(2, star.local(2, 64));  // no peer sends
    s.write(star.local(3, 8), {.peer = 3, .span = wrong});
    need(first.wait());
    return 7;
  });
  EXPECT_EQ(out.value, 7);
  EXPECT_TRUE(out.operations[0].status);
  EXPECT_TRUE(out.operations[1].status);
  EXPECT_EQ(code_of(out.operations[2].status), Code::kTimeout);
  EXPECT_STREQ(out.operations[3].status.error().call, "RDMA WRITE");
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    EXPECT_EQ((*star.hub)[i].outstanding(), 0U);
    EXPECT_EQ((*star.hub)[i].broken(), i >= 2);
  }
}

// The body's outcome and the outcome of the work it left are separate; neither overwrites the
// other.
TEST(GroupScopes, AnOutcomeOfTheBodyOutlivesTheScope) {
  Star star;
  std::vector<RemoteSpan> to = star.remotes(8);
  to[1].length = 7;  // refused before it is posted
  RemoteSpan wrong = star.remote(3, 8);
  wrong.rkey ^= 0x5555;
  const auto out = star.hub->scope(soon(), [&](GroupScope& s) {
    GroupOutcome written = star.hub->scatter_write(star.locals(8), to, soon());
    s.write(star.local(3, 8), {.peer = 3, .span = wrong});
    return written;
  });
  EXPECT_EQ(out.value.failed_count(), 1U);
  EXPECT_EQ(code_of(out.value[1].status), Code::kInvalidArgument);
  EXPECT_EQ(out.operations.failed_count(), 1U);
  EXPECT_STREQ(out.operations[3].status.error().call, "RDMA WRITE");
}

template <class F>
concept MayBeGroupScoped = requires(MultiChannel& group, const Deadline& deadline, F body) {
  group.scope(deadline, body);
};
static_assert(MayBeGroupScoped<GroupOutcome (*)(GroupScope&)>);
static_assert(!MayBeGroupScoped<Pending* (*)(GroupScope&)>);
static_assert(!MayBeGroupScoped<GroupScope* (*)(GroupScope&)>);

TEST(GroupScopes, EndAlsoByAnException) {
  Star star;
  EXPECT_THROW(std::ignore = star.hub->scope(soon(kShortMs),
                                             [&](GroupScope& s) {
                                               s.receive(0, star.local(0, 64));
                                               throw std::runtime_error("the closure's");
                                             }),
               std::runtime_error);
  EXPECT_EQ((*star.hub)[0].outstanding(), 0U);
  EXPECT_TRUE((*star.hub)[0].broken());
  EXPECT_FALSE((*star.hub)[1].broken());
}

}  // namespace
}  // namespace rkv::rdma
