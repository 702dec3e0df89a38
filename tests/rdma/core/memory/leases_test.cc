// Leases: a peer's access ends when it is revoked, with windows and registrations, and under load.
#include <atomic>
#include <functional>
#include <thread>

#include "rkv/rdma/lease.h"
#include "tests/rdma/support/windows.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

class Leases : public ::testing::TestWithParam<LeasePolicy> {
 protected:
  Leases() : loop(with_windows()), lessor(make(GetParam())) {}
  Lessor make(LeasePolicy policy) {
    return need(Lessor::create(loop.pd, *loop.server.qp, loop.server.queue, loop.server.memory,
                               {.policy = policy, .others = [this](const WorkCompletion& one) {
                                  foreign.push_back(one.wr_id);
                                }}));
  }
  bool by_windows() const { return GetParam() == LeasePolicy::kRequireWindows; }

  Loopback loop;
  std::vector<std::uint64_t> foreign;
  Lessor lessor;
};

TEST_P(Leases, OpenAPieceUntilTheyAreRevoked) {
  EXPECT_EQ(lessor.uses_windows(), by_windows());
  store_le<std::uint64_t>(loop.server.at(4096), 4711);
  Lease lease = need(lessor.grant({.offset = 4096, .length = 64}, soon()));
  EXPECT_TRUE(lease.live());
  EXPECT_EQ(lease.is_window(), by_windows());
  const RemoteSpan key = lease.remote();
  EXPECT_EQ(key.length, 64U);
  ASSERT_TRUE(read(loop, *key.first(8)).ok());
  EXPECT_EQ(loop.client.word(0), 4711U);
  need(lessor.revoke(lease, soon()));
  EXPECT_FALSE(lease.live());
  EXPECT_EQ(lease.remote().length, 0U);
  need(lessor.revoke(lease, soon()));  // again: no effect
  expect_refused(loop, *key.first(8));
}

TEST_P(Leases, GiveNoRightThatWasNotGranted) {
  const Lease lease = need(lessor.grant({.offset = 0, .length = 64}, soon()));
  const WorkCompletion done = run(loop.client, [&](Batch& batch) {
    batch.write(3, OpFlags::kSignaled, loop.client.memory.local(0, 8), *lease.remote().first(8));
  });
  EXPECT_EQ(explain(done.status).kind, WcClass::kRemoteRefused);
}

TEST_P(Leases, RotateToAnotherKeyWhenTheyExpire) {
  const SteadyClock clock;
  Lease lease = need(lessor.grant(
      {.offset = 0, .length = 64, .expires_at = clock.now() + kNanosPerSecond}, soon()));
  EXPECT_FALSE(lease.expired(clock.now()));
  EXPECT_TRUE(lease.expired(clock.now() + 2 * kNanosPerSecond));
  std::vector<std::uint32_t> keys = {lease.remote().rkey};
  const RemoteSpan first = lease.remote();
  for (int i = 0; i < 10; ++i) {
    need(lessor.rotate(lease, clock.now() + 3600 * kNanosPerSecond, soon()));
    EXPECT_EQ(std::ranges::count(keys, lease.remote().rkey), 0);
    keys.push_back(lease.remote().rkey);
  }
  EXPECT_FALSE(lease.expired(clock.now()));
  ASSERT_TRUE(read(loop, *lease.remote().first(8)).ok());
  expect_refused(loop, *first.first(8));
}

// One byte of a key is a counter: no key of an ended lease may come back when the counter wraps.
TEST_P(Leases, NeverHandOutAnOldKeyAgainWhileCounting) {
  std::vector<std::uint32_t> keys;
  Lease lease = need(lessor.grant({.offset = 0, .length = 64}, soon()));
  for (int i = 0; i < 300; ++i) {
    keys.push_back(lease.remote().rkey);
    need(lessor.rotate(lease, std::nullopt, soon()));
    ASSERT_NE(lease.remote().rkey, keys.back());
  }
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  // Registrations: the device chooses among 256 keys for each of its places, in turn.
  if (by_windows()) {
    EXPECT_EQ(twice, keys.end());
  }
}

// On devices where a peer could halt the machine this way.
TEST_P(Leases, KeepAnUnboundWindowOnlyWhereThatIsSafe) {
  Lease lease = need(lessor.grant({.offset = 0, .length = 64}, soon()));
  EXPECT_EQ(lessor.spare_windows(), 0U);
  need(lessor.revoke(lease, soon()));
  const bool safe = need(window_support(loop.device)).trustworthy;
  EXPECT_EQ(lessor.spare_windows(), by_windows() && safe ? 1U : 0U);
}

TEST_P(Leases, EndWithTheirHandle) {
  RemoteSpan key;
  {
    const Lease lease = need(lessor.grant({.offset = 0, .length = 64}, soon()));
    key = lease.remote();
    ASSERT_TRUE(read(loop, *key.first(8)).ok());
  }
  expect_refused(loop, *key.first(8));
}

TEST_P(Leases, AreRevokedAlsoWhenTheConnectionIsGone) {
  Lease lease = need(lessor.grant({.offset = 0, .length = 64}, soon()));
  need(loop.server.qp->to_error());
  need(lessor.revoke(lease, soon()));
  EXPECT_FALSE(lease.live());
  // A window is bound by the queue pair; a registration needs no connection.
  EXPECT_EQ(lessor.grant({.offset = 0, .length = 64}, soon()).has_value(), !by_windows());
  // Nothing refers to the region any more.
  EXPECT_TRUE(loop.server.memory.deregister());
}

TEST_P(Leases, HandOnTheCompletionsOfOthers) {
  const ReceiveRequest receive{.wr_id = 9, .buffer = loop.client.memory.local(8192, 64)};
  need(loop.client.qp->post_receives({&receive, 1}));
  Batch batch = loop.server.qp->batch();
  batch.send(1234, OpFlags::kSignaled, loop.server.memory.local(0, 8));
  need(std::move(batch).submit());
  Lease lease = need(lessor.grant({.offset = 0, .length = 64}, soon()));
  need(lessor.revoke(lease, soon()));
  if (by_windows()) {
    EXPECT_EQ(foreign, std::vector<std::uint64_t>{1234});
  } else {
    EXPECT_EQ(loop.server.completion().wr_id, 1234U);  // this call did not wait
  }
}

TEST_P(Leases, TermsOutsideTheRegionOrItsRightsAreRefused) {
  const std::size_t size = loop.server.memory.size();
  const auto code = [&](const LeaseTerms& terms) {
    return lessor.grant(terms, soon()).error().code;
  };
  EXPECT_EQ(code({.offset = 0, .length = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.offset = size, .length = 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.offset = 1, .length = ~std::size_t{0}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.offset = 0, .length = 8, .access = AccessFlags::kNone}), Code::kInvalidArgument);
  EXPECT_EQ(code({.offset = 0, .length = 8, .access = AccessFlags::kLocalWrite}),
            Code::kInvalidArgument);
}

// A client READs in a loop, with several READs of several packets outstanding; it keeps the last
// result.
class Reader {
 public:
  Reader(Loopback& loop, const RemoteSpan& from)
      : thread_([this, &loop, from] { work(loop, from); }) {}
  // Waits for at least this many READs after the call. If that is more than are outstanding at a
  // time, one of them began after the call too.
  void wait_for_reads(std::uint64_t more) const {
    const std::uint64_t count = reads_.load() + more;
    while (reads_.load() < count && !ended_.load())
      std::this_thread::yield();
  }
  void revoked() { revoked_.store(true); }
  void stop() { stop_.store(true); }
  void join() { thread_.join(); }

  ibv_wc_status status = IBV_WC_SUCCESS;  // of the READ that ended the loop
  bool saw_later_bytes = false;
  bool read_after_revoke = false;  // a READ that was posted after revoke() returned succeeded

 private:
  static constexpr std::size_t kAtATime = 4;

  void work(Loopback& loop, const RemoteSpan& from) {
    while (!stop_.load()) {
      const bool late = revoked_.load();
      Batch batch = loop.client.qp->batch();
      for (std::size_t i = 0; i < kAtATime; ++i)
        batch.read(i, OpFlags::kSignaled, loop.client.memory.local(i * from.length, from.length),
                   from);
      need(std::move(batch).submit());
      for (const WorkCompletion& one : loop.client.completions(kAtATime)) {
        if (!one.ok()) {
          if (status == IBV_WC_SUCCESS) status = one.status;
          continue;
        }
        ++reads_;
        read_after_revoke |= late;
        const auto got = loop.client.memory.bytes().subspan(one.wr_id * from.length, from.length);
        saw_later_bytes |= std::ranges::count(got, std::byte{'B'}) != 0;
      }
      if (status != IBV_WC_SUCCESS) break;
    }
    ended_.store(true);
  }

  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> revoked_ = false;
  std::atomic<bool> stop_ = false;
  std::jthread thread_;
};

TEST_P(Leases, UnderLoadNoLaterByteLeavesAfterTheRevoke) {
  constexpr std::size_t kLength = 16'384;
  const auto memory = loop.server.memory.bytes().first(kLength);
  std::ranges::fill(memory, std::byte{'A'});
  Lease lease = need(lessor.grant({.offset = 0, .length = kLength}, soon()));
  Reader reader(loop, lease.remote());
  reader.wait_for_reads(100);
  need(lessor.revoke(lease, soon()));
  std::ranges::fill(memory, std::byte{'B'});
  reader.revoked();
  reader.join();
  // SoftRoCE aborts a READ in progress without an answer.
  const WcClass kind = explain(reader.status).kind;
  EXPECT_TRUE(kind == WcClass::kRemoteRefused || kind == WcClass::kPeerUnreachable)
      << reader.status;
  EXPECT_FALSE(reader.read_after_revoke);
  // SoftRoCE does not wait for a packet that is being copied when a window ends; the end of a
  // registration waits: see LeasePolicy::kRequireWindows.
  if (!by_windows() || need(window_support(loop.device)).trustworthy) {
    EXPECT_FALSE(reader.saw_later_bytes);
  }
}

// The reader above can detect a violation.
TEST_P(Leases, UnderLoadLaterBytesAreSeenWithoutARevoke) {
  const auto memory = loop.server.memory.bytes().first(16'384);
  std::ranges::fill(memory, std::byte{'A'});
  const Lease lease = need(lessor.grant({.offset = 0, .length = 16'384}, soon()));
  Reader reader(loop, lease.remote());
  reader.wait_for_reads(100);
  std::ranges::fill(memory, std::byte{'B'});
  reader.revoked();
  reader.wait_for_reads(100);
  reader.stop();
  reader.join();
  EXPECT_EQ(reader.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(reader.saw_later_bytes);
  EXPECT_TRUE(reader.read_after_revoke);
}

INSTANTIATE_TEST_SUITE_P(ByWindowsAndRegistrations, Leases,
                         ::testing::Values(LeasePolicy::kRequireWindows,
                                           LeasePolicy::kDisableWindows),
                         [](const auto& instance) {
                           return instance.param == LeasePolicy::kRequireWindows
                                      ? std::string("Windows")
                                      : std::string("Registrations");
                         });

TEST(LeasePolicies, ChooseWhatKeepsPeersInside) {
  Loopback loop(with_windows());
  const auto create = [&](LeasePolicy policy, std::function<void(const WorkCompletion&)> others) {
    return Lessor::create(loop.pd, *loop.server.qp, loop.server.queue, loop.server.memory,
                          {.policy = policy, .others = std::move(others)});
  };
  const auto nobody = [](const WorkCompletion&) {};
  const bool trustworthy = need(window_support(loop.device)).trustworthy;
  EXPECT_EQ(need(create(LeasePolicy::kAuto, nobody)).uses_windows(), trustworthy);
  EXPECT_EQ(create(LeasePolicy::kAuto, nullptr).error().code, Code::kInvalidArgument);
  const auto closed = need(MemoryRegion::allocate(loop.pd, 64, AccessFlags::kLocalWrite));
  EXPECT_EQ(Lessor::create(loop.pd, *loop.server.qp, loop.server.queue, closed,
                           {.policy = LeasePolicy::kRequireWindows, .others = nobody})
                .error()
                .code,
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace rkv::rdma
