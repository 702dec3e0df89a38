// A question and an answer between two programs, or two threads, that connect by address.
//
//   ping_pong                       both, over this machine's own device
//   ping_pong server HOST:PORT      one of them
//   ping_pong client HOST:PORT
#include <rkv/rdma/dial.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

using namespace rkv::rdma;
using rkv::Deadline;
using rkv::Status;
using namespace std::chrono_literals;

void print(const char* who, const RegisteredSpan& message) {
  std::printf("%s got \"%.*s\"\n", who, static_cast<int>(message.size()),
              reinterpret_cast<const char*>(message.bytes().data()));
}

Status serve(ChannelListener listener) {
  RKV_ASSIGN_OR_RETURN(ChannelRequest request, listener.next(Deadline::in(60s)));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion memory,
                       MemoryRegion::allocate(request.domain(), 4096, AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(Channel client, std::move(request).accept({.expected = memory.first(64)}));
  RKV_ASSIGN_OR_RETURN(const Done got, client.receive(memory.first(64), Deadline::in(5s)));
  print("server", memory.first(got.bytes));
  std::ranges::copy(rkv::as_bytes("pong"), memory.bytes().begin());
  RKV_RETURN_IF_ERROR(client.send(memory.first(4), Deadline::in(5s)));
  return client.wait_until_peer_leaves(Deadline::in(5s));
}

Status ask(const std::string& address) {
  RKV_ASSIGN_OR_RETURN(Channel server, dial(address, {}, Deadline::in(5s)));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion memory,
                       MemoryRegion::allocate(server.domain(), 4096, AccessFlags::kLocalWrite));
  std::ranges::copy(rkv::as_bytes("ping"), memory.bytes().begin());
  RKV_RETURN_IF_ERROR(server.expect(memory.last(64)));
  RKV_RETURN_IF_ERROR(server.send(memory.first(4), Deadline::in(5s)));
  RKV_ASSIGN_OR_RETURN(const Done got, server.receive(memory.last(64), Deadline::in(5s)));
  print("client", memory.last(64).first(got.bytes));
  return {};
}

// An address of this machine's first active device, with any free port.
rkv::Result<std::string> own_address() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, device.first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, device.routable_gid(port));
  return HostPort{.host = gid.to_string(), .port = 0}.to_string();
}

Status run(const std::string& side, const std::string& address) {
  if (side == "client") return ask(address);
  RKV_ASSIGN_OR_RETURN(ChannelListener listener, ChannelListener::listen(address));
  if (side == "server") return serve(std::move(listener));
  const std::string here = listener.address().to_string();
  Status asked;
  std::thread client([&] { asked = ask(here); });
  const Status served = serve(std::move(listener));
  client.join();
  return asked ? served : asked;
}

int main(int argc, char** argv) {
  const rkv::Result<std::string> address = argc == 3 ? argv[2] : own_address();
  const Status done = address ? run(argc == 3 ? argv[1] : "both", *address)
                              : Status(std::unexpected(address.error()));
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
