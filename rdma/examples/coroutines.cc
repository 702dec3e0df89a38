// Ping-pong with coroutines: a client and a server, each written from top to bottom, share one
// thread. It sleeps while neither can continue. Every wait has a deadline.
//
//   coroutines
#include <rkv/rdma/message/connecting.h>
#include <rkv/rdma/message/operations.h>
#include <rkv/rdma/message/task.h>

#include <algorithm>
#include <string_view>

#include "pair.h"

namespace {

using namespace example;

// Shared by both sides: one thread, one device, one completion queue.
struct Shared {
  Executor& executor;
  CmListener& listener;
  ProtectionDomain pd;
  Operations operations;
  MemoryRegion memory;

  RegisteredSpan room(std::size_t number) const { return memory.local(number * 64, 64); }
  RegisteredSpan text(std::size_t number, std::string_view words) const {
    std::ranges::copy(rkv::as_bytes(words), room(number).bytes().begin());
    return room(number).first(words.size());
  }
  Result<PreparedQueuePair<>> prepare() const {
    return QueuePair::create(pd, operations.queue(), operations.queue(), {});
  }
};

void print(const char* who, const RegisteredSpan& buffer, const WorkCompletion& got) {
  std::printf("%s got \"%.*s\" number %u\n", who, static_cast<int>(got.byte_length),
              reinterpret_cast<const char*>(buffer.bytes().data()), got.immediate);
}

Task<Status> serve(Shared& shared) {
  RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request,
                          co_await next_request(shared.executor, shared.listener, soon()));
  RKV_CO_ASSIGN_OR_RETURN(PreparedQueuePair<> prepared, shared.prepare());
  RKV_CO_RETURN_IF_ERROR(request.prepare(prepared, {}));
  RKV_CO_ASSIGN_OR_RETURN(PostedReceive ping,
                          shared.operations.post_receive(prepared, shared.room(0)));
  // Does not wait for the client. Its message proves that the connection is there.
  RKV_CO_ASSIGN_OR_RETURN(CmConnection link,
                          std::move(request).accept(std::move(prepared), {}, {}));
  RKV_CO_ASSIGN_OR_RETURN(const WorkCompletion got,
                          co_await shared.operations.receive(ping, soon()));
  print("server", shared.room(0), got);
  RKV_CO_RETURN_IF_ERROR(co_await shared.operations.send_immediate(link.qp, shared.text(1, "pong"),
                                                                   got.immediate + 1, soon()));
  RKV_CO_RETURN_IF_ERROR(co_await peer_left(shared.executor, link, soon()));
  co_return Status{};
}

Task<Status> ask(Shared& shared) {
  RKV_CO_ASSIGN_OR_RETURN(Connector connector,
                          co_await resolve(shared.executor, shared.listener.address(), {}, soon()));
  RKV_CO_ASSIGN_OR_RETURN(PreparedQueuePair<> prepared, shared.prepare());
  RKV_CO_RETURN_IF_ERROR(connector.prepare(prepared, {}));
  RKV_CO_ASSIGN_OR_RETURN(PostedReceive pong,
                          shared.operations.post_receive(prepared, shared.room(2)));
  RKV_CO_ASSIGN_OR_RETURN(CmConnection link, co_await connect(shared.executor, std::move(connector),
                                                              std::move(prepared), {}, {}, soon()));
  RKV_CO_RETURN_IF_ERROR(
      co_await shared.operations.send_immediate(link.qp, shared.text(3, "ping"), 1, soon()));
  RKV_CO_ASSIGN_OR_RETURN(const WorkCompletion got,
                          co_await shared.operations.receive(pong, soon()));
  print("client", shared.room(2), got);
  co_return link.disconnect();
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const auto executor, EpollExecutor::create());
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, address_of_first_active());
  RKV_ASSIGN_OR_RETURN(CmListener listener, CmListener::listen(address));
  // Both sides connect over the listener's device. A client alone has connector.device().
  const Device device = *listener.device();
  RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(Operations operations, Operations::create(device, *executor));
  RKV_ASSIGN_OR_RETURN(MemoryRegion memory,
                       MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
  Shared shared{*executor, listener, std::move(pd), std::move(operations), std::move(memory)};
  auto server = serve(shared);
  auto client = ask(shared);
  RKV_RETURN_IF_ERROR(rkv::rdma::run(*executor, soon(), server, client));
  const Status asked = client.take();
  const Status served = server.take();
  return asked ? served : asked;
}

}  // namespace

int main() {
  return example::report(run());
}
