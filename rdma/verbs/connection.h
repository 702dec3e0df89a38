// VerbsConnection: a reliable connected queue pair bound to a VerbsQueue.
//
// Requests are numbered; the number is the wr_id, and a ring keeps what must be told about each
// when it completes. Requests complete in the order posted, so that a completion also ends every
// unsignaled request before it.
//
// How it ends: the queue pair goes to the error state, then a marker is posted behind everything
// else. All that is outstanding comes back flushed, the marker last: that is kDisconnected. (The
// LAST_WQE event, meant for this, does not come on SoftRoCE.)
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "rdma/verbs/queue.h"

namespace rkv::rdma::verbs {

class VerbsConnection final : public Connection {
 public:
  // Reserves room on the queue. The link is given by adopt().
  static Result<std::unique_ptr<VerbsConnection>> create(VerbsQueue& queue,
                                                         const ConnectionOptions& options);
  ~VerbsConnection() override;
  VerbsConnection(const VerbsConnection&) = delete;
  VerbsConnection& operator=(const VerbsConnection&) = delete;

  Result<std::size_t> post(std::span<const Operation> batch) override;
  ConnectionLimits limits() const override { return limits_; }
  Bytes private_data() const override { return link_->peer_data.bytes(); }
  const std::string& peer() const override { return peer_; }
  bool alive() const override { return alive_.load(std::memory_order_relaxed); }
  void abort() override;

  // Setting up. take_queue_pair() gives the queue pair to be connected, once.
  PreparedQueuePair<> take_queue_pair();
  ConnectionParameters parameters() const { return {.remote_access = grant_flags(grant_)}; }
  // What events about this connection may touch, on any thread: it outlives the connection for as
  // long as somebody looks at it, since an accept that fails destroys the connection while the
  // queue's thread reads an event about it.
  struct Handle {
    std::uint32_t number = 0;             // of the queue pair
    std::atomic<bool> peer_left = false;  // perhaps before adopt()
  };
  // For CmId::set_owner: expires with this connection.
  std::weak_ptr<Handle> handle() const { return handle_; }
  // The link stands: joins the queue.
  void adopt(CmConnection link, std::string peer);

  // For VerbsQueue, on its thread.
  std::uint32_t number() const { return number_; }
  // Fills `out` and returns true where the user shall hear of it.
  bool complete(const WorkCompletion& from, rdma::Completion& out);
  // Begins the end; idempotent.
  void close();
  bool closed() const { return closed_; }  // kDisconnected has been given to the user
  void finish(rdma::Completion& out);
  // One of what is left to be told without the device: operations as flushed, then the end.
  void tell_end(rdma::Completion& out);
  bool is_pair(const void* queue_pair) const { return link_->qp.raw() == queue_pair; }
  bool has_handle(const void* handle) const { return handle_.get() == handle; }
  bool peer_left() const { return handle_->peer_left.load(std::memory_order_acquire); }

 private:
  struct InFlight {
    std::uint64_t context = 0;
    rdma::Completion::Kind kind = rdma::Completion::Kind::kRead;
    bool report = true;  // on success too
  };

  VerbsConnection(VerbsQueue& queue, CompletionRoom::Reservation room, PreparedQueuePair<> qp,
                  const ConnectionOptions& options);
  void append(Batch& batch, const Operation& operation, std::uint64_t number);

  VerbsQueue* queue_;
  CompletionRoom::Reservation room_;  // given back when the queue has forgotten the connection
  Access grant_;
  std::optional<PreparedQueuePair<>> unconnected_;
  std::optional<CmConnection> link_;
  std::string peer_;
  std::uint32_t number_;  // of the queue pair
  std::shared_ptr<Handle> handle_;
  ConnectionLimits limits_;
  std::uint32_t signal_every_;
  std::uint32_t unsignaled_ = 0;  // posted since the last signaled one
  std::vector<InFlight> ring_;    // a power of two long
  std::uint64_t next_ = 0;        // number of the next request
  std::uint64_t oldest_ = 0;      // oldest not known to have completed
  std::uint64_t marker_ = ~std::uint64_t{0};
  bool closing_ = false;
  bool closed_ = false;  // kDisconnected has been reported
  std::atomic<bool> alive_ = false;
};

}  // namespace rkv::rdma::verbs
