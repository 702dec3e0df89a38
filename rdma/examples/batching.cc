// Doorbell batching: many requests start with one doorbell and end with one completion. A batch
// that is not submitted has no effect.
//
//   batching
#include <rkv/rdma/queue_pair.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

using namespace rkv::rdma;
using rkv::Deadline;
using rkv::Status;
using namespace std::chrono_literals;

constexpr std::uint32_t kReads = 32;
constexpr std::size_t kBytes = 64;
constexpr AccessFlags kOpen = AccessFlags::kRemoteRead | AccessFlags::kRemoteWrite;

// Requests of one queue pair complete in order, so the completion of the last covers all. Only a
// completion frees slots of the send queue: signal at least one request in send_length.
Status read_all(QueuePair& qp, CompletionQueue& queue, const MemoryRegion& ours,
                const MemoryRegion& theirs) {
  Batch batch = qp.batch();
  for (std::uint32_t i = 0; i < kReads; ++i) {
    const OpFlags flags = i + 1 == kReads ? OpFlags::kSignaled : OpFlags::kNone;
    batch.read(i, flags, ours.local(i * kBytes, kBytes),
               *theirs.remote().subspan(i * kBytes, kBytes));
  }
  const std::uint32_t posted = batch.count();
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_ASSIGN_OR_RETURN(const WorkCompletion done, queue.wait_one(Deadline::in(5s)));
  const bool same = std::memcmp(ours.bytes().data(), theirs.bytes().data(), kReads * kBytes) == 0;
  std::printf("%u READs, 1 doorbell, 1 completion (of request %llu): %s\n", posted,
              static_cast<unsigned long long>(done.wr_id), same ? "all bytes there" : "bytes lost");
  return {};
}

// A batch that is destroyed without submit() posts nothing. So a function may return early.
Status give_up(QueuePair& qp, CompletionQueue& queue, const MemoryRegion& ours) {
  {
    Batch batch = qp.batch();
    batch.send(1, OpFlags::kSignaled, ours.first(8));
  }  // dropped
  std::array<WorkCompletion, 1> none;
  RKV_ASSIGN_OR_RETURN(const std::size_t count, queue.poll(none));
  std::printf("a dropped batch: %zu completions\n", count);
  return {};
}

// A WRITE of two pieces and the message that announces it. Requests of one queue pair arrive in the
// order of posting. Inline bytes are copied at once, from memory that need not be registered.
Status write_then_announce(QueuePair& qp, QueuePair& peer, CompletionQueue& queue,
                           const MemoryRegion& ours, const MemoryRegion& theirs) {
  RKV_RETURN_IF_ERROR(peer.post_receive(1, theirs.local(4096, 64)));
  std::memcpy(ours.bytes().data(), "a ...record", 11);
  Batch batch = qp.batch();
  batch.write(2, OpFlags::kNone, {ours.first(2), ours.local(5, 6)},
              *theirs.remote().subspan(8192, 8));
  batch.op(3).signaled().immediate(8192).send(inlined(rkv::as_bytes("a record is there")));
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  std::array<WorkCompletion, 2> done;  // of the message, on both sides
  RKV_RETURN_IF_ERROR(queue.wait_all(done, Deadline::in(5s)));
  const WorkCompletion& got = done[0].kind == WorkKind::kReceive ? done[0] : done[1];
  std::printf("the message with %u found \"%.8s\"\n", got.immediate,
              reinterpret_cast<const char*>(theirs.bytes().data() + got.immediate));
  return {};
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(CompletionQueue queue, CompletionQueue::create(device, {}));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion ours,
                       MemoryRegion::allocate(pd, 65536, AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion theirs,
                       MemoryRegion::allocate(pd, 65536, AccessFlags::kLocalWrite | kOpen));
  std::memset(theirs.bytes().data(), 'x', kReads * kBytes);
  const QueuePairOptions options{.send_length = kReads, .send_sge = 2, .inline_bytes = 64};
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair one, QueuePair::create(pd, queue, queue, options));
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair other, QueuePair::create(pd, queue, queue, options));
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, device.first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, device.routable_gid(port));
  RKV_ASSIGN_OR_RETURN(const Endpoint a, one.endpoint(port, gid));
  RKV_ASSIGN_OR_RETURN(const Endpoint b, other.endpoint(port, gid));
  RKV_ASSIGN_OR_RETURN(QueuePair qp, std::move(one).handshake(b));
  RKV_ASSIGN_OR_RETURN(QueuePair peer, std::move(other).handshake(a, {.remote_access = kOpen}));
  RKV_RETURN_IF_ERROR(read_all(qp, queue, ours, theirs));
  RKV_RETURN_IF_ERROR(give_up(qp, queue, ours));
  return write_then_announce(qp, peer, queue, ours, theirs);
}

int main() {
  const Status done = run();
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
