// Several nodes within this process, one thread each, on one device.
#pragma once

#include <exception>
#include <thread>

#include "code_of.h"
#include "rkv/rdma/group/node.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

class World {
 public:
  explicit World(std::uint32_t size) : device_(need(Device::open_first_active())) {
    std::vector<HostPort> addresses;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      doors_.push_back(need(ExchangeListener::open({.host = "127.0.0.1", .port = 0}, soon())));
      addresses.push_back({.host = "127.0.0.1", .port = doors_.back().port()});
    }
    cluster_ = need(Cluster::of(addresses));
  }

  std::uint32_t size() const { return cluster_->size(); }
  const Device& device() const { return device_; }
  const Cluster& cluster() const { return *cluster_; }
  ExchangeListener& door(std::uint32_t rank) { return doors_[rank]; }

  // Runs body(Node&) in each rank's thread. An exception of body was reported as a failure before.
  template <class Body>
  void run(Body body, const NodeOptions& options = {}) {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const ProtectionDomain pd = need(ProtectionDomain::allocate(device_));
          std::string problem;
          Result<Node> node =
              Node::join(pd, *cluster_, rank, std::move(doors_[rank]), late(), options, &problem);
          ASSERT_TRUE(node) << "rank " << rank << ": " << to_string(node.error()) << problem;
          body(*node);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  }
  // For many threads on few processors.
  static Deadline late() { return soon(30'000); }

 private:
  Device device_;
  std::vector<ExchangeListener> doors_;
  std::optional<Cluster> cluster_;
};

}  // namespace rkv::rdma::testing
