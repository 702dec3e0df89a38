// VerbsConnection: a reliable connected queue pair bound to a VerbsQueue.
//
// Requests are numbered. The number is the wr_id; a ring keeps the data to report when a request
// completes. Requests complete in the order posted, so a completion also ends every unsignaled
// request before it.
//
// End of a connection: the queue pair goes to the error state, then a marker is posted after all
// other work. All outstanding requests complete as flushed, the marker last; the marker becomes
// kDisconnected. (The LAST_WQE event, meant for this, does not arrive on SoftRoCE.) On iWARP
// no marker is posted, because soft-iWARP never flushes work that was posted in the error state. It
// flushes the rest before the change to that state returns. So there kDisconnected follows when the
// completion queue is empty.
//
// End of the peer's host: only an operation in flight notices a host that ends silently. So
// look_at_silence(), which the queue calls every kLookEvery, posts a READ of no bytes when nothing
// has come from the peer for kProbeAfter looks. It touches no memory and is not reported. If it
// fails, or is not answered within kGiveUpAfter looks, the connection ends. The latter is for
// providers that retry for longer, such as iWARP over TCP. No key is needed for it, but SoftRoCE of
// Linux 6.1 ends the connection if a READ by key 0 is retransmitted. So a probe names the memory
// that the first READ of the connection named.
//
// On iWARP a probe READs up to 8 bytes. If a READ of no bytes comes while soft-iWARP sends, it
// answers with the bytes that it was sending, or by the end of the connection (siw_activate_tx). So
// there a probe needs memory that the peer keeps open: only the side that connected probes, after
// its first READ.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "rdma/transport/verbs/queue.h"
#include "rdma/transport/verbs/unwritten.h"

namespace rkv::rdma::verbs {

class VerbsConnection final : public Connection {
 public:
  // Reserves completion entries in the queue. adopt() adds the link.
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

  // Connection set-up. take_queue_pair() returns the queue pair to connect, once.
  PreparedQueuePair<> take_queue_pair();
  ConnectionParameters parameters() const;
  // The data that events about this connection may touch, on any thread. A thread that reads an
  // event keeps the Handle alive beyond the connection: an accept that fails may destroy the
  // connection meanwhile.
  struct Handle {
    std::uint32_t number = 0;             // of the queue pair
    std::atomic<bool> peer_left = false;  // may be set before adopt()
    // The peer has heard that it is connected. Before that it answers no probe.
    std::atomic<bool> established = false;
  };
  // For CmId::set_owner: expires with this connection.
  std::weak_ptr<Handle> handle() const { return handle_; }
  // This side connected, so the peer has heard that it is connected; the side that accepted learns
  // that by an event.
  void note_connected();
  // The link is established: joins the queue.
  void adopt(CmConnection link, std::string peer);

  // For VerbsQueue, on its thread.
  std::uint32_t number() const { return number_; }
  // Fills `out`. Returns whether `out` must be reported to the user.
  bool complete(const WorkCompletion& from, rdma::Completion& out);
  // Begins the end of the connection; idempotent.
  void close();
  static constexpr Nanos kLookEvery = 500 * kNanosPerMs;
  static constexpr std::uint32_t kProbeAfter = 3;   // so the peer was silent for more than 1 s
  static constexpr std::uint32_t kGiveUpAfter = 3;  // more than 1 s after the probe
  void look_at_silence();
  // Call it when something has come from the peer.
  void heard() { silent_looks_ = 0; }
  bool closed() const { return closed_; }  // kDisconnected has been given to the user
  void finish(rdma::Completion& out);
  // Reports the end without the device, one completion per call: each outstanding operation as
  // flushed, then kDisconnected.
  void tell_end(rdma::Completion& out);
  bool is_pair(const void* queue_pair) const { return link_->qp.raw() == queue_pair; }
  bool has_handle(const void* handle) const { return handle_.get() == handle; }
  bool peer_left() const { return handle_->peer_left.load(std::memory_order_acquire); }

 private:
  struct InFlight {
    std::uint64_t context = 0;
    rdma::Completion::Kind kind = rdma::Completion::Kind::kRead;
    bool report = true;  // report success too
    bool probe = false;  // look_at_silence(): neither success nor failure is reported
  };

  VerbsConnection(VerbsQueue& queue, CompletionReserve::Reservation room, PreparedQueuePair<> qp,
                  const ConnectionOptions& options);
  void append(Batch& batch, const Operation& operation, std::uint64_t number);

  VerbsQueue* queue_;
  CompletionReserve::Reservation room_;  // returned when the queue has forgotten the connection
  Access grant_;
  std::optional<PreparedQueuePair<>> unconnected_;
  std::shared_ptr<ibv_qp> pair_;  // until the connection joins its queue
  std::optional<CmConnection> link_;
  std::string peer_;
  std::uint32_t number_;  // of the queue pair
  std::shared_ptr<Handle> handle_;
  ConnectionLimits limits_;
  std::uint32_t signal_every_;
  std::uint32_t unsignaled_ = 0;        // posted since the last signaled one
  std::vector<InFlight> ring_;          // a power of two long
  bool atomics_;                        // the device has them
  std::optional<Unwritten> unwritten_;  // on SoftRoCE
  std::uint64_t next_ = 0;              // number of the next request
  std::uint64_t oldest_ = 0;            // oldest not known to have completed
  std::uint64_t marker_ = ~std::uint64_t{0};
  RemoteSpan probe_{};              // the memory that a probe READs: no bytes, except on iWARP
  bool wants_probes_;               // whether the peer grants READs
  bool probes_;                     // this side may probe a silent peer by a READ
  std::uint32_t probing_ = 0;       // probes in flight, at most one
  std::uint32_t silent_looks_ = 0;  // number of looks since something came from the peer
  bool closing_ = false;
  bool closed_ = false;  // kDisconnected has been reported
  std::atomic<bool> alive_ = false;
};

}  // namespace rkv::rdma::verbs
