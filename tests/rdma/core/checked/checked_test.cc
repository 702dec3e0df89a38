// Checked mode without a device: queue pairs, queues and regions of a provider without effects, and
// completions that the test chooses. Each violation stands beside a twin without a violation.
#include "rkv/rdma/checked.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <tuple>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/queue_pair.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace rkv::rdma {
namespace {

[[maybe_unused]] const bool switched_on = (checked::enable({.poison = true}), true);

struct Done {
  std::uint64_t wr_id;
  ibv_wc_opcode opcode = IBV_WC_RDMA_READ;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t qp_num = 0x11;
};
std::deque<Done> ready;    // the completions of the next polls
int posts_answer = 0;      // the result of every post
std::size_t accepted = 0;  // requests accepted of a refused chain

template <class Chain>
int take_chain(Chain* chain, Chain** refused) {
  if (posts_answer == 0) return 0;
  for (std::size_t i = 0; i < accepted; ++i)
    chain = chain->next;
  *refused = chain;
  return posts_answer;
}

int next_done(ibv_cq_ex* queue) {
  if (ready.empty()) return ENOENT;
  queue->wr_id = ready.front().wr_id;
  queue->status = ready.front().status;
  return 0;
}

struct Memory {
  alignas(64) std::array<std::byte, 4096> bytes{};
  ibv_mr raw{};
  Memory(ibv_pd& pd, std::uint32_t key) {
    raw.context = pd.context;
    raw.pd = &pd;
    raw.addr = bytes.data();
    raw.length = bytes.size();
    raw.lkey = key;
    checked::begin(raw);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { checked::end(raw); }
  RegisteredSpan local(std::size_t offset, std::size_t length) {
    return RegisteredSpan::unchecked(MutableBytes(bytes).subspan(offset, length), raw.lkey);
  }
};

struct Fabric {
  ibv_context context{};
  ibv_pd pd{};
  ibv_pd other_pd{};
  ibv_cq_ex queue{};
  ibv_srq srq{};
  explicit Fabric(int entries) {
    context.ops.poll_cq = [](ibv_cq*, int, ibv_wc* out) {
      if (ready.empty()) return 0;
      const Done done = std::exchange(ready.front(), {});
      ready.pop_front();
      *out = {};
      out->wr_id = done.wr_id;
      out->opcode = done.opcode;
      out->status = done.status;
      out->qp_num = done.qp_num;
      return 1;
    };
    context.ops.post_send = [](ibv_qp*, ibv_send_wr* chain, ibv_send_wr** bad) {
      return take_chain(chain, bad);
    };
    context.ops.post_recv = [](ibv_qp*, ibv_recv_wr* chain, ibv_recv_wr** bad) {
      return take_chain(chain, bad);
    };
    context.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr* chain, ibv_recv_wr** bad) {
      return take_chain(chain, bad);
    };
    context.ops.bind_mw = [](ibv_qp*, ibv_mw*, ibv_mw_bind*) { return posts_answer; };
    pd.context = other_pd.context = queue.context = srq.context = &context;
    pd.handle = 1;
    other_pd.handle = 2;
    srq.pd = &pd;
    queue.cqe = entries;
    queue.start_poll = [](ibv_cq_ex* self, ibv_poll_cq_attr*) { return next_done(self); };
    queue.next_poll = [](ibv_cq_ex* self) {
      ready.pop_front();
      return next_done(self);
    };
    queue.end_poll = [](ibv_cq_ex*) { ready.pop_front(); };
    queue.read_qp_num = [](ibv_cq_ex*) { return ready.front().qp_num; };
    queue.read_opcode = [](ibv_cq_ex*) { return ready.front().opcode; };
    checked::queue_begins(ibv_cq_ex_to_cq(&queue), &queue);
    checked::shared_receives_begin(&srq);
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() {
    checked::shared_receives_end(&srq);
    checked::queue_ends(ibv_cq_ex_to_cq(&queue));
  }
};

constexpr detail::RequestLimits kLimits = {.inline_bytes = 64, .pieces = 4, .read_pieces = 4};
struct Opened : Batch {
  explicit Opened(ibv_qp_ex* provider) : Batch(provider, kLimits) {}
};

constexpr std::uint32_t kSendLength = 4;

struct Pair {
  ibv_qp_ex raw{};
  Pair(Fabric& fabric, std::uint32_t number, ibv_srq* shared = nullptr) {
    ibv_qp& base = raw.qp_base;
    base.context = &fabric.context;
    base.pd = &fabric.pd;
    base.send_cq = base.recv_cq = ibv_cq_ex_to_cq(&fabric.queue);
    base.qp_num = number;
    raw.wr_start = [](ibv_qp_ex*) {};
    raw.wr_abort = [](ibv_qp_ex*) {};
    raw.wr_complete = [](ibv_qp_ex*) { return posts_answer; };
    raw.wr_send = [](ibv_qp_ex*) {};
    raw.wr_rdma_read = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {};
    raw.wr_rdma_write = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {};
    raw.wr_atomic_fetch_add = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint64_t) {};
    raw.wr_bind_mw = [](ibv_qp_ex*, ibv_mw*, std::uint32_t, const ibv_mw_bind_info*) {};
    raw.wr_local_inv = [](ibv_qp_ex*, std::uint32_t) {};
    raw.wr_set_sge = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint32_t) {};
    raw.wr_set_inline_data = [](ibv_qp_ex*, void*, std::size_t) {};
    checked::pair_begins(&base, &raw, shared, kSendLength);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() { checked::pair_ends(&raw.qp_base); }

  // Any requests, with one doorbell.
  template <class Fill>
  Status post(Fill fill) {
    Opened batch(&raw);
    fill(batch);
    return std::move(batch).submit();
  }
  void read(std::uint64_t wr_id, const RegisteredSpan& to, OpFlags flags = OpFlags::kSignaled) {
    EXPECT_TRUE(post([&](Batch& batch) { batch.read(wr_id, flags, to, kRemote); }));
  }
  void send(std::uint64_t wr_id, const RegisteredSpan& from, OpFlags flags = OpFlags::kSignaled) {
    EXPECT_TRUE(post([&](Batch& batch) { batch.send(wr_id, flags, from); }));
  }
  int receive(std::uint64_t wr_id, const RegisteredSpan& to) {
    ibv_sge piece = to.sge();
    ibv_recv_wr request{.wr_id = wr_id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* refused = nullptr;
    return ibv_post_recv(&raw.qp_base, &request, &refused);
  }
  static constexpr RemoteSpan kRemote{.address = 0, .length = 1 << 20, .rkey = 9};
};

class CheckedDeathTest : public ::testing::Test {
 protected:
  CheckedDeathTest() {
    ready.clear();
    posts_answer = 0;
    accepted = 0;
  }
  // Reads one completion, like CompletionQueue::poll().
  void poll(const Done& done) {
    ready.push_back(done);
    ibv_poll_cq_attr none{};
    ASSERT_EQ(ibv_start_poll(&fabric_.queue, &none), 0);
    ibv_end_poll(&fabric_.queue);
  }
  Fabric fabric_{8};
  Memory memory_{fabric_.pd, 0xAB};
  Pair pair_{fabric_, 0x11};
  Pair second_{fabric_, 0x12};
};

TEST_F(CheckedDeathTest, ARegionEndsWhileARequestNamesIt) {
  pair_.read(7, memory_.local(64, 8), OpFlags::kNone);
  EXPECT_DEATH(checked::end(memory_.raw),
               "checked: the region with key 0xab at .* ends while wr_id 7 .READ, queue pair 0x11. "
               "at .0x[0-9a-f]+, 0x[0-9a-f]+. is in flight");
  pair_.send(8, memory_.local(0, 8));
  EXPECT_EQ(checked::in_flight(), 2U);
  poll({.wr_id = 8, .opcode = IBV_WC_SEND});
  EXPECT_EQ(checked::in_flight(), 0U) << "a signaled one ends those before it";
  checked::end(memory_.raw);
}

TEST_F(CheckedDeathTest, ARegionMayEndAfterItsQueuePairOrAReset) {
  {
    Memory memory(fabric_.pd, 0xAC);
    Pair pair(fabric_, 0x13);
    pair.read(1, memory.local(0, 8));
    EXPECT_EQ(pair.receive(2, memory.local(8, 8)), 0);
    EXPECT_EQ(checked::in_flight(), 2U);
  }
  EXPECT_EQ(checked::in_flight(), 0U);
  pair_.read(1, memory_.local(0, 8));
  checked::pair_resets(&pair_.raw.qp_base);
  EXPECT_EQ(checked::in_flight(), 0U);
}

TEST_F(CheckedDeathTest, AWindowEndsWhileARequestNamesIt) {
  ibv_mw window{};
  window.context = &fabric_.context;
  window.pd = &fabric_.pd;
  window.rkey = 0x500;
  window.type = IBV_MW_TYPE_1;
  const ibv_mw_bind_info info{.mr = &memory_.raw,
                              .addr = reinterpret_cast<std::uint64_t>(memory_.bytes.data()),
                              .length = 64,
                              .mw_access_flags = 0};
  const auto batch = [&](auto fill) {
    pair_.raw.wr_flags = IBV_SEND_SIGNALED;
    pair_.raw.wr_id = 3;
    ibv_wr_start(&pair_.raw);
    fill();
    EXPECT_EQ(ibv_wr_complete(&pair_.raw), 0);
  };
  batch([&] { ibv_wr_bind_mw(&pair_.raw, &window, 0x501, &info); });
  EXPECT_DEATH(checked::window_ends(&window), "the window with key 0x500 ends while wr_id 3 .bind");
  EXPECT_DEATH(checked::end(memory_.raw), "ends while wr_id 3 .bind");
  second_.read(4, memory_.local(0, 8));  // a window over bytes does not claim them
  poll({.wr_id = 3, .opcode = IBV_WC_BIND_MW});
  poll({.wr_id = 4, .qp_num = 0x12});
  batch([&] { ibv_wr_local_inv(&pair_.raw, 0x500); });
  EXPECT_DEATH(checked::window_ends(&window), "wr_id 3 .local invalidate");
  poll({.wr_id = 3, .opcode = IBV_WC_LOCAL_INV});
  checked::window_ends(&window);
  ibv_mw_bind old_way{.wr_id = 5, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
  EXPECT_EQ(ibv_bind_mw(&pair_.raw.qp_base, &window, &old_way), 0);
  EXPECT_DEATH(checked::window_ends(&window), "wr_id 5 .bind");
  poll({.wr_id = 5, .opcode = IBV_WC_BIND_MW});
}

TEST_F(CheckedDeathTest, TheDeviceWritesBytesThatAreInFlight) {
  pair_.read(1, memory_.local(64, 64));
  second_.send(2, memory_.local(256, 64));
  EXPECT_DEATH(pair_.read(3, memory_.local(127, 8)),
               "wr_id 3 .READ.* writes bytes that wr_id 1 .READ.* writes");
  EXPECT_DEATH(pair_.read(3, memory_.local(200, 57)), "writes bytes that wr_id 2 .SEND.* sends");
  EXPECT_DEATH(second_.receive(3, memory_.local(0, 65)), "wr_id 3 .receive, queue pair 0x12.*READ");
  EXPECT_DEATH(second_.send(3, memory_.local(100, 8)), "sends bytes that wr_id 1 .READ.* writes");
  EXPECT_DEATH(std::ignore = second_.post([&](Batch& batch) {
    batch.fetch_add(3, OpFlags::kNone, memory_.local(64, 8), Pair::kRemote, 1);
  }),
               "wr_id 3 .atomic");
  pair_.read(3, memory_.local(128, 64));
  second_.read(4, memory_.local(56, 8));
  second_.send(5, memory_.local(256, 64));  // two requests may send the same bytes
  poll({.wr_id = 1});
  pair_.read(6, memory_.local(64, 64));
}

TEST_F(CheckedDeathTest, TwoRequestsOfOneBatchReadToTheSameBytes) {
  const auto two = [&](std::size_t second) {
    std::ignore = pair_.post([&](Batch& batch) {
      batch.read(1, OpFlags::kNone, memory_.local(0, 8), Pair::kRemote);
      batch.read(2, OpFlags::kSignaled, memory_.local(second, 8), Pair::kRemote);
    });
  };
  EXPECT_DEATH(two(7), "wr_id 2 .* writes bytes that wr_id 1");
  two(8);
}

TEST_F(CheckedDeathTest, AFencedRequestMaySendWhatAReadBeforeItBrings) {
  const auto read_and_send = [&](OpFlags flags) {
    std::ignore = pair_.post([&](Batch& batch) {
      batch.read(1, OpFlags::kNone, memory_.local(0, 64), Pair::kRemote);
      batch.send(2, OpFlags::kSignaled | flags, memory_.local(56, 8));
    });
  };
  EXPECT_DEATH(read_and_send(OpFlags::kNone), "wr_id 2 .SEND.* sends bytes that wr_id 1 .READ");
  read_and_send(OpFlags::kFenced);
  EXPECT_DEATH(second_.send(3, memory_.local(0, 8), OpFlags::kFenced), "sends bytes that wr_id 1");
}

TEST_F(CheckedDeathTest, InlineBytesAreTheCallersAtOnce) {
  ASSERT_TRUE(pair_.post([&](Batch& batch) {
    batch.send(1, OpFlags::kSignaled, inlined(Bytes(memory_.bytes).first(64)));
  }));
  second_.read(2, memory_.local(0, 64));
  poll({.wr_id = 2, .qp_num = 0x12});
  checked::end(memory_.raw);
}

TEST_F(CheckedDeathTest, AKeyIsUnknownOrOfAnotherDomain) {
  Memory foreign(fabric_.other_pd, 0xCD);
  const auto with_key = [&](std::uint32_t key) {
    return RegisteredSpan::unchecked(MutableBytes(memory_.bytes).first(8), key);
  };
  EXPECT_DEATH(pair_.read(1, with_key(0xEE)), "wr_id 1 .*names the key 0xee, which no region");
  EXPECT_DEATH(pair_.read(1, foreign.local(0, 8)), "0xcd of a region in another protection domain");
  EXPECT_DEATH(pair_.receive(1, foreign.local(0, 8)), "another protection domain");
  pair_.read(1, with_key(0xAB));
  pair_.send(2, RegisteredSpan{});  // no bytes, no key
}

TEST_F(CheckedDeathTest, APieceLiesOutsideItsRegion) {
  const auto beyond = [&](std::size_t length) {
    return RegisteredSpan::unchecked({memory_.bytes.data() + 4000, length}, 0xAB);
  };
  EXPECT_DEATH(pair_.read(1, beyond(97)), "outside the region .* of its key 0xab");
  EXPECT_DEATH(pair_.read(1, RegisteredSpan::unchecked({memory_.bytes.data() - 1, 8}, 0xAB)),
               "outside the region");
  pair_.read(1, beyond(96));
}

TEST_F(CheckedDeathTest, ANumberIsInFlightAlreadyWhereThatIsForbidden) {
  pair_.send(1, memory_.local(0, 8));
  pair_.send(1, memory_.local(0, 8));
  checked::forbid_wr_id_reuse(second_.raw.qp_base);
  second_.send(1, memory_.local(0, 8));
  EXPECT_DEATH(second_.send(1, memory_.local(0, 8)),
               "wr_id 1 .* has the wr_id of wr_id 1 .SEND, queue pair 0x12");
  EXPECT_EQ(second_.receive(1, memory_.local(64, 8)), 0) << "receives are for themselves";
  poll({.wr_id = 1, .opcode = IBV_WC_SEND, .qp_num = 0x12});
  second_.send(1, memory_.local(0, 8));
}

TEST_F(CheckedDeathTest, UnsignaledRequestsFillTheSendQueue) {
  for (std::uint32_t i = 0; i < kSendLength; ++i)
    pair_.send(i, memory_.local(0, 8), OpFlags::kNone);
  EXPECT_DEATH(pair_.send(9, memory_.local(0, 8), OpFlags::kNone),
               "wr_id 9 .* and the 4 before it are unsignaled");
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t i = 1; i < kSendLength; ++i)
      second_.send(i, memory_.local(0, 8), OpFlags::kNone);
    second_.send(kSendLength, memory_.local(0, 8));
    poll({.wr_id = kSendLength, .opcode = IBV_WC_SEND, .qp_num = 0x12});
  }
}

TEST_F(CheckedDeathTest, MoreIsInFlightThanTheCompletionQueueHolds) {
  const auto receive = [&](std::uint64_t i) { return pair_.receive(i, memory_.local(i * 8, 8)); };
  for (std::uint64_t i = 0; i < 8; ++i)
    EXPECT_EQ(receive(i), 0);
  EXPECT_DEATH(receive(8), "its completion queue of 8 entries");
  EXPECT_DEATH(second_.send(9, memory_.local(512, 8)), "its completion queue of 8 entries");
  second_.send(9, memory_.local(512, 8), OpFlags::kNone);
  poll({.wr_id = 0, .opcode = IBV_WC_RECV});
  EXPECT_EQ(receive(8), 0);
  fabric_.queue.cqe = 9;  // resized
  EXPECT_EQ(receive(9), 0);
}

TEST_F(CheckedDeathTest, ABatchIsOpenedWhileAnotherIs) {
  {
    const Opened one(&pair_.raw);
    EXPECT_DEATH(Opened another(&pair_.raw),
                 "a batch is opened while a batch of its queue pair is open");
    ibv_send_wr request{};
    ibv_send_wr* refused = nullptr;
    EXPECT_DEATH(ibv_post_send(&pair_.raw.qp_base, &request, &refused), "a request is posted on");
    EXPECT_DEATH(checked::pair_ends(&pair_.raw.qp_base), "the end of a queue pair");
    const Opened elsewhere(&second_.raw);
  }
  Opened after(&pair_.raw);
  EXPECT_TRUE(std::move(after).submit());
  const Opened last(&pair_.raw);
}

TEST_F(CheckedDeathTest, WhatWasNotPostedIsNotInFlight) {
  {
    Opened dropped(&pair_.raw);
    dropped.read(1, OpFlags::kNone, memory_.local(0, 8), Pair::kRemote);
    dropped.read(1, OpFlags::kNone, memory_.local(0, 8), Pair::kRemote);
  }
  EXPECT_EQ(checked::in_flight(), 0U);
  posts_answer = ENOMEM;
  for (std::uint32_t i = 0; i < 2 * kSendLength; ++i) {
    EXPECT_FALSE(pair_.post(
        [&](Batch& batch) { batch.read(1, OpFlags::kNone, memory_.local(0, 8), Pair::kRemote); }));
  }
  EXPECT_EQ(checked::in_flight(), 0U);
  // A chain whose first request was accepted.
  accepted = 1;
  std::array<ibv_sge, 2> pieces = {memory_.local(0, 8).sge(), memory_.local(8, 8).sge()};
  ibv_recv_wr tail{.wr_id = 2, .next = nullptr, .sg_list = &pieces[1], .num_sge = 1};
  ibv_recv_wr head{.wr_id = 1, .next = &tail, .sg_list = &pieces[0], .num_sge = 1};
  ibv_recv_wr* refused = nullptr;
  EXPECT_EQ(ibv_post_recv(&pair_.raw.qp_base, &head, &refused), ENOMEM);
  EXPECT_EQ(ibv_post_srq_recv(&fabric_.srq, &tail, &refused), ENOMEM);
  EXPECT_EQ(checked::in_flight(), 1U);
  posts_answer = 0;
  pair_.read(3, memory_.local(8, 8));
  EXPECT_DEATH(pair_.read(3, memory_.local(0, 8)), "wr_id 1 .receive");
}

TEST_F(CheckedDeathTest, FailuresEndWhatTheyAreOf) {
  pair_.read(1, memory_.local(0, 8), OpFlags::kNone);
  pair_.read(2, memory_.local(8, 8), OpFlags::kNone);
  EXPECT_EQ(pair_.receive(3, memory_.local(16, 8)), 0);
  poll({.wr_id = 1, .status = IBV_WC_REM_ACCESS_ERR});
  EXPECT_DEATH(checked::end(memory_.raw), "wr_id 2 .READ");
  poll({.wr_id = 2, .status = IBV_WC_WR_FLUSH_ERR});
  EXPECT_DEATH(checked::end(memory_.raw), "wr_id 3 .receive");
  poll({.wr_id = 3, .status = IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(checked::in_flight(), 0U);
}

TEST_F(CheckedDeathTest, SharedReceivesEndInAnyOrder) {
  Pair shared(fabric_, 0x21, &fabric_.srq);
  std::array<ibv_sge, 2> pieces = {memory_.local(0, 8).sge(), memory_.local(8, 8).sge()};
  ibv_recv_wr tail{.wr_id = 2, .next = nullptr, .sg_list = &pieces[1], .num_sge = 1};
  ibv_recv_wr head{.wr_id = 1, .next = &tail, .sg_list = &pieces[0], .num_sge = 1};
  ibv_recv_wr* refused = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(&fabric_.srq, &head, &refused), 0);
  EXPECT_DEATH(pair_.read(3, memory_.local(8, 8)), "wr_id 2 .receive, a shared receive queue");
  poll({.wr_id = 2, .opcode = IBV_WC_RECV, .qp_num = 0x21});
  pair_.read(3, memory_.local(8, 8));
  EXPECT_DEATH(pair_.read(4, memory_.local(0, 8)), "wr_id 1 .receive, a shared receive queue");
  ready.push_back({.wr_id = 1, .opcode = IBV_WC_RECV, .qp_num = 0x21});
  ibv_wc one{};
  EXPECT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(&fabric_.queue), 1, &one), 1) << "the older way to poll";
  pair_.read(4, memory_.local(0, 8));
}

TEST_F(CheckedDeathTest, SharedReceivesOfNoQueuePairLetTheirRegionGo) {
  Memory memory(fabric_.pd, 0xAC);
  ibv_sge piece = memory.local(0, 8).sge();
  ibv_recv_wr one{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* refused = nullptr;
  {
    const Pair shared(fabric_, 0x21, &fabric_.srq);
    ASSERT_EQ(ibv_post_srq_recv(&fabric_.srq, &one, &refused), 0);
    EXPECT_DEATH(checked::end(memory.raw), "ends while wr_id 1 .receive, a shared receive queue");
  }
  checked::end(memory.raw);
}

TEST_F(CheckedDeathTest, OverlapsMayBeAllowedForARegion) {
  Memory sink(fabric_.pd, 0xAC);
  checked::allow_overlaps(sink.raw);
  EXPECT_EQ(pair_.receive(1, sink.local(0, 8)), 0);
  EXPECT_EQ(pair_.receive(2, sink.local(0, 8)), 0);
  EXPECT_DEATH(checked::end(sink.raw), "ends while wr_id 1 .receive");
  checked::pair_resets(&pair_.raw.qp_base);
}

TEST_F(CheckedDeathTest, CompletionsOfStrangersEndNothing) {
  pair_.read(1, memory_.local(0, 8));
  poll({.wr_id = 1, .qp_num = 0x99});
  poll({.wr_id = 5});
  poll({.wr_id = 1, .opcode = IBV_WC_RECV});
  EXPECT_EQ(checked::in_flight(), 1U);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(CheckedDeathTest, TheCpuTouchesWhatTheDeviceIsToWrite) {
  const auto look = [&] {
    return std::to_integer<int>(*const_cast<volatile std::byte*>(&memory_.bytes[64]));
  };
  pair_.read(1, memory_.local(64, 64));
  pair_.send(2, memory_.local(256, 64));
  EXPECT_DEATH(std::ignore = look(), "use-after-poison");
  EXPECT_EQ(__asan_address_is_poisoned(&memory_.bytes[128]), 0);
  EXPECT_EQ(__asan_address_is_poisoned(&memory_.bytes[256]), 0) << "it may be read";
  poll({.wr_id = 1});
  EXPECT_EQ(look(), 0);
}
#endif

}  // namespace
}  // namespace rkv::rdma
