// A foreign program on the extras of the verbs library: something of each part, and calls that need
// no device. Another test checks that every header is installed.
#include <rkv/rdma/channel.h>
#include <rkv/rdma/dial.h>
#include <rkv/rdma/error.h>
#include <rkv/rdma/message/any_transport.h>
#include <rkv/rdma/message/credit_ring.h>
#include <rkv/rdma/message/memory_transport.h>
#include <rkv/rdma/message/operations.h>
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

// Functions that need a device are only linked.
template <class... Function>
bool linked(Function... function) {
  return ((function != nullptr) && ...);
}

}  // namespace

int main() {
  if (!messages_work()) return 1;
  if (!refuses(SendReceiveBuilder{{.message_bytes = 0}}) ||
      !refuses(CreditRingBuilder{{.ring_bytes = 1}}) || !refuses(CreditRingBuilder{{.slots = 3}})) {
    return 2;
  }
  if (!linked(&Channel::adopt, &Operations::create, &ReadPlan::make)) return 3;
  std::printf("messages\n");
}
