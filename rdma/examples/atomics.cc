// Atomics on a peer's memory: a counter that gives each client another number (fetch-and-add), and
// a word that only one of two clients can own (compare-and-swap). The peer's processor is not
// involved.
//
// A word is changed either by remote atomics only or by the processor only. The exception is a
// device whose operations are atomic with the processor's too (AtomicScope::kGlobal).
//
//   atomics
#include <cinttypes>
#include <cstring>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kTickets = 0;  // offsets of the words in the server's memory
constexpr std::size_t kOwner = 8;    // each 8 bytes long and 8-byte aligned
constexpr std::uint64_t kNobody = 0;

std::uint64_t word(const MemoryRegion& memory, std::size_t offset) {
  std::uint64_t value = 0;  // an atomic's old value arrives in host byte order
  std::memcpy(&value, memory.bytes().data() + offset, sizeof value);
  return value;
}

// Returns the counter's old value. No other client receives the same value.
Result<std::uint64_t> take_ticket(End& client, const RemoteSpan& server) {
  Batch batch = client.qp.batch();
  batch.fetch_add(1, OpFlags::kSignaled, client.memory.local(0, 8), *server.subspan(kTickets, 8),
                  1);
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_RETURN_IF_ERROR(client.queue.wait_one(soon()));
  return word(client.memory, 0);
}

// True if `self` owns the word now; otherwise the old value names the owner.
Result<bool> take_over(End& client, const RemoteSpan& server, std::uint64_t self) {
  Batch batch = client.qp.batch();
  batch.compare_swap(2, OpFlags::kSignaled, client.memory.local(0, 8), *server.subspan(kOwner, 8),
                     kNobody, self);
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_RETURN_IF_ERROR(client.queue.wait_one(soon()));
  return word(client.memory, 0) == kNobody;
}

Status run() {
  RKV_ASSIGN_OR_RETURN(Pair first, Pair::make());
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, first.device.attributes());
  if (limits.atomics == AtomicScope::kNone) {
    return rkv::fail(rkv::Code::kUnsupported, "this device has no atomics");
  }
  // A second client of the same server memory.
  RKV_ASSIGN_OR_RETURN(Room room, Room::make(first.pd));
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair prepared,
                       QueuePair::create(first.pd, room.queue, room.queue, {}));
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair accepted,
                       QueuePair::create(first.pd, first.server.queue, first.server.queue, {}));
  RKV_ASSIGN_OR_RETURN(Both both, connect(std::move(prepared), std::move(accepted)));
  End second{std::move(room), std::move(both.client)};
  const RemoteSpan server = first.server.memory.remote();

  for (int round = 0; round < 2; ++round) {
    RKV_ASSIGN_OR_RETURN(const std::uint64_t one, take_ticket(first.client, server));
    RKV_ASSIGN_OR_RETURN(const std::uint64_t other, take_ticket(second, server));
    std::printf("tickets: %" PRIu64 " and %" PRIu64 "\n", one, other);
  }
  RKV_ASSIGN_OR_RETURN(const bool got_it, take_over(first.client, server, 1));
  RKV_ASSIGN_OR_RETURN(const bool got_it_too, take_over(second, server, 2));
  std::printf("the first client %s, the second %s\n", got_it ? "owns it" : "came too late",
              got_it_too ? "owns it" : "came too late");
  std::printf("in the server's memory: %" PRIu64 " tickets, owner %" PRIu64 "\n",
              word(first.server.memory, kTickets), word(first.server.memory, kOwner));
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
