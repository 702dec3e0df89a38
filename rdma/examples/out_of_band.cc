// Two peers that exchange their endpoints by their own means, here within one process, and a
// message between them. Two programs send the bytes of Endpoint::to_bytes() over any connection.
//
//   out_of_band
#include <rkv/rdma/channel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace rkv::rdma;
using rkv::Deadline;
using rkv::Status;
using namespace std::chrono_literals;

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(PreparedChannel ours, PreparedChannel::create(pd, {}));
  RKV_ASSIGN_OR_RETURN(PreparedChannel theirs, PreparedChannel::create(pd, {}));
  const Endpoint us = ours.endpoint();  // for the peer
  RKV_ASSIGN_OR_RETURN(Channel sender, std::move(ours).connect(theirs.endpoint(), {}));
  RKV_ASSIGN_OR_RETURN(Channel receiver, std::move(theirs).connect(us, {}));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion memory,
                       MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
  RKV_RETURN_IF_ERROR(receiver.expect(memory.first(64)));
  std::ranges::copy(rkv::as_bytes("hello"), memory.last(5).bytes().begin());
  RKV_RETURN_IF_ERROR(sender.send(memory.last(5), Deadline::in(5s)));
  RKV_ASSIGN_OR_RETURN(const Done got, receiver.receive(memory.first(64), Deadline::in(5s)));
  std::printf("received: %.*s\n", static_cast<int>(got.bytes),
              reinterpret_cast<const char*>(memory.bytes().data()));
  return {};
}

int main() {
  const Status done = run();
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
