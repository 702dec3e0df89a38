// One thread serves many connections. It sleeps in epoll_wait until a completion queue has an
// entry; the event names the queue. No wake-up is lost. Eight connections send a few messages each.
//
//   event_loop
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kConnections = 8;
constexpr std::uint32_t kMessages = 4;  // per connection
constexpr std::size_t kBytes = 64;

// Fields are destroyed from last to first: the queue pair before the memory of its receives.
struct Connection {
  CompletionQueue queue;  // of the connection's server end
  MemoryRegion memory;
  QueuePair server;
  End client;
  std::uint32_t served = 0;
};

struct Loop {
  Device device;
  ProtectionDomain pd;
  CompletionChannel channel;  // one for all queues: one descriptor to wait for
  // Each queue's events contain the address of its element, so an element exists before its queue.
  std::array<std::optional<Connection>, kConnections> connections;
  std::uint32_t served = 0;

  Status add(std::optional<Connection>& place) {
    RKV_ASSIGN_OR_RETURN(
        CompletionQueue queue,
        CompletionQueue::create(device, {.entries = 64, .channel = &channel, .context = &place}));
    RKV_RETURN_IF_ERROR(queue.arm());  // before anything can arrive
    RKV_ASSIGN_OR_RETURN(MemoryRegion memory,
                         MemoryRegion::allocate(pd, kMessages * kBytes, AccessFlags::kLocalWrite));
    RKV_ASSIGN_OR_RETURN(PreparedQueuePair server, QueuePair::create(pd, queue, queue, {}));
    RKV_ASSIGN_OR_RETURN(Room room, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(PreparedQueuePair client,
                         QueuePair::create(pd, room.queue, room.queue, {.inline_bytes = kBytes}));
    RKV_ASSIGN_OR_RETURN(Both both, connect(std::move(client), std::move(server)));
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const ReceiveRequest receive{.wr_id = i, .buffer = memory.local(i * kBytes, kBytes)};
      RKV_RETURN_IF_ERROR(both.server.post_receives({&receive, 1}));
    }
    place.emplace(Connection{.queue = std::move(queue),
                             .memory = std::move(memory),
                             .server = std::move(both.server),
                             .client = {std::move(room), std::move(both.client)}});
    return {};
  }

  // An event reports that a queue has entries, not their number. The queue is first armed and then
  // polled until it is empty. So no wake-up is lost: a later completion raises a new event.
  Status serve(Connection& connection) {
    RKV_RETURN_IF_ERROR(connection.queue.arm());
    for (;;) {
      std::array<WorkCompletion, 16> done;
      RKV_ASSIGN_OR_RETURN(const std::size_t count, connection.queue.poll(done));
      if (count == 0) return {};
      for (const WorkCompletion& one : std::span(done).first(count)) {
        if (!one.ok()) return std::unexpected(wc_error("receive", one.status));
        if (one.kind != WorkKind::kReceive) continue;
        ++connection.served;
        ++served;
      }
    }
  }

  // Serves the queues that have entries until `wanted` messages have arrived. Blocks.
  Status run_until(std::uint32_t wanted, int epoll) {
    while (served < wanted) {
      epoll_event event{};
      const int ready = epoll_wait(epoll, &event, 1, soon().left_ms());
      if (ready < 0 && errno != EINTR) return verb_error("epoll_wait", errno);
      if (ready == 0) return rkv::fail(rkv::Code::kTimeout, "no message came");
      for (;;) {  // until no event is left: the descriptor is edge-triggered
        RKV_ASSIGN_OR_RETURN(const auto of, channel.next_event());
        if (!of) break;
        RKV_RETURN_IF_ERROR(serve(**static_cast<std::optional<Connection>*>(of->context)));
      }
    }
    return {};
  }
};

Status run() {
  RKV_ASSIGN_OR_RETURN(Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  // The loop is not moved from here on: events contain the addresses of its elements.
  Loop loop{std::move(device), std::move(pd), std::move(channel), {}};
  for (std::optional<Connection>& place : loop.connections)
    RKV_RETURN_IF_ERROR(loop.add(place));

  // A real program adds its sockets and timers to the same epoll instance.
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  RKV_RETURN_IF_ERROR(from_minus_one("epoll_create1", epoll));
  epoll_event interest{.events = EPOLLIN | EPOLLET, .data = {}};
  RKV_RETURN_IF_ERROR(
      from_minus_one("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, loop.channel.fd(), &interest)));

  for (std::uint32_t round = 1; round <= kMessages; ++round) {
    for (std::optional<Connection>& connection : loop.connections) {
      Batch batch = connection->client.qp.batch();
      batch.send(round, OpFlags::kSignaled, inlined(rkv::as_bytes("work")));
      RKV_RETURN_IF_ERROR(std::move(batch).submit());
    }
    RKV_RETURN_IF_ERROR(loop.run_until(round * kConnections, epoll));
  }
  ::close(epoll);
  for (std::size_t id = 0; id < kConnections; ++id)
    std::printf("connection %zu: %u messages\n", id, loop.connections[id]->served);
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
