// Work that cannot outlive its scope: a channel manages completions and buffers. This shows single
// blocking operations, many operations in a scope, and a scope that reaches its deadline.
//
//   channel_scope
#include <rkv/rdma/channel.h>

#include <array>
#include <cstring>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kPieces = 16;
constexpr std::size_t kBytes = 1024;

struct Side {
  MemoryRegion memory;
  Channel channel;
};

Result<Side> join(const ProtectionDomain& pd, PreparedChannel mine, const Endpoint& peer) {
  RKV_ASSIGN_OR_RETURN(MemoryRegion memory, MemoryRegion::allocate(pd, kPieces * kBytes, kAll));
  RKV_ASSIGN_OR_RETURN(Channel channel, std::move(mine).connect(peer, {.remote_access = kAll}));
  return Side{std::move(memory), std::move(channel)};
}

// Each call blocks until its operation has finished. The buffer then belongs to the caller again.
Status one_by_one(Side& client, const RemoteSpan& remote) {
  std::memcpy(client.memory.bytes().data(), "written", 8);
  RKV_RETURN_IF_ERROR(client.channel.write(client.memory.local(0, 8), remote, soon()));
  RKV_RETURN_IF_ERROR(client.channel.read(client.memory.local(8, 8), remote, soon()));
  std::printf("read back: %s\n", reinterpret_cast<const char*>(client.memory.bytes().data() + 8));
  return {};
}

// Many operations at a time. The closure's result and the operations' outcome are reported
// separately.
Status many(Side& client, const RemoteSpan& remote) {
  const auto out = client.channel.scope(soon(), [&](Scope& scope) -> Result<std::uint32_t> {
    std::array<Work, kPieces> reads;
    for (std::size_t i = 0; i < kPieces; ++i)
      reads[i] =
          Work::read(client.memory.local(i * kBytes, kBytes), *remote.subspan(i * kBytes, kBytes));
    RKV_RETURN_IF_ERROR(scope.post(reads));  // one doorbell
    return client.channel.outstanding();
  });  // nothing is outstanding here, whatever the closure did
  RKV_RETURN_IF_ERROR(out.operations);
  RKV_ASSIGN_OR_RETURN(const std::uint32_t under_way, out.value);
  std::printf("%u READs at a time, %u after the scope\n", under_way, client.channel.outstanding());
  return {};
}

// A handle waits for its own operation. It cannot be copied and cannot leave the closure.
Status question_and_answer(Side& client, Side& server) {
  const auto out = server.channel.scope(soon(), [&](Scope& scope) -> Result<Done> {
    Pending question = scope.receive(server.memory.local(0, kBytes));
    RKV_RETURN_IF_ERROR(client.channel.send(client.memory.local(0, 8), soon()));
    return question.wait();
  });
  RKV_ASSIGN_OR_RETURN(const Done done, out.value);
  std::printf("a message of %u bytes\n", done.bytes);
  return out.operations;
}

// No peer sends. At the deadline the queue pair is moved to the error state, which flushes the
// receive. So the device cannot write into a buffer that is reused. The connection ends with it.
Status too_late(Side& server) {
  const auto out = server.channel.scope(
      Deadline::in(50ms), [&](Scope& scope) { scope.receive(server.memory.local(0, kBytes)); });
  if (out.operations) return rkv::fail(rkv::Code::kCorrupt, "an unexpected message");
  std::printf("%s, %u cut off, %u outstanding, the channel is %s\n",
              out.operations.error().code == rkv::Code::kTimeout ? "timed out" : "failed",
              out.cut_off_count, server.channel.outstanding(),
              server.channel.broken() ? "broken" : "whole");
  return {};
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(PreparedChannel a, PreparedChannel::create(pd, {}));
  RKV_ASSIGN_OR_RETURN(PreparedChannel b, PreparedChannel::create(pd, {}));
  const Endpoint of_a = a.endpoint();  // two programs would exchange these
  const Endpoint of_b = b.endpoint();
  RKV_ASSIGN_OR_RETURN(Side client, join(pd, std::move(a), of_b));
  RKV_ASSIGN_OR_RETURN(Side server, join(pd, std::move(b), of_a));
  RKV_RETURN_IF_ERROR(one_by_one(client, server.memory.remote()));
  RKV_RETURN_IF_ERROR(many(client, server.memory.remote()));
  RKV_RETURN_IF_ERROR(question_and_answer(client, server));
  return too_late(server);
}

}  // namespace

int main() {
  return example::report(run());
}
