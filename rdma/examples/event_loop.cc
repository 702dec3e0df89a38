// One thread that serves many connections: it sleeps in epoll_wait until some completion queue has
// something, whichever that is, and no wake-up is lost. Eight connections send a few messages each,
// the loop answers.
//
//   event_loop
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kConnections = 8;
constexpr std::uint32_t kMessages = 4;  // of each connection
constexpr std::size_t kBytes = 64;

struct Connection {
  std::size_t id;
  CompletionQueue queue;  // of its server end
  QueuePair server;
  MemoryRegion memory;
  End client;
  std::uint32_t served = 0;
};

struct Loop {
  Device device;
  ProtectionDomain pd;
  CompletionChannel channel;  // one for all queues: one descriptor to wait for
  std::deque<Connection> connections;
  std::uint32_t sleeps = 0;

  Status add(std::size_t id) {
    RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                         CompletionQueue::create(device, {.entries = 64, .channel = &channel}));
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
    connections.push_back({.id = id,
                           .queue = std::move(queue),
                           .server = std::move(both.server),
                           .memory = std::move(memory),
                           .client = {std::move(room), std::move(both.client)}});
    return {};
  }

  // Takes what one connection has. Returns how many completions there were.
  static Result<std::size_t> serve(Connection& connection) {
    std::array<WorkCompletion, 16> done;
    RKV_ASSIGN_OR_RETURN(const std::size_t count, connection.queue.poll(done));
    for (const WorkCompletion& one : std::span(done).first(count)) {
      if (!one.ok()) return std::unexpected(wc_error("receive", one.status));
      if (one.kind == WorkKind::kReceive) ++connection.served;
    }
    return count;
  }

  std::size_t served() const {
    std::size_t sum = 0;
    for (const Connection& connection : connections)
      sum += connection.served;
    return sum;
  }

  // Serves all, and sleeps where nothing is to do. The order is what keeps a wake-up from being
  // lost: arm every queue, look once more, and only then sleep.
  Status run_until(std::size_t wanted, int epoll) {
    while (served() < wanted) {
      std::size_t found = 0;
      for (Connection& connection : connections) {
        RKV_RETURN_IF_ERROR(connection.queue.arm());
        RKV_ASSIGN_OR_RETURN(const std::size_t count, serve(connection));
        found += count;
      }
      if (found != 0) continue;
      ++sleeps;
      epoll_event event{};
      const int ready = epoll_wait(epoll, &event, 1, soon().left_ms());
      if (ready < 0 && errno != EINTR) return verb_error("epoll_wait", errno);
      if (ready == 0) return rkv::fail(rkv::Code::kTimeout, "no message came");
      RKV_RETURN_IF_ERROR(channel.drain());  // all events at once, whichever queues they are of
    }
    return {};
  }
};

Status run() {
  RKV_ASSIGN_OR_RETURN(Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  Loop loop{std::move(device), std::move(pd), std::move(channel), {}};
  for (std::size_t id = 0; id < kConnections; ++id)
    RKV_RETURN_IF_ERROR(loop.add(id));

  // A loop of a real program has its sockets and timers in the same epoll instance.
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  RKV_RETURN_IF_ERROR(from_minus_one("epoll_create1", epoll));
  epoll_event interest{.events = EPOLLIN, .data = {}};
  RKV_RETURN_IF_ERROR(
      from_minus_one("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, loop.channel.fd(), &interest)));

  for (std::uint32_t round = 1; round <= kMessages; ++round) {
    for (Connection& connection : loop.connections) {
      Batch batch = connection.client.qp.batch();
      batch.send_inline(round, OpFlags::kSignaled, rkv::as_bytes("work"));
      RKV_RETURN_IF_ERROR(std::move(batch).submit());
    }
    RKV_RETURN_IF_ERROR(loop.run_until(round * kConnections, epoll));
  }
  ::close(epoll);
  for (const Connection& connection : loop.connections)
    std::printf("connection %zu: %u messages\n", connection.id, connection.served);
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
