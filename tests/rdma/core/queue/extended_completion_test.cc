// The guard of a poll against a provider that the test plays: the calls and their order, for a
// provider that follows the manual and for one that ends the poll by itself.
#include "rkv/rdma/extended_completion.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace rkv::rdma {
namespace {

// A completion queue of a provider, with a log of its calls: s start, n next, e end, l byte length.
struct Provider {
  ibv_cq_ex queue{};
  std::vector<std::uint64_t> wr_ids;
  std::size_t at = 0;  // index of the next completion
  int answer_at_end = ENOENT;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::string calls;

  explicit Provider(std::size_t completions) {
    for (std::size_t i = 0; i < completions; ++i)
      wr_ids.push_back(100 + i);
    queue.cq_context = this;
    queue.start_poll = [](ibv_cq_ex* q, ibv_poll_cq_attr*) { return self(q).give('s'); };
    queue.next_poll = [](ibv_cq_ex* q) { return self(q).give('n'); };
    queue.end_poll = [](ibv_cq_ex* q) { self(q).calls += 'e'; };
    queue.read_byte_len = [](ibv_cq_ex* q) {
      self(q).calls += 'l';
      return 7U;
    };
  }
  static Provider& self(ibv_cq_ex* q) { return *static_cast<Provider*>(q->cq_context); }
  int give(char call) {
    calls += call;
    if (at == wr_ids.size()) return answer_at_end;
    queue.wr_id = wr_ids[at++];
    queue.status = status;
    return 0;
  }
};

// Polls up to `limit` completions; returns the wr_ids, which are also in the log.
Status go_through(Provider& provider, bool one_by_one, std::size_t limit, std::size_t stop_after) {
  detail::PollState poll(&provider.queue, one_by_one, limit);
  const CompletionCursor<WcField::kByteLength> cursor(poll.queue());
  std::size_t seen = 0;
  for (bool more = poll.start(); more && seen != stop_after; more = poll.advance()) {
    EXPECT_EQ(cursor.wr_id(), 100 + seen++);
    EXPECT_EQ(cursor.byte_length(), 7U);
  }
  return poll.status();
}
constexpr std::size_t kAll = 1000;

TEST(PollGuards, EndThePollAsTheManualWantsIt) {
  Provider provider(2);
  EXPECT_TRUE(go_through(provider, false, 10, kAll));
  EXPECT_EQ(provider.calls, "slnlne");
}

TEST(PollGuards, DoNotEndWhatDidNotStart) {
  Provider provider(0);
  EXPECT_TRUE(go_through(provider, false, 10, kAll));
  EXPECT_EQ(provider.calls, "s");
}

// SoftRoCE: a `next` that finds nothing has ended the poll in the provider, and an `end` would then
// skip a completion that has not arrived yet. So the guard never makes this `next`.
TEST(PollGuards, AreAPollForEachWhereNextEndsThePoll) {
  Provider provider(2);
  EXPECT_TRUE(go_through(provider, true, 10, kAll));
  EXPECT_EQ(provider.calls, "slesles");
}

TEST(PollGuards, TakeNoMoreThanTheirLimit) {
  Provider manual(5);
  EXPECT_TRUE(go_through(manual, false, 2, kAll));
  EXPECT_EQ(manual.calls, "slnle");
  EXPECT_EQ(manual.at, 2U);
  Provider single(5);
  EXPECT_TRUE(go_through(single, true, 2, kAll));
  EXPECT_EQ(single.calls, "slesle");
  EXPECT_EQ(single.at, 2U);
}

TEST(PollGuards, EndWhereALoopIsLeftEarly) {
  Provider provider(5);
  EXPECT_TRUE(go_through(provider, false, 10, 1));
  EXPECT_EQ(provider.calls, "slne");
}

TEST(PollGuards, DoNotGoOnPastTheirEnd) {
  for (const bool one_by_one : {false, true}) {
    Provider provider(1);
    detail::PollState poll(&provider.queue, one_by_one, 10);
    ASSERT_TRUE(poll.start());
    EXPECT_FALSE(poll.advance());
    const std::string calls = provider.calls;
    EXPECT_FALSE(poll.advance());
    EXPECT_EQ(provider.calls, calls);
  }
}

TEST(PollGuards, TellABrokenQueue) {
  for (const bool one_by_one : {false, true}) {
    Provider provider(1);
    provider.answer_at_end = EIO;
    const Status status = go_through(provider, one_by_one, 10, kAll);
    ASSERT_FALSE(status);
    EXPECT_STREQ(status.error().call, one_by_one ? "ibv_start_poll" : "ibv_next_poll");
    EXPECT_EQ(status.error().sys_errno, EIO);
    EXPECT_EQ(provider.calls, one_by_one ? "sles" : "slne");
  }
}

TEST(PollGuards, AFieldOfAFailedRequestIsAMistake) {
  Provider provider(1);
  provider.status = IBV_WC_WR_FLUSH_ERR;
  detail::PollState poll(&provider.queue, false, 1);
  const CompletionCursor<WcField::kByteLength> cursor(poll.queue());
  ASSERT_TRUE(poll.start());
  EXPECT_FALSE(cursor.ok());
  EXPECT_EQ(cursor.status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(cursor.wr_id(), 100U);
  EXPECT_DEATH(cursor.byte_length(), "a field of a completion that failed");
}

// The fields that connected queue pairs of RoCE leave empty, each from its own function.
TEST(CompletionCursors, ReadEachFieldFromItsPlace) {
  ibv_cq_ex queue{};
  queue.read_wc_flags = [](ibv_cq_ex*) { return static_cast<unsigned>(IBV_WC_GRH); };
  queue.read_src_qp = [](ibv_cq_ex*) { return 0x11'0001U; };
  queue.read_slid = [](ibv_cq_ex*) { return 0x2002U; };
  queue.read_sl = [](ibv_cq_ex*) { return std::uint8_t{3}; };
  queue.read_dlid_path_bits = [](ibv_cq_ex*) { return std::uint8_t{4}; };
  queue.read_qp_num = [](ibv_cq_ex*) { return 0x55U; };
  queue.read_completion_ts = [](ibv_cq_ex*) { return std::uint64_t{0x8'8888'8888}; };
  queue.read_completion_wallclock_ns = [](ibv_cq_ex*) { return std::uint64_t{0x9'9999'9999}; };
  const CompletionCursor<kStandardFields | WcField::kTimestamp | WcField::kWallclock> cursor(
      &queue);
  EXPECT_EQ(cursor.timestamp(), 0x8'8888'8888U);
  EXPECT_EQ(cursor.wallclock_ns(), 0x9'9999'9999U);
  EXPECT_TRUE(cursor.has_grh());
  EXPECT_EQ(cursor.source_queue_pair(), 0x11'0001U);
  EXPECT_EQ(cursor.slid(), 0x2002U);
  EXPECT_EQ(cursor.service_level(), 3);
  EXPECT_EQ(cursor.path_bits(), 4);
  EXPECT_EQ(cursor.queue_pair(), 0x55U);
  EXPECT_FALSE(cursor.has_immediate());
}

// mlx5 answers -2 for a completion that it cannot assign.
TEST(BrokenQueues, AreNoNumberOfCompletions) {
  for (const int answer : {-2, -1, EIO}) {
    const Polled polled = Polled::failed(answer);
    EXPECT_FALSE(polled);
    EXPECT_EQ(polled.error().sys_errno, EIO);
    EXPECT_STREQ(polled.error().call, "ibv_start_poll");
    EXPECT_FALSE(Result<std::size_t>(polled));
  }
  EXPECT_STREQ(Polled::of_poll_cq(-EIO).error().call, "ibv_poll_cq");
}

// The only fields of a request that failed, whichever way it is read.
TEST(CompletionCursors, ReadTheVendorsCodeOfAFailure) {
  ibv_cq_ex queue{};
  queue.wr_id = 9;
  queue.status = IBV_WC_REM_ACCESS_ERR;
  queue.read_vendor_err = [](ibv_cq_ex*) { return 0x6006U; };
  queue.read_qp_num = [](ibv_cq_ex*) { return 0x55U; };
  EXPECT_EQ(CompletionCursor<kStandardFields>(&queue).vendor_error(), 0x6006U);
  WorkCompletion found{.byte_length = 7, .immediate = 8, .kind = WorkKind::kRead};
  detail::fill(found, &queue, false);
  EXPECT_EQ(found.vendor_error, 0x6006U);
  EXPECT_EQ(found.wr_id, 9U);
  EXPECT_EQ(found.qp_num, 0x55U);
  EXPECT_EQ(found.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(found.byte_length + found.immediate, 0U) << "left by the completion before";
  EXPECT_EQ(found.kind, WorkKind::kUnknown);
}

// The kernel's part of SoftRoCE uses another number for this flag, which elsewhere means a good
// checksum.
TEST(CompletionCursors, TellTheInvalidatedKeyByTheDevicesOwnFlag) {
  static unsigned flags;
  ibv_cq_ex queue{};
  queue.read_wc_flags = [](ibv_cq_ex*) { return flags; };
  queue.read_imm_data = [](ibv_cq_ex*) { return __be32{0x1234'5678}; };
  using Cursor = CompletionCursor<WcField::kImmediate>;
  const Cursor hardware(&queue);
  const Cursor soft(&queue, true);
  flags = IBV_WC_WITH_INV;
  EXPECT_TRUE(hardware.has_invalidated());
  EXPECT_FALSE(soft.has_invalidated());
  EXPECT_EQ(hardware.invalidated_rkey(), 0x1234'5678U);  // a key is in host byte order
  flags = IBV_WC_IP_CSUM_OK;
  EXPECT_FALSE(hardware.has_invalidated());
  EXPECT_TRUE(soft.has_invalidated());
  flags = IBV_WC_WITH_IMM | IBV_WC_IP_CSUM_OK;
  EXPECT_FALSE(soft.has_invalidated());
}

}  // namespace
}  // namespace rkv::rdma
