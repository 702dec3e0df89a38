// bench_verbs_streams: the one-way throughput of a stream of the verbs library over each of its
// transports, and of its comparisons.
//
//   send_receive, credit_ring   Stream over these, on the first active device, or on the one of
//                               --address
//   memory                      Stream over memory: its cost without a device
//   raw                         SENDs by verbs' own functions: raw.cc
//   tcp                         TCP over loopback: tcp.cc
//
// One thread writes --bytes at a time until --total bytes are written; another reads up to as many
// at a time. Both wait adaptively, TCP in the kernel. Prints one JSON object, in which bytes_sent
// and bytes_received must be equal. Exit status: see program.h.
#include <algorithm>
#include <bit>
#include <future>
#include <vector>

#include "bench/verbs/streams.h"
#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/memory_transport.h"
#include "rkv/rdma/message/send_receive.h"
#include "rkv/rdma/message/stream.h"

namespace rkv::bench {
namespace {

using namespace rkv::rdma;  // NOLINT(google-build-using-namespace): it is about nothing else

// With these limits a ring has its maximum size.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostDepth = 128;

Flow flow_of(const Arguments& given) {
  if (given["bytes"] > kMostBytes || given["depth"] > kMostDepth)
    throw Misuse("--bytes must be at most 1048576, --depth at most 128");
  const Flow flow{.bytes = given["bytes"],
                  .total = given["total"],
                  .depth = static_cast<std::uint32_t>(given["depth"])};
  if (flow.total % flow.bytes != 0) throw Misuse("--total must be a multiple of --bytes");
  return flow;
}

template <class T>
void sleep_for(Stream<T>& stream, Interest interest) {
  if (!value_or_give_up("arm", stream.arm(interest))) return;
  if (!value_or_give_up("wait", wait_readable(stream.fd(), no_longer())))
    throw std::runtime_error("the stream is stuck");
}

template <class T>
Moved write_all(Stream<T>& stream, const Flow& flow) {
  Moved moved;
  AdaptiveWait policy({});
  const std::vector<std::byte> from(flow.bytes, std::byte{'w'});
  while (moved.bytes != flow.total) {
    const Bytes rest = Bytes(from).first(std::min(flow.bytes, flow.total - moved.bytes));
    if (const auto count = value_or_give_up("write", stream.try_write(rest))) {
      moved.bytes += *count;
      ++moved.calls;
      policy.hit();
    } else {
      pause(policy, moved, [&] { sleep_for(stream, Interest::kRoom); });
    }
  }
  while (!value_or_give_up("shutdown", stream.try_shutdown()))
    pause(policy, moved, [&] { sleep_for(stream, Interest::kSent); });
  return moved;
}

template <class T>
Moved read_all(Stream<T>& stream, const Flow& flow) {
  Moved moved;
  AdaptiveWait policy({});
  std::vector<std::byte> to(flow.bytes);
  for (;;) {
    if (const auto count = value_or_give_up("read", stream.try_read(to))) {
      if (*count == 0) return moved;
      moved.bytes += *count;
      ++moved.calls;
      policy.hit();
    } else {
      pause(policy, moved, [&] { sleep_for(stream, Interest::kMessages); });
    }
  }
}

template <class T>
json move_stream(T writes, T reads, const Flow& flow) {
  Stream<T> writer(std::move(writes));
  Stream<T> reader(std::move(reads));
  return move([&] { return write_all(writer, flow); }, [&] { return read_all(reader, flow); });
}

// The one that was named, or the device's GID, which is an address unless the device is iWARP.
SocketAddress address_of_device(const Arguments& given) {
  if (const std::string& named = given.text("address"); !named.empty())
    return value_or_give_up("resolve", resolve({.host = named, .port = 0}, no_longer())).front();
  const Device device = value_or_give_up("open", Device::open_first_active());
  if (value_or_give_up("query", device.attributes()).iwarp)
    throw Misuse("the GID of an iWARP device is not an address: name one by --address");
  const std::uint8_t port = value_or_give_up("port", device.first_active_port());
  const GidEntry gid = value_or_give_up("gid", device.routable_gid(port));
  return value_or_give_up("resolve", resolve({.host = gid.to_string(), .port = 0}, no_longer()))
      .front();
}

template <TransportBuilder B>
json over(const B& builder, const Arguments& given, const Flow& flow) {
  auto listener = value_or_give_up("listen", builder.listen(address_of_device(given)));
  const SocketAddress here = listener.address();
  auto connecting =
      std::async(std::launch::async, [&] { return builder.connect(here, no_longer()); });
  auto reads = builder.accept(listener, no_longer());
  auto writes = value_or_give_up("connect", connecting.get());
  return move_stream(std::move(writes), value_or_give_up("accept", std::move(reads)), flow);
}

// Gives the reader as much memory as send_receive has, in as many messages.
RingOptions ring_of(const Flow& flow) {
  const std::uint32_t slots = std::bit_ceil(flow.depth * kReceivesPerSend);
  const auto bytes = static_cast<std::uint32_t>(flow.bytes);
  return {.ring_bytes = std::bit_ceil(std::max(slots * bytes, 4096U)),
          .slots = slots,
          .message_bytes = bytes};
}

json send_receive(const Arguments& given) {
  const Flow flow = flow_of(given);
  const SendReceiveOptions options{.message_bytes = static_cast<std::uint32_t>(flow.bytes),
                                   .send_buffers = flow.depth,
                                   .receive_buffers = flow.depth * kReceivesPerSend};
  return over(SendReceiveBuilder{options}, given, flow);
}

json credit_ring(const Arguments& given) {
  const Flow flow = flow_of(given);
  return over(CreditRingBuilder{ring_of(flow)}, given, flow);
}

json memory(const Arguments& given) {
  const Flow flow = flow_of(given);
  auto [writes, reads] =
      MemoryTransport::pair({.message_bytes = static_cast<std::uint32_t>(flow.bytes),
                             .send_buffers = flow.depth,
                             .receive_buffers = flow.depth * kReceivesPerSend});
  return move_stream(std::move(writes), std::move(reads), flow);
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  using namespace rkv::bench;  // NOLINT(google-build-using-namespace)
  return run_program(
      argc, argv,
      {.name = "bench_verbs_streams",
       .purpose = "Throughput of a stream, one way.",
       .flags = {{"bytes", "size of each write", 16384},
                 {"total", "bytes to move", std::uint64_t{16} << 20},
                 {"depth", "messages in flight", 8}},
       .phases = {{"send_receive", send_receive},
                  {"credit_ring", credit_ring},
                  {"memory", memory},
                  {"raw", [](const Arguments& given) { return raw(flow_of(given)); }},
                  {"tcp", [](const Arguments& given) { return tcp(flow_of(given)); }}},
       .texts = {{"address", "of the device, to listen on (default: its GID)"}}});
}
