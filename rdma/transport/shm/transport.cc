// ShmTransport: allocates and shares memory, listens, connects.
#include "rdma/transport/transport.h"

#include <fmt/format.h>

#include "common/check.h"
#include "rdma/transport/processor_atomics.h"
#include "rdma/transport/shm/directory.h"
#include "rdma/transport/shm/incoming.h"
#include "rdma/transport/shm/listener.h"

namespace rkv::rdma {
namespace shm {
namespace {

// Time limit to resolve the address to listen on, which is usually numeric.
constexpr int kResolveMs = 2000;

class LocalRegion final : public Region {
 public:
  explicit LocalRegion(Mapping memory) : memory_(std::move(memory)) {}
  MutableBytes bytes() const override { return {memory_.data(), memory_.size()}; }
  // The processor copies, so no key is needed.
  std::uint32_t local_key() const override { return 0; }
  std::uint32_t remote_key() const override { return 0; }

 private:
  Mapping memory_;
};

class ExportedRegion final : public Region {
 public:
  ExportedRegion(std::shared_ptr<Shared> shared, Export region)
      : shared_(std::move(shared)), region_(std::move(region)) {
    shared_->exporter.add(region_);
  }
  ~ExportedRegion() override { shared_->exporter.remove(region_); }
  ExportedRegion(const ExportedRegion&) = delete;
  ExportedRegion& operator=(const ExportedRegion&) = delete;

  MutableBytes bytes() const override { return {region_.shared.memory.data(), region_.length}; }
  std::uint32_t local_key() const override { return 0; }
  std::uint32_t remote_key() const override { return region_.key; }

 private:
  std::shared_ptr<Shared> shared_;
  Export region_;  // the exporter refers to it
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::string directory, std::optional<gid_t> group)
      : shared_(std::make_shared<Shared>(std::move(directory), group)) {}

  std::string describe() const override {
    std::string directories;
    for (const ClientDirectory& one : client_directories(shared_->directory))
      directories += (directories.empty() ? "" : " or ") + one.path;
    return fmt::format("shm: memory shared with processes of this host ({})", directories);
  }

  bool pins_receive_buffers() const override { return false; }

  Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) override {
    if (access == Access::kLocal) {
      RKV_ASSIGN_OR_RETURN(Mapping memory, map_private(length));
      return std::unique_ptr<Region>(new LocalRegion(std::move(memory)));
    }
    const bool atomics = access == Access::kRemoteReadAtomic;
    Export region{.length = length, .access = access};
    RKV_ASSIGN_OR_RETURN(
        region.shared, make_shared_memory("rkv-region", length,
                                          atomics ? Sealing::kOthersWrite : Sealing::kOthersRead));
    return std::unique_ptr<Region>(new ExportedRegion(shared_, std::move(region)));
  }

  Result<std::unique_ptr<Atomics>> create_atomics(const Region& /*region*/) override {
    return std::unique_ptr<Atomics>(new ProcessorAtomics);
  }

  Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) override {
    RKV_ASSIGN_OR_RETURN(std::unique_ptr<ShmQueue> queue, ShmQueue::create(shared_, options));
    return std::unique_ptr<Queue>(std::move(queue));
  }

  Result<std::unique_ptr<Listener>> listen(const std::string& address) override {
    const SteadyClock clock;
    RKV_ASSIGN_OR_RETURN(const std::uint16_t port,
                         local_port(address, Deadline::after_ms(clock, kResolveMs),
                                    "this host does not have the address"));
    return ShmListener::listen(shared_, port);
  }

  Result<std::unique_ptr<Connection>> connect(Queue& queue, const ConnectionOptions& options,
                                              const std::string& address, Bytes private_data,
                                              const Deadline& deadline,
                                              Rejection* rejection) override {
    auto* bound = dynamic_cast<ShmQueue*>(&queue);
    RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
    return shm::connect(*bound, options, address, private_data, deadline, rejection);
  }

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace
}  // namespace shm

Result<std::unique_ptr<Transport>> open_shm(const ShmOptions& options) {
  RKV_RETURN_IF_ERROR(shm::check_named_directory(options.directory));
  RKV_ASSIGN_OR_RETURN(const auto group, shm::group_named(options.group));
  return std::unique_ptr<Transport>(new shm::ShmTransport(options.directory, group));
}

}  // namespace rkv::rdma
