// Channels on real verbs: the blocking operations, every way out of a scope, and that no buffer is
// touched after any of them. A test without the cut proves that the check notices.
//
// Mutations tried: each of these changes to channel_state.cc makes a test here fail.
//   1  work that a drain leaves is not destroyed          ACutLeftOut...
//   2  there is always a free slot                        WhatDoesNotFit...
//   3  a node's generation does not change                AHandleThatOutlives...
//   4  a broken channel posts                             AFailureNamesItsOperation...
//      no poll between arming and sleeping                WhatComesBeforeTheSleep...
#include <time.h>

#include <stdexcept>

#include "pair.h"
#include "rdma/extras/channel/channel_state.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr int kShortMs = 50;  // for waits that must end by their deadline

static_assert(!std::is_copy_constructible_v<Pending> && !std::is_move_constructible_v<Pending>);
static_assert(!std::is_copy_assignable_v<Pending> && !std::is_move_assignable_v<Pending>);
static_assert(!std::is_copy_constructible_v<Scope> && !std::is_move_constructible_v<Scope>);
static_assert(!std::is_constructible_v<Scope, detail::ChannelState&, const Deadline&>);
static_assert(!std::is_default_constructible_v<Pending>);

template <class F>
concept MayBeScoped =
    requires(Channel& channel, const Deadline& deadline, F body) { channel.scope(deadline, body); };
static_assert(MayBeScoped<void (*)(Scope&)>);
static_assert(MayBeScoped<Status (*)(Scope&)>);
static_assert(!MayBeScoped<Pending (*)(Scope&)>);
static_assert(!MayBeScoped < Pending && (*)(Scope&) >);
static_assert(!MayBeScoped<Pending* (*)(Scope&)>);
static_assert(!MayBeScoped<Scope& (*)(Scope&)>);
static_assert(!MayBeScoped<void (*)(int)>);

TEST(Channels, BlockingOperationsCarryEveryKindOfWork) {
  ChannelPair pair;
  auto out = pair.server->scope(soon(), [&](Scope& s) {
    Pending hello = s.receive(pair.theirs(0, 64));
    Pending number = s.receive({});
    Pending written = s.receive({});
    put(pair.mine(0, 64), "hello");
    need(pair.client->send(pair.mine(0, 5), soon()));
    need(pair.client->send_immediate({}, 77, soon()));
    put(pair.mine(64, 64), "written");
    need(pair.client->write_immediate(pair.mine(64, 7), pair.remote(4096, 7), 78, soon()));
    EXPECT_EQ(need(hello.wait()).bytes, 5U);
    const Done empty = need(number.wait());
    EXPECT_TRUE(empty.has_immediate);
    EXPECT_EQ(empty.immediate, 77U);
    EXPECT_EQ(need(written.wait()).immediate, 78U);
  });
  need(out.operations);
  EXPECT_EQ(text_of(pair.theirs(0, 5)), "hello");
  EXPECT_EQ(text_of(pair.theirs(4096, 7)), "written");
  put(pair.mine(128, 64), "more");
  need(pair.client->write(pair.mine(128, 4), pair.remote(8192, 4), soon()));
  need(pair.client->read(pair.mine(256, 4), pair.remote(8192, 4), soon()));
  EXPECT_EQ(text_of(pair.mine(256, 4)), "more");
  store_le<std::uint64_t>(pair.theirs(16384, 8).bytes().data(), 10);
  EXPECT_EQ(need(pair.client->fetch_add(pair.mine(512, 8), pair.remote(16384, 8), 5, soon())), 10U);
  EXPECT_EQ(
      need(pair.client->compare_swap(pair.mine(512, 8), pair.remote(16384, 8), 15, 99, soon())),
      15U);
  EXPECT_EQ(load_le<std::uint64_t>(pair.theirs(16384, 8).bytes().data()), 99U);
  EXPECT_FALSE(pair.client->broken());
  EXPECT_EQ(pair.client->outstanding(), 0U);
}

TEST(Channels, ShortMessagesAreCopiedWhenPosted) {
  ChannelPair pair({.inline_bytes = 64});
  auto out = pair.server->scope(soon(), [&](Scope& theirs) {
    Pending got = theirs.receive(pair.theirs(0, 64));
    auto sent = pair.client->scope(soon(), [&](Scope& mine) {
      put(pair.mine(0, 64), "first");
      mine.send(pair.mine(0, 5));
      put(pair.mine(0, 64), "later");
    });
    need(sent.operations);
    EXPECT_EQ(need(got.wait()).bytes, 5U);
  });
  need(out.operations);
  EXPECT_EQ(text_of(pair.theirs(0, 5)), "first");
}

TEST(Channels, WhatDoesNotFitIsAnAnswerAndBreaksNothing) {
  ChannelPair pair({.sends = 2, .receives = 2});
  EXPECT_EQ(code_of(pair.client->read(pair.mine(0, 100), pair.remote(0, 99), soon())),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(pair.client->fetch_add(pair.mine(0, 7), pair.remote(0, 8), 1, soon())),
            Code::kInvalidArgument);
  auto out = pair.client->scope(soon(kShortMs), [&](Scope& s) {
    Pending one = s.receive(pair.mine(0, 8));
    Pending two = s.receive(pair.mine(8, 8));
    Pending three = s.receive(pair.mine(16, 8));
    EXPECT_EQ(code_of(three.wait()), Code::kBusy);
    // Sends have their own slots, and finished sends free theirs.
    for (std::size_t i = 0; i < 20; ++i)
      need(s.write(pair.mine(64, 8), pair.remote(64, 8)).wait());
    need(pair.server->send(pair.theirs(0, 8), soon()));
    need(pair.server->send(pair.theirs(8, 8), soon()));
    need(one.wait(soon()));
    need(two.wait(soon()));
  });
  need(out.operations);
  EXPECT_FALSE(pair.client->broken());
  EXPECT_EQ(code_of(PreparedChannel::create(pair.pd, {.sends = 0})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(PreparedChannel::create(pair.pd, {.send_sge = 33})), Code::kInvalidArgument);
}

TEST(Channels, AFailureNamesItsOperationAndBreaksTheChannel) {
  ChannelPair pair;
  RemoteSpan wrong = pair.remote(0, 8);
  wrong.rkey ^= 0x5555;
  const Status read = pair.client->read(pair.mine(0, 8), wrong, soon());
  ASSERT_FALSE(read);
  EXPECT_STREQ(read.error().call, "RDMA READ");
  EXPECT_EQ(code_of(read), wc_error("", IBV_WC_REM_ACCESS_ERR).code);
  ASSERT_TRUE(pair.client->broken());
  EXPECT_EQ(pair.client->why_broken().code, read.error().code);
  EXPECT_EQ(code_of(pair.client->write(pair.mine(0, 8), pair.remote(0, 8), soon())),
            Code::kDisconnected);
  // A broken channel refuses work instead of posting it to be flushed.
  const auto out = pair.client->scope(soon(), [&](Scope& s) {
    Pending refused = s.write(pair.mine(0, 8), pair.remote(0, 8));
    EXPECT_EQ(pair.client->outstanding(), 0U);
    EXPECT_EQ(code_of(refused.wait()), Code::kDisconnected);
  });
  need(out.operations);
}

// A completion between the last poll and arming raises no event.
TEST(Channels, WhatComesBeforeTheSleepIsNotSleptOver) {
  ChannelPair pair;
  bool sent = false;
  detail::ChannelAccess::state(*pair.client).faults.before_arming = [&] {
    if (!std::exchange(sent, true)) need(pair.server->send(pair.theirs(0, 5), soon()));
  };
  EXPECT_EQ(need(pair.client->receive(pair.mine(0, 64), soon())).bytes, 5U);
  EXPECT_TRUE(sent);
}

// A handle can leave its scope only by the heap; then its node may belong to another operation.
TEST(ScopesDeathTest, AHandleThatOutlivesItsScopeSaysSo) {
  ChannelPair pair;
  std::unique_ptr<Pending> kept;
  const auto out = pair.client->scope(soon(), [&](Scope& s) {
    kept.reset(new Pending(s.write(pair.mine(0, 8), pair.remote(0, 8))));
  });
  need(out.operations);
  EXPECT_DEATH(std::ignore = kept->finished(), "outlived its scope");
  EXPECT_DEATH(std::ignore = kept->wait(), "outlived its scope");
  kept.reset();  // destroying it has no effect
}

TEST(ChannelsDeathTest, AChannelThatWasMovedFromSaysSo) {
  ChannelPair pair;
  Channel& gone = *pair.client;
  const Channel taken = std::move(gone);
  const char* const says = "moved from";
  EXPECT_DEATH(std::ignore = gone.send(pair.mine(0, 8), soon()), says);
  EXPECT_DEATH(std::ignore = gone.read_all({}, soon()), says);
  EXPECT_DEATH(std::ignore = gone.read_limits(), says);
  EXPECT_DEATH(std::ignore = gone.scope(soon(), [](Scope&) {}), says);
  EXPECT_DEATH(std::ignore = gone.broken(), says);
  EXPECT_DEATH(std::ignore = gone.why_broken(), says);
  EXPECT_DEATH(std::ignore = gone.outstanding(), says);
  EXPECT_DEATH(std::ignore = gone.queue_pair(), says);
}

// A connected queue pair from elsewhere becomes a channel if it is as long as the options say.
TEST(Channels, AdoptAQueuePairThatIsLongEnough) {
  const auto adopt = [](const ChannelOptions& options) {
    Loopback loop;
    Result<Channel> channel =
        Channel::adopt(std::move(loop.client.channel), std::move(loop.client.queue),
                       std::move(*loop.client.qp), options);
    if (!channel) return Status(std::unexpected(channel.error()));
    return channel->write(loop.client.memory.local(0, 8),
                          *loop.server.memory.remote().subspan(0, 8), soon());
  };
  need(adopt({.sends = 64, .receives = 64}));
  EXPECT_EQ(code_of(adopt({.sends = 5000, .receives = 1})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(adopt({.sends = 600, .receives = 1})), Code::kInvalidArgument);
}

TEST(Channels, AdoptOnlyWhatBelongsTogether) {
  Loopback loop;
  Loopback other;
  CompletionChannel events = need(CompletionChannel::create(loop.device));
  CompletionQueue strange =
      need(CompletionQueue::create(loop.device, {.entries = 256, .channel = &events}));
  EXPECT_EQ(code_of(Channel::adopt(std::move(events), std::move(strange),
                                   std::move(*loop.client.qp), {.sends = 8, .receives = 8})),
            Code::kInvalidArgument);
  CompletionChannel silent = need(CompletionChannel::create(other.device));
  EXPECT_EQ(code_of(Channel::adopt(std::move(silent), std::move(other.client.queue),
                                   std::move(*other.client.qp), {.sends = 8, .receives = 8})),
            Code::kInvalidArgument);
}

// ---- ways out of a scope ----

// True if the peer's next message is still delivered into the buffer of an ended scope.
bool is_written_after(ChannelPair& pair, const RegisteredSpan& buffer) {
  put(buffer, "untouched");
  put(pair.theirs(0, 64), "delivered");
  // To a queue pair in the error state the send fails after its retries; in either case it has
  // ended when this returns.
  const bool sent = pair.server->send(pair.theirs(0, 9), soon()).has_value();
  const bool written = text_of(buffer.first(9)) != "untouched";
  EXPECT_EQ(sent, written);
  return written;
}

TEST(Scopes, WaitForWhatIsOutstandingAndGiveBackTheValue) {
  ChannelPair pair;
  put(pair.theirs(0, 8), "contents");
  const auto out = pair.client->scope(soon(), [&](Scope& s) {
    s.read(pair.mine(0, 8), pair.remote(0, 8));  // the closure does not wait for it
    return 42;
  });
  need(out.operations);
  EXPECT_EQ(out.value, 42);
  EXPECT_EQ(out.cut_off_count, 0U);
  EXPECT_EQ(text_of(pair.mine(0, 8)), "contents");
  EXPECT_EQ(pair.client->outstanding(), 0U);
  EXPECT_FALSE(pair.client->broken());
}

struct NoDefault {
  explicit NoDefault(int from) : number(from) {}
  int number;
};

TEST(Scopes, GiveBackAnyKindOfValue) {
  ChannelPair pair;
  EXPECT_EQ(pair.client->scope(soon(), [](Scope&) { return NoDefault(3); }).value.number, 3);
  const auto owned = pair.client->scope(soon(), [](Scope&) { return std::make_unique<int>(4); });
  EXPECT_EQ(*owned.value, 4);
}

TEST(Scopes, KeepTheErrorsOfOperationsAndOfTheClosureApart) {
  ChannelPair pair;
  RemoteSpan wrong = pair.remote(0, 8);
  wrong.rkey ^= 0x5555;
  const auto out = pair.client->scope(soon(), [&](Scope& s) -> Status {
    s.write(pair.mine(0, 8), wrong);
    return fail(Code::kNotFound, "the closure's own");
  });
  ASSERT_FALSE(out.operations);
  ASSERT_FALSE(out.value);
  EXPECT_STREQ(out.operations.error().call, "RDMA WRITE");
  EXPECT_EQ(code_of(out.value), Code::kNotFound);
  EXPECT_EQ(out.cut_off_count, 0U);
}

TEST(Scopes, TellAnErrorOnce) {
  ChannelPair pair;
  RemoteSpan wrong = pair.remote(0, 8);
  wrong.rkey ^= 0x5555;
  const auto looked = pair.client->scope(
      soon(), [&](Scope& s) { EXPECT_FALSE(s.write(pair.mine(0, 8), wrong).wait()); });
  EXPECT_TRUE(looked.operations);
  EXPECT_TRUE(pair.client->broken());
  ChannelPair second;
  wrong = second.remote(0, 8);
  wrong.rkey ^= 0x5555;
  const auto posted = second.client->scope(soon(), [&](Scope& s) {
    const std::array work = {Work::write(second.mine(0, 8), wrong)};
    need(s.post(work));
    EXPECT_FALSE(s.wait_posted());
  });
  EXPECT_TRUE(posted.operations);
}

TEST(Scopes, EndAtTheDeadlineWhenThePeerNeverSends) {
  ChannelPair pair;
  const auto out = pair.client->scope(soon(kShortMs), [&](Scope& s) {
    Pending never = s.receive(pair.mine(0, 64));
    EXPECT_EQ(code_of(never.wait(soon(1))), Code::kTimeout);
    EXPECT_FALSE(never.finished());
  });
  ASSERT_FALSE(out.operations);
  EXPECT_EQ(code_of(out.operations), Code::kTimeout);
  EXPECT_EQ(out.cut_off_count, 1U);
  EXPECT_EQ(pair.client->outstanding(), 0U);
  EXPECT_EQ(need(pair.client->queue_pair().state()), IBV_QPS_ERR);
  EXPECT_FALSE(is_written_after(pair, pair.mine(0, 64)));
}

TEST(Scopes, CutOffWhenTheClosureThrows) {
  ChannelPair pair;
  EXPECT_THROW(std::ignore = pair.client->scope(soon(kShortMs),
                                                [&](Scope& s) {
                                                  Pending never = s.receive(pair.mine(0, 64));
                                                  throw std::runtime_error("the closure's");
                                                }),
               std::runtime_error);
  EXPECT_EQ(pair.client->outstanding(), 0U);
  ASSERT_TRUE(pair.client->broken());
  EXPECT_EQ(pair.client->why_broken().code, Code::kTimeout);
  EXPECT_FALSE(is_written_after(pair, pair.mine(0, 64)));
}

TEST(Scopes, CutOffWhenTheClosureReturnsAnError) {
  ChannelPair pair;
  const auto out = pair.client->scope(soon(kShortMs), [&](Scope& s) -> Status {
    s.receive(pair.mine(0, 64));
    return fail(Code::kConflict, "the closure's own");
  });
  EXPECT_EQ(code_of(out.value), Code::kConflict);
  EXPECT_EQ(code_of(out.operations), Code::kTimeout);
  EXPECT_FALSE(is_written_after(pair, pair.mine(0, 64)));
}

TEST(Scopes, ABlockingOperationThatTimesOutGivesItsBufferBackToo) {
  ChannelPair pair;
  const Result<Done> got = pair.client->receive(pair.mine(0, 64), soon(kShortMs));
  ASSERT_FALSE(got);
  EXPECT_EQ(code_of(got), Code::kTimeout);
  EXPECT_STREQ(got.error().call, "receive");
  EXPECT_FALSE(is_written_after(pair, pair.mine(0, 64)));
  ChannelPair second;
  const Status sent = second.client->send(second.mine(0, 8), soon(kShortMs));  // no receive is
                                                                               // posted there
  ASSERT_FALSE(sent);
  EXPECT_EQ(code_of(sent), Code::kTimeout);
  EXPECT_EQ(sent.error().write, WriteOutcome::kMayHaveHappened);
}

// The check above can fail: without the cut the message arrives in a buffer of an ended scope.
TEST(Scopes, ACutLeftOutIsNoticed) {
  ChannelPair pair;
  detail::ChannelAccess::state(*pair.client).faults.skip_cut = true;
  const auto out =
      pair.client->scope(soon(kShortMs), [&](Scope& s) { s.receive(pair.mine(0, 64)); });
  EXPECT_EQ(out.cut_off_count, 1U);
  EXPECT_TRUE(is_written_after(pair, pair.mine(0, 64)));
}

// A device that returns no completion: the queue pair is destroyed, and the scope still ends.
TEST(Scopes, EndEvenWhenTheDrainDoesNot) {
  ChannelPair pair({.drain_ms = 20});
  detail::ChannelAccess::state(*pair.client).faults.lose_completions = true;
  const auto out = pair.client->scope(soon(kShortMs), [&](Scope& s) {
    s.receive(pair.mine(0, 64));
    s.write(pair.mine(64, 8), pair.remote(64, 8));
  });
  EXPECT_EQ(out.cut_off_count, 2U);
  EXPECT_EQ(code_of(out.operations), Code::kTimeout);
  EXPECT_FALSE(detail::ChannelAccess::state(*pair.client).qp().has_value());
  EXPECT_FALSE(is_written_after(pair, pair.mine(0, 64)));
}

TEST(Scopes, PostMoreThanTheQueueHoldsInTurns) {
  ChannelPair pair({.sends = 8, .receives = 1});
  constexpr std::size_t kWords = 1000;
  for (std::size_t i = 0; i < kWords; ++i)
    store_le<std::uint64_t>(pair.mine(i * 8, 8).bytes().data(), i * i);
  const auto out = pair.client->strict_scope(soon(), [&](Scope& s) -> Status {
    for (std::size_t i = 0; i < kWords; i += 4) {
      std::array<Work, 4> work;
      for (std::size_t j = 0; j < work.size(); ++j)
        work[j] = Work::write(pair.mine((i + j) * 8, 8), pair.remote((i + j) * 8, 8));
      Status posted = s.post(work);
      if (!posted && posted.error().code == Code::kBusy) {
        RKV_RETURN_IF_ERROR(s.wait_posted());
        posted = s.post(work);
      }
      RKV_RETURN_IF_ERROR(posted);
    }
    return s.wait_posted();
  });
  need(out.operations);
  need(out.value);
  for (std::size_t i = 0; i < kWords; ++i)
    ASSERT_EQ(load_le<std::uint64_t>(pair.theirs(i * 8, 8).bytes().data()), i * i);
}

// Waiting uses little processor time: most of half a second is slept.
TEST(Scopes, SleepWhileTheyWait) {
  const auto processor_ms = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  };
  ChannelPair pair;
  const auto out = pair.client->scope(soon(kShortMs), [&](Scope& s) {
    Pending never = s.receive(pair.mine(0, 64));
    const auto before = processor_ms();
    EXPECT_EQ(code_of(never.wait(soon(10 * kShortMs))), Code::kTimeout);
    EXPECT_LT(processor_ms() - before, 5 * kShortMs);
  });
  EXPECT_EQ(out.cut_off_count, 1U);
}

TEST(Scopes, CanFollowEachOtherForEver) {
  ChannelPair pair({.sends = 2, .receives = 2});
  for (int i = 0; i < 500; ++i) {
    const auto out = pair.client->scope(soon(), [&](Scope& s) {
      s.write(pair.mine(0, 8), pair.remote(0, 8));
      s.read(pair.mine(8, 8), pair.remote(0, 8));
    });
    need(out.operations);
  }
}

TEST(StrictScopes, AcceptWorkThatWasLookedAtAndErrorsWithoutIt) {
  ChannelPair pair;
  const auto looked = pair.client->strict_scope(soon(), [&](Scope& s) {
    need(s.write(pair.mine(0, 8), pair.remote(0, 8)).wait());
    const std::array work = {Work::write(pair.mine(0, 8), pair.remote(0, 8)),
                             Work::read(pair.mine(8, 8), pair.remote(0, 8))};
    need(s.post(work));
    s.write(pair.mine(16, 8), pair.remote(16, 8));  // no handle: wait_posted() covers it too
    need(s.wait_posted());
  });
  need(looked.operations);
  const auto failed = pair.client->strict_scope(soon(), [&](Scope& s) -> Status {
    s.write(pair.mine(0, 8), pair.remote(0, 8));
    return fail(Code::kNotFound, "early");
  });
  need(failed.operations);
  EXPECT_FALSE(failed.value);
}

// A forked child shares the parent's queue pairs, and its device accepts no work: a child that is a
// program of its own has others.
TEST(StrictScopes, RefuseWorkThatNobodyLookedAt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ChannelPair pair;
  const auto counted = pair.client->scope(soon(), [&](Scope& s) {
    s.write(pair.mine(0, 8), pair.remote(0, 8));
    need(s.write(pair.mine(0, 8), pair.remote(0, 8)).wait());
    return detail::ChannelAccess::state(*pair.client).unseen();
  });
  EXPECT_EQ(counted.value, 1U);
  EXPECT_DEATH(std::ignore = pair.client->strict_scope(
                   soon(), [&](Scope& s) { s.write(pair.mine(0, 8), pair.remote(0, 8)); }),
               "before the results of all operations");
}

TEST(Scopes, MisuseIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // as above
  ChannelPair pair;
  EXPECT_DEATH(
      std::ignore = pair.client->scope(
          soon(), [&](Scope&) { std::ignore = pair.client->scope(soon(), [](Scope&) {}); }),
      "do not nest");
  EXPECT_DEATH(std::ignore = pair.client->scope(soon(),
                                                [&](Scope& s) {
                                                  Pending p =
                                                      s.write(pair.mine(0, 8), pair.remote(0, 8));
                                                  std::ignore = p.wait();
                                                  std::ignore = p.wait();
                                                }),
               "taken twice");
  EXPECT_DEATH(std::ignore = pair.client->scope(soon(), [&](Scope&) { pair.client.reset(); }),
               "within its own scope");
}

}  // namespace
}  // namespace rkv::rdma
