// VerbsTransport: opens the device, registers memory, connects.
#include "rdma/transport/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "common/check.h"
#include "rdma/transport/verbs/connection.h"
#include "rdma/transport/verbs/listener.h"
#include "rdma/transport/verbs/own_atomics.h"
#include "rdma/transport/verbs/selection.h"
#include "rdma/transport/verbs/watch.h"
#include "rkv/fork.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace verbs {
namespace {

constexpr int kResolveMs = 2000;  // to resolve the address to listen on

class VerbsRegion final : public Region {
 public:
  VerbsRegion(std::shared_ptr<const Shared> shared, MemoryRegion region, Access access)
      : shared_(std::move(shared)), region_(std::move(region)), access_(access) {}
  MutableBytes bytes() const override { return region_.bytes(); }
  std::uint32_t local_key() const override { return region_.lkey(); }
  std::uint32_t remote_key() const override {
    return access_ == Access::kLocal ? 0 : region_.rkey();
  }

 private:
  std::shared_ptr<const Shared> shared_;
  MemoryRegion region_;
  Access access_;
};

// Large regions, such as extents, use huge pages if the pool has enough: fewer entries in the
// translation tables of processor and adapter.
MemoryRegion::Backing backing_for(std::size_t length) {
  constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  return length % kHugePageBytes == 0 ? MemoryRegion::Backing::kHugePages
                                      : MemoryRegion::Backing::kPages;
}

class VerbsTransport final : public Transport {
 public:
  explicit VerbsTransport(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}

  std::string describe() const override { return shared_->description; }
  bool has_atomics() const override { return shared_->atomics; }
  bool tells_refusals() const override { return !shared_->iwarp; }
  bool enforces_grants() const override { return !shared_->iwarp; }

  Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) override {
    RKV_ASSIGN_OR_RETURN(
        MemoryRegion region,
        MemoryRegion::allocate(shared_->pd, length, region_flags(access, shared_->atomics),
                               backing_for(length)));
    return std::unique_ptr<Region>(new VerbsRegion(shared_, std::move(region), access));
  }

  Result<std::unique_ptr<Region>> attach(MutableBytes memory, Access access) override {
    RKV_ASSIGN_OR_RETURN(
        MemoryRegion region,
        MemoryRegion::attach(shared_->pd, memory, region_flags(access, shared_->atomics)));
    return std::unique_ptr<Region>(new VerbsRegion(shared_, std::move(region), access));
  }

  Result<std::unique_ptr<Atomics>> create_atomics(const Region& region) override {
    return create_own_atomics(shared_, region);
  }

  Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) override {
    RKV_ASSIGN_OR_RETURN(std::unique_ptr<VerbsQueue> queue, VerbsQueue::create(shared_, options));
    return std::unique_ptr<Queue>(std::move(queue));
  }

  Result<std::unique_ptr<DeviceWatch>> watch_device() override {
    return VerbsWatch::create(shared_);
  }

  Result<std::unique_ptr<Listener>> listen(const std::string& address) override {
    RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
    const SteadyClock clock;
    RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all,
                         resolve(where, Deadline::after_ms(clock, kResolveMs)));
    return VerbsListener::listen(shared_, all.front());
  }

  Result<std::unique_ptr<Connection>> connect(Queue& queue, const ConnectionOptions& options,
                                              const std::string& address, Bytes private_data,
                                              const Deadline& deadline,
                                              Rejection* rejection) override;

 private:
  Result<std::unique_ptr<Connection>> connect_to(VerbsQueue& queue,
                                                 const ConnectionOptions& options,
                                                 const SocketAddress& peer, Bytes private_data,
                                                 const Deadline& deadline, Rejection* rejection);
  std::shared_ptr<const Shared> shared_;
};

Result<std::unique_ptr<Connection>> VerbsTransport::connect(
    Queue& queue, const ConnectionOptions& options, const std::string& address, Bytes private_data,
    const Deadline& deadline, Rejection* rejection) {
  auto* bound = dynamic_cast<VerbsQueue*>(&queue);
  RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, deadline));
  Result<std::unique_ptr<Connection>> last = fail(Code::kUnreachable, "the host has no address");
  for (const SocketAddress& peer : all) {
    last = connect_to(*bound, options, peer, private_data, deadline, rejection);
    // The host answered, or time is up: its other addresses do not help.
    if (last || last.error().code == Code::kRejected || deadline.passed()) break;
  }
  return last;
}

Result<std::unique_ptr<Connection>> VerbsTransport::connect_to(
    VerbsQueue& queue, const ConnectionOptions& options, const SocketAddress& peer,
    Bytes private_data, const Deadline& deadline, Rejection* rejection) {
  const SocketAddress* source = shared_->source ? &*shared_->source : nullptr;
  RKV_ASSIGN_OR_RETURN(Connector connector, Connector::resolve(peer, {.source = source}, deadline));
  if (connector.device().raw() != shared_->device.raw()) {
    return fail(Code::kNoDevice,
                "the address is reached through another RDMA device than the one opened");
  }
  RKV_ASSIGN_OR_RETURN(std::unique_ptr<VerbsConnection> connection,
                       VerbsConnection::create(queue, options));
  PrivateData refusal;
  auto link = std::move(connector).connect(connection->take_queue_pair(), connection->parameters(),
                                           private_data, deadline, &refusal);
  if (!link) {
    if (rejection != nullptr && link.error().code == Code::kRejected) {
      const Bytes reason = refusal.bytes();
      rejection->length = std::min(reason.size(), sizeof rejection->reason);
      std::ranges::copy(reason.first(rejection->length), rejection->reason);
      rejection->called = peer.to_string();
    }
    return std::unexpected(link.error());
  }
  // Set the owner before the migration: from now on events arrive at the queue.
  link->id.set_owner(connection->handle());
  RKV_RETURN_IF_ERROR(link->id.migrate(queue.events()));
  link->channel = queue.events().share();
  connection->note_connected();
  connection->adopt(std::move(*link), peer.to_string());
  return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace
}  // namespace verbs

namespace {
// librdmacm opens the contexts of all devices, and keeps them open. A forked child would write to
// the same registers of the adapter as its parent.
struct FirstOpening {
  const ForkGuard made{};
  static const FirstOpening& note() {
    static const FirstOpening first;
    is_noted.store(true, std::memory_order_release);
    return first;
  }
  static inline std::atomic<bool> is_noted = false;
};
}  // namespace

Result<std::unique_ptr<Transport>> open_verbs(const VerbsOptions& options) {
  if (FirstOpening::is_noted.load(std::memory_order_acquire) &&
      FirstOpening::note().made.is_inherited()) {
    return fail(Code::kUnsupported,
                "the parent has used RDMA before fork(): use exec or posix_spawn, or fork first");
  }
  RKV_ASSIGN_OR_RETURN(auto selected, verbs::select(options));
  FirstOpening::note();
  auto& [device, port, gid] = selected;
  RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
  std::optional<SocketAddress> source;
  if (options.gid_index >= 0) {
    // The clock is not used: the address is numeric.
    const SteadyClock clock;
    RKV_ASSIGN_OR_RETURN(
        const std::vector<SocketAddress> found,
        resolve({.host = gid.to_string(), .port = 0}, Deadline::after_ms(clock, 0)));
    source = found.front();
  }
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device.attributes());
  // An iWARP device has a hardware address as its GID, which means nothing to a reader.
  std::string description =
      limits.iwarp ? fmt::format("verbs: {} port {} ({})", device.name(), port, to_string(gid.type))
                   : fmt::format("verbs: {} port {} gid {} ({}, {})", device.name(), port,
                                 gid.index, to_string(gid.type), gid.to_string());
  auto anchor = verbs::Anchor::drop(device, gid);
  auto shared = std::make_shared<const verbs::Shared>(
      verbs::Shared{.anchor = std::move(anchor),
                    .device = std::move(device),
                    .pd = std::move(pd),
                    .port = port,
                    .gid = gid,
                    .source = source,
                    .description = std::move(description),
                    .atomics = limits.atomics != AtomicScope::kNone,
                    .iwarp = limits.iwarp});
  return std::unique_ptr<Transport>(new verbs::VerbsTransport(std::move(shared)));
}

}  // namespace rkv::rdma
