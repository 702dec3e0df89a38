// Reliable datagrams of Amazon's EFA: two queue pairs without a connection, each of which could
// send to any number of others. On any other device it reports what is missing. Links
// rkv::rdma_efa.
//
//   efa
#include <rkv/rdma/efa.h>

#include <algorithm>
#include <memory>

#include "pair.h"

namespace {

using namespace example;

constexpr std::uint32_t kKey = 0x1234;  // the Q_Key of both sides
constexpr std::size_t kBytes = 64;

using Address = std::unique_ptr<ibv_ah, int (*)(ibv_ah*)>;

// The route to a peer, created once per peer. Here the peer is the same device.
Result<Address> address_of(const ProtectionDomain& pd, std::uint8_t port) {
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> gids, pd.device().gid_table());
  if (gids.empty()) return rkv::fail(rkv::Code::kNoDevice, "the device has no GID");
  ibv_ah_attr attributes{};
  attributes.port_num = port;
  attributes.is_global = 1;
  attributes.grh.sgid_index = static_cast<std::uint8_t>(gids.front().index);
  std::ranges::copy(gids.front().gid, attributes.grh.dgid.raw);
  RKV_ASSIGN_OR_RETURN(ibv_ah * raw,
                       from_null("ibv_create_ah", ibv_create_ah(pd.raw(), &attributes)));
  return Address(raw, &ibv_destroy_ah);
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const EfaAttributes limits, efa_attributes(device));
  std::printf("EFA: messages and %s\n", limits.reads ? "READs" : "no READs");
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, device.first_active_port());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(Room ours, Room::make(pd));
  RKV_ASSIGN_OR_RETURN(Room theirs, Room::make(pd));
  const SrdOptions options{.port = port, .qkey = kKey};
  RKV_ASSIGN_OR_RETURN(SrdQueuePair sender,
                       SrdQueuePair::create(pd, ours.queue, ours.queue, options));
  RKV_ASSIGN_OR_RETURN(SrdQueuePair receiver,
                       SrdQueuePair::create(pd, theirs.queue, theirs.queue, options));

  const ReceiveRequest receive{.wr_id = 1, .buffer = theirs.memory.local(0, kBytes)};
  RKV_RETURN_IF_ERROR(receiver.post_receives({&receive, 1}));
  std::ranges::copy(rkv::as_bytes("hello"), ours.memory.bytes().begin());
  RKV_ASSIGN_OR_RETURN(const Address address, address_of(pd, port));
  SrdBatch batch = sender.batch();
  batch.send(2, OpFlags::kSignaled,
             {.handle = address.get(), .qp_num = receiver.number(), .qkey = kKey},
             ours.memory.local(0, 5));
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_RETURN_IF_ERROR(ours.queue.wait_one(soon()));
  RKV_ASSIGN_OR_RETURN(const WorkCompletion done, theirs.queue.wait_one(soon()));
  std::printf("received: %.*s\n", static_cast<int>(done.byte_length),
              reinterpret_cast<const char*>(theirs.memory.bytes().data()));
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
