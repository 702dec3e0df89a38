// A foreign program on the extras of the verbs library: something of each part, and calls that need
// no device. Another test checks that every header is installed.
#include <rkv/rdma/channel.h>
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
#include <rkv/rdma/read_plan.h>

#include <array>
#include <chrono>
#include <cstdio>

namespace {

using namespace rkv::rdma;

rkv::Deadline soon() {
  return rkv::Deadline::in(std::chrono::seconds(5));
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
  if (!messages_work()) return 1;
  if (!refuses(SendReceiveBuilder{{.message_bytes = 0}}) ||
      !refuses(CreditRingBuilder{{.ring_bytes = 1}}) || !refuses(ReadRingBuilder{{.slots = 3}})) {
    return 2;
  }
  if (!groups_work()) return 3;
  if (!linked(&Barrier::create, &Channel::adopt, &Operations::create, &ReadPlan::make)) return 4;
  std::printf("messages, groups\n");
}
