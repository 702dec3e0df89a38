// A stream as a C program would write it over verbs: SENDs of one size, `depth` of them in flight,
// into kReceivesPerSend times as many receive buffers, which are posted again as soon as they
// complete. No byte is copied, and the received data is not read.
#include <array>
#include <cerrno>
#include <vector>

#include "bench/verbs/streams.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::bench {
namespace {

using namespace rkv::rdma;  // NOLINT(google-build-using-namespace): it is about nothing else

// The library connects; afterwards only verbs' own functions are called.
struct End {
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;
  QueuePair qp;

  ibv_sge piece(std::uint64_t number, const Flow& flow) const {
    const ibv_mr* const region = memory.raw();
    return {.addr = reinterpret_cast<std::uintptr_t>(region->addr) + number * flow.bytes,
            .length = static_cast<std::uint32_t>(flow.bytes),
            .lkey = region->lkey};
  }
  void send(std::uint64_t number, const Flow& flow) const {
    ibv_sge from = piece(number % flow.depth, flow);
    ibv_send_wr request{};
    request.wr_id = number;
    request.sg_list = &from;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    must("post", from_errno("ibv_post_send", ibv_post_send(qp.raw(), &request, &bad)));
  }
  void receive(std::uint64_t number, const Flow& flow) const {
    ibv_sge to = piece(number, flow);
    ibv_recv_wr request{};
    request.wr_id = number;
    request.sg_list = &to;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    must("post", from_errno("ibv_post_recv", ibv_post_recv(qp.raw(), &request, &bad)));
  }
  std::span<const ibv_wc> poll(std::array<ibv_wc, 16>& out) const {
    const int count = ibv_poll_cq(queue.raw(), static_cast<int>(out.size()), out.data());
    if (count < 0) throw std::runtime_error("ibv_poll_cq");
    for (const ibv_wc& one : std::span(out).first(static_cast<std::size_t>(count)))
      if (one.status != IBV_WC_SUCCESS) give_up("completion", wc_error("message", one.status));
    return std::span(out).first(static_cast<std::size_t>(count));
  }
  // Arms and polls once more; blocks if that poll finds nothing.
  std::span<const ibv_wc> poll_or_sleep(std::array<ibv_wc, 16>& out) const {
    must("arm", from_errno("ibv_req_notify_cq", ibv_req_notify_cq(queue.raw(), 0)));
    if (const auto found = poll(out); !found.empty()) return found;
    if (!value_or_give_up("poll", wait_readable(channel.fd(), no_longer())))
      throw std::runtime_error("no completion arrived");
    ibv_cq* of = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel.raw(), &of, &context) == 0) {
      ibv_ack_cq_events(of, 1);
    } else if (errno != EAGAIN) {
      give_up("event", verb_error("ibv_get_cq_event", errno).error());
    }
    return {};
  }
};

struct Both {
  End writer;
  End reader;
};

Both connect(const Flow& flow) {
  const Device device = value_or_give_up("open", Device::open_first_active());
  const auto pd = value_or_give_up("allocate", ProtectionDomain::allocate(device));
  const std::uint8_t port = value_or_give_up("port", device.first_active_port());
  const GidEntry gid = value_or_give_up("gid", device.routable_gid(port));
  const std::uint32_t receives = flow.depth * kReceivesPerSend;
  auto events = [&] { return value_or_give_up("channel", CompletionChannel::create(device)); };
  std::array<CompletionChannel, 2> channels = {events(), events()};
  auto queue = [&](CompletionChannel& channel) {
    return value_or_give_up(
        "queue", CompletionQueue::create(device, {.entries = receives, .channel = &channel}));
  };
  std::array<CompletionQueue, 2> queues = {queue(channels[0]), queue(channels[1])};
  auto prepare = [&](const CompletionQueue& of) {
    return value_or_give_up(
        "create",
        QueuePair::create(pd, of, of, {.send_length = flow.depth, .receive_length = receives}));
  };
  auto one = prepare(queues[0]);
  auto other = prepare(queues[1]);
  const Endpoint a = value_or_give_up("endpoint", one.endpoint(port, gid));
  const Endpoint b = value_or_give_up("endpoint", other.endpoint(port, gid));
  auto memory = [&](std::uint64_t buffers) {
    return value_or_give_up(
        "memory", MemoryRegion::allocate(pd, buffers * flow.bytes, AccessFlags::kLocalWrite));
  };
  return {
      .writer = {std::move(channels[0]), std::move(queues[0]), memory(flow.depth),
                 value_or_give_up("handshake", std::move(one).handshake(b))},
      .reader = {std::move(channels[1]), std::move(queues[1]), memory(receives),
                 value_or_give_up("handshake", std::move(other).handshake(a))},
  };
}

// Calls take(completion) for each of `count` completions, and go_on() before each poll.
template <class GoOn, class Take>
Moved until(std::uint64_t count, const End& end, GoOn go_on, Take take) {
  Moved moved;
  AdaptiveWait policy({});
  std::array<ibv_wc, 16> out;
  while (moved.calls != count) {
    go_on(moved.calls);
    std::span<const ibv_wc> found = end.poll(out);
    if (found.empty()) {
      pause(policy, moved, [&] { found = end.poll_or_sleep(out); });
    } else {
      policy.hit();
    }
    for (const ibv_wc& one : found)
      moved.bytes += take(one);
    moved.calls += found.size();
  }
  return moved;
}

}  // namespace

json raw(const Flow& flow) {
  Both both = connect(flow);
  const std::uint64_t count = flow.total / flow.bytes;
  for (std::uint32_t i = 0; i < flow.depth * kReceivesPerSend; ++i)
    both.reader.receive(i, flow);
  return move(
      [&] {
        std::uint64_t posted = 0;
        return until(
            count, both.writer,
            [&](std::uint64_t done) {
              while (posted != count && posted - done != flow.depth)
                both.writer.send(posted++, flow);
            },
            [&](const ibv_wc&) { return flow.bytes; });
      },
      [&] {
        return until(
            count, both.reader, [](std::uint64_t) {},
            [&](const ibv_wc& one) {
              both.reader.receive(one.wr_id, flow);
              return std::uint64_t{one.byte_len};
            });
      });
}

}  // namespace rkv::bench
