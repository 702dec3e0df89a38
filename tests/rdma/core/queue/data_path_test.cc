// The data path: messages, READs, WRITEs, atomics, batches, refusals, and the death of a peer.
#include <poll.h>

#include <thread>

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

void post_receives(Side& side, std::size_t count, std::size_t bytes = 4096) {
  std::vector<ReceiveRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back({.wr_id = 100 + i, .buffer = side.memory.local(i * bytes, bytes)});
  }
  need(side.qp->post_receives(requests));
}

template <class Fill>
WorkCompletion run(Side& side, Fill fill) {
  Batch batch = side.qp->batch();
  fill(batch);
  need(std::move(batch).submit());
  return side.completion();
}

// More than one piece of a request: on SoftRoCE another way to post (QueuePairOptions::send_sge).
LoopbackOptions of_pieces() {
  LoopbackOptions options;
  options.qp.send_sge = 4;
  return options;
}

TEST(Messages, ArriveWithLengthAndContents) {
  Loopback loop;
  post_receives(loop.server, 1);
  std::memcpy(loop.client.at(0), "hello", 5);
  const WorkCompletion sent = run(loop.client, [&](Batch& batch) {
    batch.send(1, OpFlags::kSignaled, loop.client.memory.local(0, 5));
  });
  EXPECT_TRUE(sent.ok());
  EXPECT_EQ(sent.wr_id, 1U);
  EXPECT_EQ(sent.kind, WorkKind::kSend);
  const WorkCompletion got = loop.server.completion();
  EXPECT_TRUE(got.ok());
  EXPECT_EQ(got.kind, WorkKind::kReceive);
  EXPECT_EQ(got.wr_id, 100U);
  EXPECT_EQ(got.byte_length, 5U);
  EXPECT_EQ(got.qp_num, loop.server.qp->number());
  EXPECT_FALSE(got.has_immediate);
  EXPECT_EQ(std::memcmp(loop.server.at(0), "hello", 5), 0);
}

TEST(Messages, ImmediateDataKeepsItsByteOrder) {
  Loopback loop;
  post_receives(loop.server, 1);
  run(loop.client, [&](Batch& batch) {
    batch.op(1).signaled().immediate(0x01020304).send(loop.client.memory.local(0, 8));
  });
  const WorkCompletion got = loop.server.completion();
  EXPECT_TRUE(got.has_immediate);
  EXPECT_EQ(got.immediate, 0x01020304U);
}

TEST(Messages, InlineBytesAreTakenAtOnceAndGathered) {
  Loopback loop;
  ASSERT_GE(loop.client.qp->inline_bytes(), 256U);
  post_receives(loop.server, 2);
  std::array<char, 256> text{};
  text.fill('x');
  {
    Batch batch = loop.client.qp->batch();
    batch.send(1, OpFlags::kNone, inlined(std::as_bytes(std::span(text))));
    text.fill('y');  // the first message must not contain this
    const std::array<Bytes, 3> pieces = {as_bytes("ab"), Bytes{}, as_bytes("cde")};
    batch.send(2, OpFlags::kSignaled, inlined(pieces));
    need(std::move(batch).submit());
  }
  EXPECT_TRUE(loop.client.completion().ok());
  const auto got = loop.server.completions(2);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].byte_length, 256U);
  EXPECT_EQ(*loop.server.at(0), std::byte{'x'});
  EXPECT_EQ(*loop.server.at(255), std::byte{'x'});
  EXPECT_EQ(got[1].byte_length, 5U);
  EXPECT_EQ(std::memcmp(loop.server.at(4096), "abcde", 5), 0);
}

TEST(Messages, InlineLongerThanGrantedIsABug) {
  Loopback loop;
  const std::vector<std::byte> longer(loop.client.qp->inline_bytes() + 1);
  EXPECT_DEATH(
      {
        Batch batch = loop.client.qp->batch();
        batch.send(1, OpFlags::kSignaled, inlined(longer));
      },
      "inline_bytes");
}

TEST(OneSided, ReadsSpanManyPackets) {
  Loopback loop;
  constexpr std::size_t kBytes = 300'000;
  for (std::size_t i = 0; i < kBytes; ++i)
    *loop.server.at(i) = static_cast<std::byte>(i * 7);
  const WorkCompletion done = run(loop.client, [&](Batch& batch) {
    batch.read(9, OpFlags::kSignaled, loop.client.memory.local(0, kBytes),
               *loop.server.memory.remote().subspan(0, kBytes));
  });
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(done.kind, WorkKind::kRead);
  EXPECT_EQ(std::memcmp(loop.client.at(0), loop.server.at(0), kBytes), 0);
}

// Behind as many others as the send queue has places: soft-iWARP keeps in them what it READ.
TEST(OneSided, AReadOfNoBytesChangesNothing) {
  LoopbackOptions options;
  options.qp.send_length = 8;
  Loopback loop(options);
  store_le<std::uint64_t>(loop.server.at(0), 7);
  const auto read = [&](const RegisteredSpan& to) {
    return run(loop.client, [&](Batch& batch) {
      batch.read(1, OpFlags::kSignaled, to, *loop.server.memory.remote().subspan(0, to.size()));
    });
  };
  for (std::uint32_t i = 0; i < 2 * loop.client.qp->send_length(); ++i)
    ASSERT_TRUE(read(loop.client.memory.local(0, 8)).ok());
  store_le<std::uint64_t>(loop.client.at(0), 1);
  const bool iwarp = need(loop.device.attributes()).iwarp;
  bool stands = true;
  for (std::uint32_t i = 0; stands && i < 2 * loop.client.qp->send_length(); ++i) {
    stands = read(RegisteredSpan()).ok();
    // Soft-iWARP ends the connection if its peer is still sending (rdma/README.md).
    EXPECT_TRUE(stands || iwarp);
  }
  EXPECT_EQ(loop.client.word(0), 1U);
}

TEST(OneSided, WritesSpanManyPackets) {
  Loopback loop;
  constexpr std::size_t kBytes = 300'000;
  for (std::size_t i = 0; i < kBytes; ++i)
    *loop.client.at(i) = static_cast<std::byte>(i * 7);
  const WorkCompletion done = run(loop.client, [&](Batch& batch) {
    batch.write(9, OpFlags::kSignaled, loop.client.memory.local(0, kBytes),
                *loop.server.memory.remote().subspan(64, kBytes));
  });
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(done.kind, WorkKind::kWrite);
  EXPECT_EQ(std::memcmp(loop.server.at(64), loop.client.at(0), kBytes), 0);
  EXPECT_EQ(*loop.server.at(64 + kBytes), std::byte{}) << "and no byte more";
}

TEST(OneSided, PiecesOfDifferentLengthAreScatteredAndGathered) {
  Loopback loop(of_pieces());
  post_receives(loop.server, 1);
  std::memcpy(loop.server.at(8192), "0123456789", 10);
  const std::array<RegisteredSpan, 2> pieces = {loop.client.memory.local(0, 4),
                                                loop.client.memory.local(100, 6)};
  need(loop.client.qp->op(1).signaled().read(pieces,
                                             *loop.server.memory.remote().subspan(8192, 10)));
  EXPECT_TRUE(loop.client.completion().ok());
  EXPECT_EQ(std::memcmp(loop.client.at(0), "0123", 4), 0);
  EXPECT_EQ(std::memcmp(loop.client.at(100), "456789", 6), 0);
  need(loop.client.qp->op(2).signaled().send(pieces));
  EXPECT_TRUE(loop.client.completion().ok());
  EXPECT_EQ(loop.server.completion().byte_length, 10U);
  EXPECT_EQ(std::memcmp(loop.server.at(0), "0123456789", 10), 0);
}

// Requests with one piece, with several and with none to one queue pair, in one doorbell.
TEST(OneSided, PiecesOfAWholeBatch) {
  Loopback loop(of_pieces());
  post_receives(loop.server, 2);
  std::memcpy(loop.client.at(0), "headerandbody", 13);
  const RegisteredSource header = loop.client.memory.local(0, 6);
  const RegisteredSource body = loop.client.memory.local(9, 4);
  const RemoteSpan remote = loop.server.memory.remote();
  Batch batch = loop.client.qp->batch();
  batch.write(1, OpFlags::kNone, std::array{header, body}, *remote.subspan(16384, 10));
  batch.op(2).immediate(7).write(std::array{body, header}, *remote.subspan(20000, 10));
  batch.op(3).send({loop.client.memory.local(0, 3), loop.client.memory.local(6, 3)});
  const std::array to = {loop.client.memory.local(100, 2), loop.client.memory.local(200, 8)};
  batch.read(4, OpFlags::kSignaled, to, *remote.subspan(16384, 10));
  EXPECT_EQ(batch.count(), 4U);
  need(std::move(batch).submit());
  EXPECT_EQ(loop.client.completion().wr_id, 4U);
  EXPECT_EQ(std::memcmp(loop.server.at(16384), "headerbody", 11), 0);
  EXPECT_EQ(std::memcmp(loop.server.at(20000), "bodyheader", 11), 0);
  EXPECT_EQ(std::memcmp(loop.client.at(100), "he\0", 3), 0);
  EXPECT_EQ(std::memcmp(loop.client.at(200), "aderbody", 9), 0);
  const auto got = loop.server.completions(2);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].immediate, 7U);
  EXPECT_EQ(got[0].kind, WorkKind::kReceiveOfWrite);
  EXPECT_EQ(got[1].byte_length, 6U);
  EXPECT_EQ(std::memcmp(loop.server.at(4096), "heaand", 6), 0);
}

TEST(OneSided, InlinePiecesAreWrittenAndCarryImmediateData) {
  Loopback loop;
  post_receives(loop.server, 2);
  const RemoteSpan remote = loop.server.memory.remote();
  const std::array pieces = {as_bytes("in"), as_bytes("line")};
  Batch batch = loop.client.qp->batch();
  batch.write(1, OpFlags::kNone, inlined(pieces), *remote.subspan(16384, 6));
  batch.op(2).immediate(8).write(inlined(pieces), *remote.subspan(20000, 6));
  batch.op(3).signaled().immediate(9).send(inlined(as_bytes("told")));
  need(std::move(batch).submit());
  EXPECT_TRUE(loop.client.completion().ok());
  EXPECT_EQ(std::memcmp(loop.server.at(16384), "inline", 7), 0);
  EXPECT_EQ(std::memcmp(loop.server.at(20000), "inline", 7), 0);
  const auto got = loop.server.completions(2);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].immediate, 8U);
  EXPECT_EQ(got[1].immediate, 9U);
  EXPECT_EQ(std::memcmp(loop.server.at(4096), "told", 4), 0);
}

TEST(OneSided, MorePiecesThanAskedForRefuseTheWholeBatch) {
  Loopback loop(of_pieces());
  post_receives(loop.server, 1);
  std::memcpy(loop.client.at(0), "pieces", 6);
  std::vector<RegisteredSpan> pieces;
  for (const std::size_t at : {4U, 0U, 1U, 2U, 3U})
    pieces.push_back(loop.client.memory.local(at, 1));
  Batch batch = loop.client.qp->batch();
  batch.send(1, OpFlags::kSignaled, loop.client.memory.local(0, 1));
  batch.write(2, OpFlags::kSignaled, pieces, loop.server.memory.remote());
  EXPECT_EQ(std::move(batch).submit().error().code, Code::kInvalidArgument);
  std::array<WorkCompletion, 1> none;
  EXPECT_EQ(need(loop.client.queue.poll(none)), 0U);
  need(loop.client.qp->op(3).signaled().write(std::span(pieces).first(4),
                                              *loop.server.memory.remote().subspan(8192, 4)));
  const WorkCompletion done = loop.client.completion();
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(done.wr_id, 3U);
  EXPECT_EQ(std::memcmp(loop.server.at(8192), "epie\0", 5), 0);
  EXPECT_EQ(need(loop.server.queue.poll(none)), 0U) << "the message of the refused batch";
}

TEST(OneSided, WriteWithImmediateTellsThePeer) {
  Loopback loop;
  post_receives(loop.server, 1, 64);
  std::memcpy(loop.client.at(0), "written!", 8);
  EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                batch.op(1).signaled().immediate(77).write(
                    loop.client.memory.local(0, 8), *loop.server.memory.remote().subspan(512, 8));
              }).ok());
  const WorkCompletion got = loop.server.completion();
  EXPECT_EQ(got.kind, WorkKind::kReceiveOfWrite);
  EXPECT_EQ(got.immediate, 77U);
  EXPECT_EQ(std::memcmp(loop.server.at(512), "written!", 8), 0);
}

TEST(OneSided, CompareSwapAndFetchAddReturnTheOldValue) {
  Loopback loop;
  store_le<std::uint64_t>(loop.server.at(64), 41);
  const RemoteSpan word = *loop.server.memory.remote().subspan(64, 8);
  const RegisteredSpan old_value = loop.client.memory.local(0, 8);
  const auto swap = [&](std::uint64_t expected, std::uint64_t desired) {
    EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                  batch.compare_swap(1, OpFlags::kSignaled, old_value, word, expected, desired);
                }).ok());
    return loop.client.word(0);
  };
  EXPECT_EQ(swap(41, 50), 41U);
  EXPECT_EQ(loop.server.word(64), 50U);
  EXPECT_EQ(swap(41, 60), 50U);
  EXPECT_EQ(loop.server.word(64), 50U);
  EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                batch.fetch_add(2, OpFlags::kSignaled, old_value, word, 5);
              }).ok());
  EXPECT_EQ(loop.client.word(0), 50U);
  EXPECT_EQ(loop.server.word(64), 55U);
}

TEST(Batches, ManyReadsOneDoorbellOneCompletion) {
  Loopback loop;
  constexpr std::size_t kReads = 200;
  for (std::size_t i = 0; i < kReads; ++i)
    store_le<std::uint64_t>(loop.server.at(i * 8), i * i);
  {
    Batch batch = loop.client.qp->batch();
    for (std::size_t i = 0; i < kReads; ++i) {
      const OpFlags flags = i + 1 == kReads ? OpFlags::kSignaled : OpFlags::kNone;
      batch.read(i, flags, loop.client.memory.local(i * 8, 8),
                 *loop.server.memory.remote().subspan(i * 8, 8));
    }
    EXPECT_EQ(batch.count(), kReads);
    need(std::move(batch).submit());
  }
  const WorkCompletion done = loop.client.completion();
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(done.wr_id, kReads - 1);
  for (std::size_t i = 0; i < kReads; ++i)
    EXPECT_EQ(loop.client.word(i * 8), i * i);
  std::array<WorkCompletion, 4> none;
  EXPECT_EQ(need(loop.client.queue.poll(none)), 0U);
}

TEST(Batches, DroppedWithoutSubmitPostNothing) {
  Loopback loop;
  store_le<std::uint64_t>(loop.server.at(0), 1);
  {
    Batch batch = loop.client.qp->batch();
    batch.fetch_add(1, OpFlags::kSignaled, loop.client.memory.local(0, 8),
                    *loop.server.memory.remote().subspan(0, 8), 100);
  }
  need(loop.client.qp->batch().submit());  // empty: has no effect
  EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                batch.fetch_add(2, OpFlags::kSignaled, loop.client.memory.local(0, 8),
                                *loop.server.memory.remote().subspan(0, 8), 10);
              }).ok());
  EXPECT_EQ(loop.server.word(0), 11U);
}

TEST(Batches, AFullSendQueueRefusesTheWholeBatch) {
  LoopbackOptions options;
  options.qp.send_length = 8;
  Loopback loop(options);
  const std::uint32_t length = loop.client.qp->send_length();
  Batch batch = loop.client.qp->batch();
  for (std::uint32_t i = 0; i < 4 * length + 8; ++i) {
    batch.read(i, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
  }
  const Status status = std::move(batch).submit();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kOutOfMemory);
  EXPECT_NE(to_string(status.error()).find("full"), std::string::npos);
  const WorkCompletion done = run(loop.client, [&](Batch& next) {
    next.read(99, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
  });
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(done.wr_id, 99U) << "of the refused batch";
}

// The store relies on this: a region with only REMOTE_READ refuses every change, even behind a
// queue pair that grants everything.
class ReadOnlyRegion : public ::testing::TestWithParam<int> {};

TEST_P(ReadOnlyRegion, RefusesEveryChange) {
  LoopbackOptions options;
  options.server_region = AccessFlags::kRemoteRead;
  Loopback loop(options);
  const RemoteSpan word = *loop.server.memory.remote().subspan(0, 8);
  const RegisteredSpan local = loop.client.memory.local(0, 8);
  store_le<std::uint64_t>(loop.server.at(0), 7);
  EXPECT_TRUE(
      run(loop.client, [&](Batch& batch) { batch.read(1, OpFlags::kSignaled, local, word); }).ok());
  const WorkCompletion done = run(loop.client, [&](Batch& batch) {
    if (GetParam() == 0) batch.write(2, OpFlags::kSignaled, local, word);
    if (GetParam() == 1) batch.compare_swap(2, OpFlags::kSignaled, local, word, 7, 8);
    if (GetParam() == 2) batch.fetch_add(2, OpFlags::kSignaled, local, word, 1);
  });
  EXPECT_EQ(explain(done.status).kind, WcClass::kRemoteRefused) << done.status;
  EXPECT_EQ(done.wr_id, 2U);
  EXPECT_EQ(loop.server.word(0), 7U);
}
INSTANTIATE_TEST_SUITE_P(WriteCompareSwapFetchAdd, ReadOnlyRegion, ::testing::Values(0, 1, 2));

TEST(QueuePairGate, WithoutGrantsReadsAreRefusedAndMessagesPass) {
  LoopbackOptions options;
  options.server_grants = AccessFlags::kNone;
  Loopback loop(options);
  post_receives(loop.server, 1);
  EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                batch.send(1, OpFlags::kSignaled, loop.client.memory.local(0, 8));
              }).ok());
  need(loop.server.qp->set_remote_access(AccessFlags::kRemoteRead));
  EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                batch.read(2, OpFlags::kSignaled, loop.client.memory.local(0, 8),
                           loop.server.memory.remote());
              }).ok());
  need(loop.server.qp->set_remote_access(AccessFlags::kNone));
  const WorkCompletion refused = run(loop.client, [&](Batch& batch) {
    batch.read(3, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
  });
  EXPECT_EQ(explain(refused.status).kind, WcClass::kRemoteRefused) << refused.status;
}

TEST(Refusals, ReadingPastTheRegionOrWithAForgedKeyFails) {
  for (const bool forged_key : {false, true}) {
    Loopback loop;
    RemoteSpan wrong = loop.server.memory.remote();
    if (forged_key) {
      wrong.rkey ^= 0x5A;
    } else {
      wrong.address += wrong.length - 4;
    }
    const WorkCompletion done = run(loop.client, [&](Batch& batch) {
      batch.read(1, OpFlags::kSignaled, loop.client.memory.local(0, 8), wrong);
    });
    EXPECT_EQ(explain(done.status).kind, WcClass::kRemoteRefused) << done.status;
  }
}

TEST(Failures, MovingToErrorFlushesWhatIsOutstanding) {
  Loopback loop;
  post_receives(loop.client, 3);
  need(loop.client.qp->to_error());
  const auto flushed = loop.client.completions(3);
  ASSERT_EQ(flushed.size(), 3U);
  for (const WorkCompletion& one : flushed) {
    EXPECT_EQ(one.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(one.byte_length, 0U);
  }
}

// How transports know that nothing more will arrive: a marker after all other work.
TEST(Failures, WorkPostedInErrorStateCompletesAsFlushedInOrder) {
  Loopback loop;
  need(loop.client.qp->to_error());
  const WorkCompletion marker = run(loop.client, [&](Batch& batch) {
    batch.send(4711, OpFlags::kSignaled, inlined(as_bytes("x")));
  });
  EXPECT_EQ(marker.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(marker.wr_id, 4711U);
}

// SoftRoCE's provider does not tell the kernel of a new receive. The kernel looks for receives to
// flush when the state is set; Linux 6.12 may look later, and does so for each SEND too.
TEST(Failures, WorkPostedInErrorStateToReceiveIsFlushedWhenTheStateIsSetAgain) {
  Loopback loop;
  need(loop.client.qp->to_error());
  post_receives(loop.client, 3);
  need(loop.client.qp->to_error());
  const auto flushed = loop.client.completions(3);
  ASSERT_EQ(flushed.size(), 3U);
  for (std::size_t i = 0; i < flushed.size(); ++i) {
    EXPECT_EQ(flushed[i].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed[i].wr_id, 100 + i);
  }
}

TEST(Failures, ADeadPeerIsReportedAsUnreachable) {
  Loopback loop;
  loop.server.qp.reset();  // silently: the client gets no message
  const WorkCompletion done = run(loop.client, [&](Batch& batch) {
    batch.read(1, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
  });
  EXPECT_EQ(explain(done.status).kind, WcClass::kPeerUnreachable) << done.status;
}

TEST(Failures, AMissingReceiveDelaysButDoesNotKill) {
  Loopback loop;
  {
    Batch batch = loop.client.qp->batch();
    batch.send(1, OpFlags::kSignaled, loop.client.memory.local(0, 8));
    need(std::move(batch).submit());
  }
  std::array<WorkCompletion, 1> none;
  EXPECT_EQ(need(loop.client.queue.wait(none, soon(30))), 0U);
  post_receives(loop.server, 1);
  EXPECT_TRUE(loop.client.completion().ok());
}

TEST(Events, AWaiterIsWokenByACompletion) {
  Loopback loop;
  post_receives(loop.server, 64);
  std::jthread sender([&] {
    for (int i = 0; i < 64; ++i) {
      EXPECT_TRUE(run(loop.client, [&](Batch& batch) {
                    batch.send(1, OpFlags::kSignaled, loop.client.memory.local(0, 8));
                  }).ok());
    }
  });
  EXPECT_EQ(loop.server.completions(64).size(), 64U);
}

}  // namespace
}  // namespace rkv::rdma
