// bench_verbs: the latency of a message, a READ and a WRITE through the verbs library, measured as
// perftest's ib_send_lat, ib_read_lat and ib_write_lat do. Two queue pairs of one device, both
// sides spin, and the result is half of the round trip (READ: all of it).
//
//   send   a message in each direction
//   read   one READ at a time, by the library and by verbs' own functions in turn
//   write  a WRITE in each direction; each side polls the last byte of its memory
//
// Prints one JSON object. Exit status: see program.h.
#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "bench/program.h"
#include "common/clock.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::bench {
namespace {

using namespace rkv::rdma;  // NOLINT(google-build-using-namespace): it is about nothing else

constexpr std::uint32_t kInlineBytes = 220;  // perftest's
constexpr std::uint32_t kDepth = 64;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // a message has less than 2 GiB
constexpr AccessFlags kAccess =
    AccessFlags::kLocalWrite | AccessFlags::kRemoteRead | AccessFlags::kRemoteWrite;

// One side. It sends from and READs into one half of its memory; the peer writes the other half.
struct Side {
  CompletionQueue sends;
  CompletionQueue receives;
  MemoryRegion memory;
  QueuePair qp;
  RemoteSpan peer;
  std::size_t bytes;
  bool inlined;

  RegisteredSpan out() const { return memory.local(0, bytes); }
  RegisteredSpan in() const { return memory.local(memory.size() / 2, bytes); }
  RemoteSpan in_of_peer() const { return *peer.subspan(peer.length / 2, bytes); }

  // Spins for a completion, with a time limit.
  void take(CompletionQueue& queue) const {
    WorkCompletion done;
    for (std::uint64_t spins = 0; spins < kMostSpins; ++spins) {
      const auto found = value_or_give_up("poll", Result<std::size_t>(queue.poll({&done, 1})));
      if (found == 0) continue;
      if (!done.ok()) give_up("completion", wc_error("a work request", done.status));
      return;
    }
    throw std::runtime_error("no completion arrived");
  }
  void post_receive() {
    const ReceiveRequest request{.wr_id = 0, .buffer = in()};
    check("post_receives", qp.post_receives({&request, 1}));
  }
  void send() {
    Batch batch = qp.batch();
    if (inlined) {
      batch.send(0, OpFlags::kSignaled, rdma::inlined(out().bytes()));
    } else {
      batch.send(0, OpFlags::kSignaled, out());
    }
    check("submit", std::move(batch).submit());
  }
  void write() {
    Batch batch = qp.batch();
    if (inlined) {
      batch.write(0, OpFlags::kSignaled, rdma::inlined(out().bytes()), in_of_peer());
    } else {
      batch.write(0, OpFlags::kSignaled, out(), in_of_peer());
    }
    check("submit", std::move(batch).submit());
  }
  void read() {
    Batch batch = qp.batch();
    batch.read(0, OpFlags::kSignaled, out(), in_of_peer());
    check("submit", std::move(batch).submit());
  }
  // Spins until the peer's WRITE has put `value` into the last byte.
  void await(std::byte value) const {
    const std::atomic_ref<std::byte> last(in().bytes().back());
    for (std::uint64_t spins = 0; spins < kMostSpins; ++spins) {
      if (last.load(std::memory_order_acquire) == value) return;
    }
    throw std::runtime_error("no WRITE arrived");
  }

  static void check(const char* what, const Status& status) {
    if (!status) give_up(what, status.error());
  }
  static constexpr std::uint64_t kMostSpins = 1ULL << 32;
};

struct Both {
  Side client;
  Side server;
};

Both connect(std::size_t bytes) {
  if (bytes > kMostBytes) throw Misuse("--bytes must be at most 1073741824");
  const Device device = value_or_give_up("open", Device::open_first_active());
  const auto pd = value_or_give_up("allocate", ProtectionDomain::allocate(device));
  const std::uint8_t port = value_or_give_up("port", device.first_active_port());
  const GidEntry gid = value_or_give_up("gid", device.routable_gid(port));
  const std::uint32_t inline_bytes = bytes <= kInlineBytes ? kInlineBytes : 0;
  const auto queue = [&] {
    return value_or_give_up("queue", CompletionQueue::create(device, {.entries = kDepth}));
  };
  std::array<CompletionQueue, 4> queues = {queue(), queue(), queue(), queue()};
  const auto memory = [&] {
    return value_or_give_up("memory", MemoryRegion::allocate(pd, 2 * bytes, kAccess));
  };
  const auto prepare = [&](const CompletionQueue& sends, const CompletionQueue& receives) {
    return value_or_give_up("create", QueuePair::create(pd, sends, receives,
                                                        {.send_length = kDepth,
                                                         .receive_length = kDepth,
                                                         .inline_bytes = inline_bytes}));
  };
  MemoryRegion ours = memory();
  MemoryRegion theirs = memory();
  auto one = prepare(queues[0], queues[1]);
  auto other = prepare(queues[2], queues[3]);
  const Endpoint a = value_or_give_up("endpoint", one.endpoint(port, gid));
  const Endpoint b = value_or_give_up("endpoint", other.endpoint(port, gid));
  auto client =
      value_or_give_up("handshake", std::move(one).handshake(b, {.remote_access = kAccess}));
  auto server =
      value_or_give_up("handshake", std::move(other).handshake(a, {.remote_access = kAccess}));
  const RemoteSpan to_ours = ours.remote();
  const RemoteSpan to_theirs = theirs.remote();
  return {.client = {std::move(queues[0]), std::move(queues[1]), std::move(ours), std::move(client),
                     to_theirs, bytes, inline_bytes != 0},
          .server = {std::move(queues[2]), std::move(queues[3]), std::move(theirs),
                     std::move(server), to_ours, bytes, inline_bytes != 0}};
}

// Runs `there` on this thread and `back` on another, --iterations times. An exception of either
// thread ends the program, because the peer would wait for it.
template <class There, class Back>
json to_and_fro(const Arguments& given, There there, Back back) {
  Both both = connect(given["bytes"]);
  both.client.post_receive();
  both.server.post_receive();
  const std::uint64_t iterations = given["iterations"];
  std::jthread server([&] {
    for (std::uint64_t i = 0; i < iterations; ++i)
      back(both.server, i);
  });
  Histogram halves;
  for (std::uint64_t i = 0; i < iterations; ++i) {
    const auto begin = Clock::now();
    there(both.client, i);
    halves.record(static_cast<std::uint64_t>((Clock::now() - begin).count() / 2));
  }
  server.join();
  json out = percentiles(halves);
  out["operations"] = 2 * iterations;
  return out;
}

json send(const Arguments& given) {
  // Posts a receive before the message that needs it can have been sent.
  const auto there = [](Side& side, std::uint64_t) {
    side.send();
    side.take(side.sends);
    side.take(side.receives);
    side.post_receive();
  };
  const auto back = [](Side& side, std::uint64_t) {
    side.take(side.receives);
    side.post_receive();
    side.send();
    side.take(side.sends);
  };
  return to_and_fro(given, there, back);
}

json write(const Arguments& given) {
  const auto token = [](std::uint64_t i) { return static_cast<std::byte>(i % 255 + 1); };
  const auto there = [=](Side& side, std::uint64_t i) {
    side.out().bytes().back() = token(i);
    side.write();
    side.await(token(i));
    side.take(side.sends);
  };
  const auto back = [=](Side& side, std::uint64_t i) {
    side.await(token(i));
    side.out().bytes().back() = token(i);
    side.write();
    side.take(side.sends);
  };
  return to_and_fro(given, there, back);
}

// A READ by verbs' own functions, on the queue pair and queue of `side`.
void read_plainly(const Side& side) {
  ibv_sge piece = side.out().sge();
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {.remote_addr = side.in_of_peer().address, .rkey = side.in_of_peer().rkey};
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(side.qp.raw(), &request, &refused) != 0) throw std::runtime_error("post");
  ibv_wc done{};
  while (ibv_poll_cq(side.sends.raw(), 1, &done) == 0) {
  }
  if (done.status != IBV_WC_SUCCESS) throw std::runtime_error("a READ failed");
}

// Both ways in turn, on one queue pair: whatever else the machine does meets both.
json read(const Arguments& given) {
  Both both = connect(given["bytes"]);
  Histogram nanoseconds;
  Histogram plain;
  for (std::uint64_t i = 0; i < given["iterations"]; ++i) {
    timed(nanoseconds, [&] {
      both.client.read();
      both.client.take(both.client.sends);
      return 0;
    });
    timed(plain, [&] {
      read_plainly(both.client);
      return 0;
    });
  }
  json out = percentiles(nanoseconds);
  out["operations"] = given["iterations"];
  out["plain_p50_us"] = percentiles(plain)["p50_us"];
  return out;
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(
      argc, argv,
      {.name = "bench_verbs",
       .purpose = "Latency of a message, READ or WRITE through the verbs library.",
       .flags = {{"bytes", "size of each", 64}, {"iterations", "round trips", 1000}},
       .phases = {
           {"send", rkv::bench::send}, {"read", rkv::bench::read}, {"write", rkv::bench::write}}});
}
