// A WRITE into a peer's memory and a READ of it. The peer's processor is not involved.
//
//   one_sided
#include <rkv/rdma/channel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace rkv::rdma;
using rkv::Deadline;
using rkv::Status;
using namespace std::chrono_literals;

constexpr AccessFlags kOpen = AccessFlags::kRemoteRead | AccessFlags::kRemoteWrite;

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion ours,
                       MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(const MemoryRegion theirs,
                       MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite | kOpen));
  RKV_ASSIGN_OR_RETURN(PreparedChannel one, PreparedChannel::create(pd, {}));
  RKV_ASSIGN_OR_RETURN(PreparedChannel other, PreparedChannel::create(pd, {}));
  const Endpoint self = one.endpoint();
  RKV_ASSIGN_OR_RETURN(Channel channel, std::move(one).connect(other.endpoint(), {}));
  RKV_ASSIGN_OR_RETURN(const Channel peer,
                       std::move(other).connect(self, {.remote_access = kOpen}));
  // A peer sends this as 20 bytes: RemoteSpan::to_bytes(). It is a claim, so a piece of it may be
  // none.
  RKV_ASSIGN_OR_RETURN(const RemoteSpan remote, theirs.remote().at(1024, 7));
  std::ranges::copy(rkv::as_bytes("written"), ours.bytes().begin());
  RKV_RETURN_IF_ERROR(channel.write(ours.first(7), remote, Deadline::in(5s)));
  RKV_RETURN_IF_ERROR(channel.read(ours.last(7), remote, Deadline::in(5s)));
  std::printf("read back: %.7s\n", reinterpret_cast<const char*>(ours.last(7).bytes().data()));
  return {};
}

int main() {
  const Status done = run();
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
