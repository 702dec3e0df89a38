// From a device to a completion, step by step: two queue pairs of one device, connected to each
// other, a message between them, then a WRITE and a READ of the other's memory.
//
//   loopback
#include <rkv/rdma/queue_pair.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

namespace {

using namespace rkv::rdma;
using rkv::Deadline;

constexpr auto kPatience = std::chrono::seconds(5);

void copy(std::string_view text, const RegisteredSpan& to) {
  std::ranges::copy(rkv::as_bytes(text), to.bytes().begin());
}

rkv::Status run() {
  // A device, a protection domain for objects that are used together, and a completion queue.
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                       CompletionQueue::create(device, {.channel = &channel}));

  // Memory that the device may access. The peer's rights are set here, and again when the queue
  // pair is connected.
  RKV_ASSIGN_OR_RETURN(const MemoryRegion ours,
                       MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion theirs,
                       MemoryRegion::allocate(pd, 4096,
                                              AccessFlags::kLocalWrite | AccessFlags::kRemoteRead |
                                                  AccessFlags::kRemoteWrite));

  // Two queue pairs. Two programs would exchange their endpoints, by any means.
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair prepared, QueuePair::create(pd, queue, queue, {}));
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair other, QueuePair::create(pd, queue, queue, {}));
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, device.first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, device.routable_gid(port));
  RKV_ASSIGN_OR_RETURN(const Endpoint a, prepared.endpoint(port, gid));
  RKV_ASSIGN_OR_RETURN(const Endpoint b, other.endpoint(port, gid));
  // A connected queue pair has another type, which can post work.
  RKV_ASSIGN_OR_RETURN(QueuePair client, std::move(prepared).handshake(b));
  RKV_ASSIGN_OR_RETURN(QueuePair server,
                       std::move(other).handshake(a, {.remote_access = AccessFlags::kRemoteRead |
                                                                       AccessFlags::kRemoteWrite}));

  // A SEND consumes a receive, which the other side must have posted before.
  const ReceiveRequest receive{.wr_id = 1, .buffer = theirs.local(0, 64)};
  RKV_RETURN_IF_ERROR(server.post_receives({&receive, 1}));
  copy("hello", ours.local());
  Batch message = client.batch();
  message.send(2, OpFlags::kSignaled, ours.local(0, 5));
  RKV_RETURN_IF_ERROR(std::move(message).submit());
  // A request's failure is reported here, not when it is posted. The completions of the SEND and of
  // the receive arrive in either order: both sides share one completion queue here.
  RKV_RETURN_IF_ERROR(queue.wait_one(Deadline::in(kPatience), "message"));
  RKV_RETURN_IF_ERROR(queue.wait_one(Deadline::in(kPatience), "message"));
  std::printf("received: %.5s\n", reinterpret_cast<const char*>(theirs.bytes().data()));

  // The peer's processor is not involved in a WRITE or a READ.
  copy("written", ours.local());
  const RemoteSpan remote = theirs.remote();  // 20 bytes on the wire: RemoteSpan::to_bytes()
  Batch both = client.batch();
  both.write(3, OpFlags::kNone, ours.local(0, 7), *remote.subspan(1024, 7));
  both.read(4, OpFlags::kSignaled, ours.local(2048, 7), *remote.subspan(1024, 7));
  RKV_RETURN_IF_ERROR(std::move(both).submit());
  RKV_RETURN_IF_ERROR(queue.wait_one(Deadline::in(kPatience), "WRITE and READ"));
  std::printf("read back: %.7s\n", reinterpret_cast<const char*>(ours.bytes().data() + 2048));
  return {};
}

}  // namespace

int main() {
  const rkv::Status done = run();
  if (!done) std::fprintf(stderr, "%s\n", rkv::to_string(done.error()).c_str());
  return done ? 0 : 1;
}
