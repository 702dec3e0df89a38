// TcpTransport: registers memory, listens, connects.
#include "rdma/transport/transport.h"

#include <utility>

#include "common/check.h"
#include "rdma/transport/host_memory.h"
#include "rdma/transport/processor_atomics.h"
#include "rdma/transport/tcp/incoming.h"
#include "rdma/transport/tcp/listener.h"

namespace rkv::rdma {
namespace tcp {
namespace {

class TcpRegion final : public Region {
 public:
  // `owner`: empty if the caller owns the memory.
  TcpRegion(std::shared_ptr<Shared> shared, MutableBytes memory, Access access, Mapping owner)
      : shared_(std::move(shared)),
        owner_(std::move(owner)),
        memory_(memory),
        key_(access == Access::kLocal ? 0 : shared_->regions.add(memory, access)) {}
  ~TcpRegion() override {
    if (key_ != 0) shared_->regions.remove(key_);
  }
  TcpRegion(const TcpRegion&) = delete;
  TcpRegion& operator=(const TcpRegion&) = delete;

  MutableBytes bytes() const override { return memory_; }
  std::uint32_t local_key() const override { return 0; }  // the processor copies
  std::uint32_t remote_key() const override { return key_; }

 private:
  const std::shared_ptr<Shared> shared_;
  const Mapping owner_;
  const MutableBytes memory_;
  const std::uint32_t key_;
};

class TcpTransport final : public Transport {
 public:
  std::string describe() const override {
    return "tcp: not RDMA, the server's processor answers READs";
  }
  bool pins_receive_buffers() const override { return false; }

  Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) override {
    Mapping memory;
    if (access == Access::kLocal) {
      RKV_ASSIGN_OR_RETURN(memory, map_private(length));
    } else {
      RKV_ASSIGN_OR_RETURN(SharedMemory made,
                           make_shared_memory("rkv-region", length, Sealing::kOthersRead));
      memory = std::move(made.memory);
    }
    const MutableBytes bytes(memory.data(), length);
    return std::unique_ptr<Region>(new TcpRegion(shared_, bytes, access, std::move(memory)));
  }
  Result<std::unique_ptr<Region>> attach(MutableBytes memory, Access access) override {
    return std::unique_ptr<Region>(new TcpRegion(shared_, memory, access, {}));
  }
  Result<std::unique_ptr<Atomics>> create_atomics(const Region& /*region*/) override {
    return std::unique_ptr<Atomics>(new ProcessorAtomics);
  }
  Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) override {
    RKV_ASSIGN_OR_RETURN(std::unique_ptr<TcpQueue> queue, TcpQueue::create(shared_, options));
    return std::unique_ptr<Queue>(std::move(queue));
  }
  Result<std::unique_ptr<Listener>> listen(const std::string& address) override {
    RKV_RETURN_IF_ERROR(shared_->sockets.start());  // reports a lack of descriptors or threads now
    return TcpListener::listen(address);
  }
  Result<std::unique_ptr<Connection>> connect(Queue& queue, const ConnectionOptions& options,
                                              const std::string& address, Bytes private_data,
                                              const Deadline& deadline,
                                              Rejection* rejection) override {
    auto* const bound = dynamic_cast<TcpQueue*>(&queue);
    RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
    return tcp::connect(*bound, options, address, private_data, deadline, rejection);
  }

 private:
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Transport>> open_tcp() {
  return std::unique_ptr<Transport>(new tcp::TcpTransport);
}

}  // namespace rkv::rdma
