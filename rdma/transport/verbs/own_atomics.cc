#include "rdma/transport/verbs/own_atomics.h"

#include <array>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "rdma/transport/verbs/fail_fast.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma::verbs {
namespace {

constexpr std::int64_t kPatienceMs = 2000;  // the device completes its own atomics in microseconds
static_assert(kPatienceMs > kStuckMs);
constexpr int kSpins = 2000;

// A queue pair connected to itself, with its completion queue. Recreated after an error.
class Loopback {
 public:
  static Result<Loopback> create(const Shared& shared) {
    RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(shared.device));
    RKV_ASSIGN_OR_RETURN(
        CompletionQueue queue,
        CompletionQueue::create(shared.device, {.entries = 8, .channel = &channel}));
    RKV_ASSIGN_OR_RETURN(
        PreparedQueuePair prepared,
        QueuePair::create(shared.pd, queue, queue, {.send_length = 4, .receive_length = 1}));
    RKV_ASSIGN_OR_RETURN(const Endpoint self, prepared.endpoint(shared.port, shared.gid,
                                                                {.initiator = 1, .responder = 1}));
    RKV_ASSIGN_OR_RETURN(QueuePair pair, std::move(prepared).handshake(
                                             self, {.remote_access = AccessFlags::kRemoteAtomic}));
    return Loopback(std::move(channel), std::move(queue), std::move(pair));
  }

  template <class Post>
  Status run(Post post) {
    Batch batch = pair_.batch();
    post(batch);
    RKV_RETURN_IF_ERROR(std::move(batch).submit());
    RKV_ASSIGN_OR_RETURN(const WorkCompletion done, wait());
    if (done.ok()) return {};
    return fail(Code::kInternal,
                "the device refused an atomic operation on the server's own memory");
  }

 private:
  Loopback(CompletionChannel channel, CompletionQueue queue, QueuePair pair)
      : channel_(std::move(channel)), queue_(std::move(queue)), pair_(std::move(pair)) {}

  // Spins first: the completion usually arrives before a sleep would pay off.
  Result<WorkCompletion> wait() {
    std::array<WorkCompletion, 1> done;
    for (int i = 0; i < kSpins; ++i) {
      RKV_ASSIGN_OR_RETURN(const std::size_t count, queue_.poll(done));
      if (count != 0) return done[0];
    }
    const SteadyClock clock;
    RKV_ASSIGN_OR_RETURN(const std::size_t count,
                         queue_.wait(done, Deadline::after_ms(clock, kPatienceMs)));
    if (count != 0) return done[0];
    return fail(Code::kInternal,
                "the device did not answer an atomic operation on the server's own memory");
  }

  CompletionChannel channel_;  // members are destroyed in reverse order
  CompletionQueue queue_;
  QueuePair pair_;
};

// REQUIRES: one call at a time.
class OwnAtomics final : public Atomics {
 public:
  OwnAtomics(std::shared_ptr<const Shared> shared, const Region& region, MemoryRegion old_value,
             Loopback loopback)
      : shared_(std::move(shared)),
        region_(region),
        old_value_(std::move(old_value)),
        loopback_(std::move(loopback)) {}

  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return run(word, [&](Batch& batch, const RegisteredSpan& old, const RemoteSpan& remote) {
      batch.fetch_add(1, OpFlags::kSignaled, old, remote, addend);
    });
  }

  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    return run(word, [&](Batch& batch, const RegisteredSpan& old, const RemoteSpan& remote) {
      batch.compare_swap(1, OpFlags::kSignaled, old, remote, expected, desired);
    });
  }

 private:
  template <class Post>
  Result<std::uint64_t> run(std::uint64_t* word, Post post) {
    const auto offset = reinterpret_cast<std::uint64_t>(word) - region_.address();
    const auto remote = RemoteSpan{.address = region_.address(),
                                   .length = region_.bytes().size(),
                                   .rkey = region_.remote_key()}
                            .subspan(offset, sizeof *word);
    RKV_CHECK(remote && offset % sizeof *word == 0,
              "the word lies outside the region of these atomics");
    if (!loopback_) {
      RKV_ASSIGN_OR_RETURN(loopback_, Loopback::create(*shared_));
    }
    const RegisteredSpan old = old_value_.local(0, sizeof *word);
    const Status done = loopback_->run([&](Batch& batch) { post(batch, old, *remote); });
    if (!done) {
      loopback_.reset();
      return std::unexpected(done.error());
    }
    return load_le<std::uint64_t>(old.bytes().data());
  }

  const std::shared_ptr<const Shared> shared_;
  const Region& region_;
  MemoryRegion old_value_;
  std::optional<Loopback> loopback_;
};

}  // namespace

Result<std::unique_ptr<Atomics>> create_own_atomics(std::shared_ptr<const Shared> shared,
                                                    const Region& region) {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes device, shared->device.attributes());
  if (device.atomics == AtomicScope::kNone) {
    return fail(Code::kUnsupported, "the device has no atomic operations");
  }
  RKV_ASSIGN_OR_RETURN(
      MemoryRegion old_value,
      MemoryRegion::allocate(shared->pd, sizeof(std::uint64_t), AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(Loopback loopback, Loopback::create(*shared));
  static const SteadyClock clock;
  return fail_fast(std::make_unique<OwnAtomics>(std::move(shared), region, std::move(old_value),
                                                std::move(loopback)),
                   clock);
}

}  // namespace rkv::rdma::verbs
