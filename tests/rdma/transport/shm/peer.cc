// One end in a process of its own, to be killed.
//
//   shm_peer serve DIRECTORY         listens, prints "port N" and what may be read, echoes messages
//   shm_peer hammer DIRECTORY PORT   READs, adds and sends as fast as it can, until it is killed
#include "tests/rdma/transport/shm/peer.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rdma/transport/transport.h"

namespace rkv::rdma::shm {
namespace {

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", to_string(result.error()).c_str());
  std::exit(1);
}

constexpr std::size_t kRegionBytes = std::size_t{1} << 20;

int serve(const std::string& directory) {
  const auto transport = must(open_shm({.directory = directory}));
  const auto region = must(transport->allocate(kRegionBytes, Access::kRemoteReadAtomic));
  const auto listener = must(transport->listen(":0"));
  const auto queue = must(transport->create_queue({}));
  std::vector<std::unique_ptr<Connection>> connections;
  const Whereabouts where{.address = region->address(), .key = region->remote_key()};
  std::printf("port %u ready\n", listener->port());
  std::fflush(stdout);
  const SteadyClock clock;
  for (;;) {
    if (const auto incoming = must(listener->next(Deadline::after_ms(clock, 1)))) {
      const Bytes welcome(reinterpret_cast<const std::byte*>(&where), sizeof where);
      auto made = incoming->accept(*queue, {.grant = Access::kRemoteReadAtomic}, welcome,
                                   Deadline::after_ms(clock, 1000));
      if (made) connections.push_back(std::move(*made));
    }
    Completion some[32];
    const std::size_t count = queue->poll(some);
    for (const Completion& one : std::span(some, count)) {
      if (one.kind == Completion::Kind::kReceive) queue->release({&one.receive_buffer, 1});
    }
  }
}

int hammer(const std::string& directory, const std::string& port) {
  const auto transport = must(open_shm({.directory = directory}));
  const auto queue = must(transport->create_queue({}));
  const SteadyClock clock;
  const auto connection = must(transport->connect(*queue, {}, "127.0.0.1:" + port, {},
                                                  Deadline::after_ms(clock, 10'000), nullptr));
  Whereabouts where;
  std::memcpy(&where, connection->private_data().data(), sizeof where);
  std::vector<std::byte> buffer(4096);
  for (std::uint64_t i = 0;; ++i) {
    std::vector<Operation> batch;
    batch.push_back(Operation::read(buffer, 0, where.address + i % 64, where.key, i));
    batch.push_back(Operation::send(MutableBytes(buffer).first(i % 3000), 0, i));
    batch.push_back(Operation::read(MutableBytes(buffer).first(8), 0, where.address, where.key, i));
    batch.back().kind = Operation::Kind::kFetchAdd;
    batch.back().compare_or_add = 1;
    const auto posted = connection->post(batch);
    if (!posted) return 2;
    Completion some[32];
    const std::size_t count = queue->poll(some);
    for (const Completion& one : std::span(some, count)) {
      if (one.kind == Completion::Kind::kReceive) queue->release({&one.receive_buffer, 1});
    }
    if (count == 0) queue->wait(Deadline::after_ms(clock, 100));
  }
}

}  // namespace
}  // namespace rkv::rdma::shm

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "serve") return rkv::rdma::shm::serve(arguments[1]);
  if (arguments.size() == 3 && arguments[0] == "hammer") {
    return rkv::rdma::shm::hammer(arguments[1], arguments[2]);
  }
  return 64;
}
