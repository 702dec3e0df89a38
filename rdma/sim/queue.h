// SimQueue: completions and messages of one fiber's connections.
//
// Invariants:
//  Q1  Room for every completion is reserved before a connection exists (reserve()).
//  Q2  A receive buffer is memory of its own, made when a message arrives and freed when it is
//      released: reading it later is a use after free.
//
// Thread safety: none.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "rdma/sim/fabric.h"

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

  // ---- for links
  struct Item {
    Completion completion;
    Link* link = nullptr;
    int side = 0;
    bool silent = false;  // of an unsignaled operation: only gives room back
  };
  bool reserve(std::uint32_t completions);
  void unreserve(std::uint32_t completions) { reserved_ -= completions; }
  void push(const Item& item);
  bool has_receive_buffer();
  std::uint32_t receive_bytes() const { return options_.receive_bytes; }
  // A message arrives. REQUIRES a receive buffer.
  void deliver(Item item, Bytes message);
  // Forgets everything about one end of a link: its connection is destroyed.
  void forget(const Link& link, int side);
  void nudge() { fabric_->scheduler().notify(point_); }

 private:
  struct Returning {  // a buffer on its way back to the device
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
  bool room_ = false;  // by completions that nobody was told of
};

}  // namespace rkv::rdma::sim
