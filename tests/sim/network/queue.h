// SimQueue: completions and received messages of one fiber's connections.
//
// Invariants:
//  SIMQ-1  Entries for all completions of a connection are reserved before it exists (reserve()).
//  SIMQ-2  Each receive buffer is a separate allocation, created when a message arrives and freed
//      when it is released: reading it later is a use after free.
//
// Thread safety: none.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/sim/network/fabric.h"

namespace rkv::rdma::sim {

class Link;

class SimQueue final : public Queue {
 public:
  SimQueue(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host, const QueueOptions& options);
  ~SimQueue() override;

  std::size_t poll(std::span<Completion> out) override;
  void wait(const Deadline& deadline) override;
  void wake() override;
  void release(std::span<const std::uint32_t> receive_buffers) override;

  // ---- called by links
  struct Item {
    Completion completion;
    Link* link = nullptr;
    int side = 0;
    bool silent = false;  // for an unsignaled operation: only frees capacity
  };
  bool reserve(std::uint32_t completions);
  void unreserve(std::uint32_t completions) { reserved_ -= completions; }
  void push(const Item& item);
  bool has_receive_buffer();
  std::uint32_t receive_bytes() const { return options_.receive_bytes; }
  // Delivers a message. REQUIRES: has_receive_buffer().
  void deliver(Item item, Bytes message);
  // Drops all entries of one end of a link, whose connection is destroyed.
  void forget(const Link& link, int side);
  void nudge() { fabric_->scheduler().notify(point_); }

 private:
  struct Returning {  // a released buffer that the device cannot use yet
    std::uint32_t buffer;
    Nanos at;
  };
  std::shared_ptr<Fabric> fabric_;
  std::shared_ptr<Host> host_;
  QueueOptions options_;
  std::uint32_t reserved_;
  std::deque<Item> items_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::uint32_t> free_buffers_;
  std::deque<Returning> returning_;
  WaitPoint point_;
  bool woken_ = false;
  bool room_ = false;  // capacity freed by unreported completions
};

}  // namespace rkv::rdma::sim
