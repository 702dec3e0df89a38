// A shared receive queue: one pool of buffers for the receives of several connections, and the
// event that reports when to refill it.
//
//   srq
#include <rkv/rdma/srq.h>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kClients = 3;
constexpr std::uint32_t kBuffers = 16;
constexpr std::uint32_t kLowWater = 8;
constexpr std::size_t kBytes = 64;

// Shared by all connections of a server: the buffers, their receive queue, and one completion
// queue.
struct Server {
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;
  SharedReceiveQueue srq;

  // wr_id is the buffer's number, so a completion names the buffer of its message.
  Status post(std::uint64_t buffer) {
    const ReceiveRequest request{.wr_id = buffer, .buffer = memory.local(buffer * kBytes, kBytes)};
    return srq.post({&request, 1});
  }
};

Result<Server> make_server(const ProtectionDomain& pd) {
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(pd.device()));
  RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                       CompletionQueue::create(pd.device(), {.channel = &channel}));
  RKV_ASSIGN_OR_RETURN(MemoryRegion memory,
                       MemoryRegion::allocate(pd, kBuffers * kBytes, AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(SharedReceiveQueue srq,
                       SharedReceiveQueue::create(pd, {.length = kBuffers}));
  Server server{std::move(channel), std::move(queue), std::move(memory), std::move(srq)};
  for (std::uint64_t buffer = 0; buffer < kBuffers; ++buffer)
    RKV_RETURN_IF_ERROR(server.post(buffer));
  return server;
}

Status send(End& client, std::string_view text) {
  Batch batch = client.qp.batch();
  batch.send(1, OpFlags::kSignaled, inlined(rkv::as_bytes(text)));
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_RETURN_IF_ERROR(client.queue.wait_one(soon()));
  return {};
}

// Waits for the event; ignores other events of the device.
Status await_limit(const Device& device, const SharedReceiveQueue& srq) {
  for (const Deadline deadline = soon();;) {
    RKV_ASSIGN_OR_RETURN(const std::optional<AsyncEvent> event, device.next_async_event());
    if (event && event->type == IBV_EVENT_SRQ_LIMIT_REACHED && event->object == srq.raw())
      return {};
    if (event) continue;
    RKV_ASSIGN_OR_RETURN(const bool readable, wait_readable(device.async_fd(), deadline));
    if (!readable) return rkv::fail(rkv::Code::kTimeout, "the limit's event did not come");
  }
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(Server server, make_server(pd));
  std::vector<End> clients;
  std::vector<QueuePair> connections;
  for (std::size_t i = 0; i < kClients; ++i) {
    RKV_ASSIGN_OR_RETURN(Room room, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(PreparedQueuePair client,
                         QueuePair::create(pd, room.queue, room.queue, {.inline_bytes = kBytes}));
    RKV_ASSIGN_OR_RETURN(
        PreparedQueuePair connection,
        QueuePair::create(pd, server.queue, server.queue, {.shared = &server.srq}));
    RKV_ASSIGN_OR_RETURN(Both both, connect(std::move(client), std::move(connection)));
    clients.push_back({std::move(room), std::move(both.client)});
    connections.push_back(std::move(both.server));
  }

  // The device raises the event once, when fewer buffers than this are left.
  RKV_RETURN_IF_ERROR(server.srq.arm_limit(kLowWater));
  std::vector<std::uint64_t> used;
  for (std::uint32_t sent = 0; sent <= kBuffers - kLowWater; ++sent) {
    const std::size_t from = sent % kClients;
    RKV_RETURN_IF_ERROR(send(clients[from], "message"));
    RKV_ASSIGN_OR_RETURN(const WorkCompletion done, server.queue.wait_one(soon()));
    if (done.qp_num != connections[from].number()) {
      return rkv::fail(rkv::Code::kInternal, "a message of another connection");
    }
    used.push_back(done.wr_id);
  }
  std::printf("%zu messages of %zu connections out of one pool\n", used.size(), kClients);
  RKV_RETURN_IF_ERROR(await_limit(device, server.srq));
  std::printf("limit reached: fewer than %u buffers left\n", kLowWater);

  // The queue is refilled before the limit is armed: armed below its limit, it would raise the
  // event at the next message.
  for (const std::uint64_t buffer : used)
    RKV_RETURN_IF_ERROR(server.post(buffer));
  RKV_RETURN_IF_ERROR(server.srq.arm_limit(kLowWater));
  std::printf("refilled with %zu\n", used.size());
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
