// Somebody else's program over verbs: something of each part of the verbs library, and calls that
// need no device. Whether every header is there and whole is another test.
#include <rkv/rdma/channel.h>
#include <rkv/rdma/connect.h>
#include <rkv/rdma/error.h>
#include <rkv/rdma/group/barrier.h>
#include <rkv/rdma/group/cluster_file.h>
#include <rkv/rdma/group/exchange.h>
#include <rkv/rdma/group/multi_channel.h>
#include <rkv/rdma/message/any_transport.h>
#include <rkv/rdma/message/credit_ring.h>
#include <rkv/rdma/message/memory_transport.h>
#include <rkv/rdma/message/operations.h>
#include <rkv/rdma/message/read_ring.h>
#include <rkv/rdma/message/send_receive.h>
#include <rkv/rdma/message/stream.h>
#include <rkv/rdma/srq.h>

#include <array>
#include <cstdio>

namespace {

using namespace rkv::rdma;

rkv::Deadline soon() {
  static const rkv::SteadyClock clock;
  return rkv::Deadline::after_ms(clock, 5000);
}

// Coroutines over a transport of any kind.
Task<rkv::Result<std::size_t>> talk(Stream<AnyMessageTransport>& from,
                                    Stream<AnyMessageTransport>& to) {
  const auto written = co_await from.write(rkv::as_bytes("hello"));
  if (!written) co_return std::unexpected(written.error());
  std::array<std::byte, 16> buffer;
  co_return co_await to.read(buffer);
}

bool messages_work() {
  const auto executor = EpollExecutor::create();
  if (!executor) return false;
  auto [here, there] = MemoryTransport::pair();
  Stream from(AnyMessageTransport(std::move(here)), **executor);
  Stream to(AnyMessageTransport(std::move(there)), **executor);
  const auto length = run_one(**executor, soon(), talk(from, to));
  return length && *length == 5;
}

// Options that cannot be are refused before a device is looked for.
template <TransportBuilder B>
bool refuses(const B& builder) {
  const auto none = builder.connect(SocketAddress(), soon());
  return !none && none.error().code == rkv::Code::kInvalidArgument;
}

bool groups_work() {
  const auto cluster = Cluster::parse("0 a:1\n1 b:1\n");
  return cluster && cluster->size() == 2 && barrier_step_count(BarrierKind::kTree, 2, 0) == 2;
}

// What needs a device, and is only linked.
template <class... Function>
bool linked(Function... function) {
  return ((function != nullptr) && ...);
}

}  // namespace

int main() {
  const auto where = parse_host_port("[::1]:7471");
  const auto devices = list_devices();
  const RegisteredSpan nothing;
  if (!where || nothing.size() != 0 || ibv_wc_status_str(IBV_WC_SUCCESS) == nullptr) return 1;
  if (!messages_work()) return 2;
  if (!refuses(SendReceiveBuilder{{.message_bytes = 0}}) ||
      !refuses(CreditRingBuilder{{.ring_bytes = 1}}) || !refuses(ReadRingBuilder{{.slots = 3}})) {
    return 3;
  }
  if (!groups_work()) return 4;
  if (!linked(&Barrier::create, &Channel::adopt, &Operations::create)) return 5;
  std::printf("%s, %s\n", where->to_string().c_str(),
              devices ? "devices listed" : rkv::to_string(devices.error()).c_str());
}
