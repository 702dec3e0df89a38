#include "rdma/transport/verbs/connection.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/check.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::verbs {
namespace {

using Kind = rdma::Completion::Kind;
using CompletionStatus = rdma::Completion::Status;

// Flushing is local to the device; a longer wait means that the device hangs.
constexpr std::int64_t kDrainPatienceMs = 2000;

CompletionStatus status_of(ibv_wc_status status) {
  switch (explain(status).kind) {
    case WcClass::kSuccess:
      return CompletionStatus::kOk;
    case WcClass::kFlushed:
      return CompletionStatus::kFlushed;
    case WcClass::kRemoteRefused:
      return CompletionStatus::kRemoteAccess;
    default:
      return CompletionStatus::kFailed;
  }
}

bool is_atomic(const Operation& operation) {
  return operation.kind == Operation::Kind::kCompareSwap ||
         operation.kind == Operation::Kind::kFetchAdd;
}

constexpr SendOps kPosted = SendOps::kSend | SendOps::kRead;
constexpr SendOps kAtomics = SendOps::kCompareSwap | SendOps::kFetchAdd;

// Verbs do not report a device's longest inline message in advance, and some devices refuse a
// longer one. So shorter lengths are tried, down to 0.
Result<PreparedQueuePair<>> create_pair(const Shared& shared, const VerbsQueue& queue,
                                        QueuePairOptions options) {
  auto made = QueuePair::create(shared.pd, queue.completions(), queue.completions(), options);
  while (!made && made.error().code == Code::kInvalidArgument && options.inline_bytes != 0) {
    options.inline_bytes /= 2;
    auto less = QueuePair::create(shared.pd, queue.completions(), queue.completions(), options);
    if (less) return less;
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<VerbsConnection>> VerbsConnection::create(VerbsQueue& queue,
                                                                 const ConnectionOptions& options) {
  if (options.sends_in_flight == 0) {
    return fail(Code::kInvalidArgument, "a connection needs sends_in_flight of at least 1");
  }
  // Slots beside the user's: for the marker and a probe.
  const std::uint32_t slots = options.sends_in_flight + 1 + (options.peer_grants_reads ? 1U : 0U);
  RKV_ASSIGN_OR_RETURN(auto room, queue.room().reserve(slots));
  const Shared& shared = queue.shared();
  RKV_ASSIGN_OR_RETURN(auto qp,
                       create_pair(shared, queue,
                                   {.send_length = slots,
                                    .inline_bytes = options.inline_bytes,
                                    .shared = &queue.receives(),
                                    .operations = shared.atomics ? kPosted | kAtomics : kPosted}));
  return std::unique_ptr<VerbsConnection>(
      new VerbsConnection(queue, std::move(room), std::move(qp), options));
}

VerbsConnection::VerbsConnection(VerbsQueue& queue, CompletionReserve::Reservation room,
                                 PreparedQueuePair<> qp, const ConnectionOptions& options)
    : queue_(&queue),
      room_(std::move(room)),
      grant_(options.grant),
      unconnected_(std::move(qp)),
      pair_(unconnected_->share()),
      number_(unconnected_->number()),
      handle_(std::make_shared<Handle>()),
      limits_{.reads_in_flight = 1,
              .sends_in_flight = options.sends_in_flight,
              .inline_bytes = unconnected_->inline_bytes()},
      // While everything is posted unsignaled, the state of at most a quarter of the queue is
      // unknown.
      signal_every_(std::max(1U, options.sends_in_flight / 4)),
      ring_(std::bit_ceil(room_.entries())),
      atomics_(queue.shared().atomics),
      wants_probes_(options.peer_grants_reads),
      probes_(wants_probes_ && !queue.shared().iwarp) {
  handle_->number = number_;
  if (queue.is_soft_roce()) unwritten_.emplace(ring_.size());
}

ConnectionParameters VerbsConnection::parameters() const {
  return {.remote_access = grant_flags(grant_, queue_->shared().atomics)};
}

PreparedQueuePair<> VerbsConnection::take_queue_pair() {
  PreparedQueuePair<> qp = std::move(*unconnected_);
  unconnected_.reset();
  return qp;
}

void VerbsConnection::note_connected() {
  handle_->established.store(true, std::memory_order_release);
  probes_ = wants_probes_;
}

void VerbsConnection::adopt(CmConnection link, std::string peer) {
  limits_.reads_in_flight = std::max<std::uint32_t>(1, link.depths.initiator);
  probes_ = probes_ && link.depths.initiator != 0;
  peer_ = std::move(peer);
  link_.emplace(std::move(link));
  pair_.reset();
  alive_.store(true, std::memory_order_relaxed);
  queue_->attach(*this);
}

VerbsConnection::~VerbsConnection() {
  // If never connected, only the device's stray receives may name the number.
  if (!link_) {
    unconnected_.reset();
    queue_->forget(std::move(pair_));
    return;
  }
  queue_->process_control_events();
  bool flushed = true;
  if (!closed_) {
    close();
    const SteadyClock clock;
    flushed = next_ <= marker_ ||
              queue_->drain(number_, marker_, Deadline::after_ms(clock, kDrainPatienceMs));
  }
  if (flushed && !queue_->is_broken()) {
    queue_->retire(link_->qp.share());
    // Ends the id at once: this aborts a handshake in progress.
    link_.reset();
    return;
  }
  if (!queue_->is_broken()) {
    report_teardown(fail_call(Code::kInternal, "ibv_modify_qp", 0,
                              "the device did not flush a queue pair in the error state"));
  }
  // Destroys the queue pair: from here on the device touches no buffer.
  link_.reset();
  queue_->detach(number_);
}

void VerbsConnection::append(Batch& batch, const Operation& operation, std::uint64_t number) {
  bool signal = operation.signaled || ++unsignaled_ >= signal_every_;
  if (unwritten_) {
    if (operation.kind == Operation::Kind::kSend) {
      unwritten_->expect_nothing(number);
    } else {
      unwritten_->expect(number, operation.local);
      signal = true;  // a later operation's success does not show that this one's data arrived
    }
  }
  if (signal) unsignaled_ = 0;
  const OpFlags flags = signal ? OpFlags::kSignaled : OpFlags::kNone;
  ring_[number & (ring_.size() - 1)] = {.context = operation.context,
                                        .kind = completion_kind(operation.kind),
                                        .report = operation.signaled};
  if (operation.kind == Operation::Kind::kSend && operation.inline_data) {
    batch.send(number, flags, inlined(operation.local));
    return;
  }
  const RegisteredSpan local = RegisteredSpan::unchecked(operation.local, operation.local_key);
  const RemoteSpan remote{.address = operation.remote_address,
                          .length = operation.local.size(),
                          .rkey = operation.remote_key};
  switch (operation.kind) {
    case Operation::Kind::kRead:
      if (probe_.rkey == 0) [[unlikely]] {
        probe_ = {.address = operation.remote_address,
                  .length = queue_->probed_bytes(operation.local.size()),
                  .rkey = operation.remote_key};
      }
      batch.read(number, flags, local, remote);
      break;
    case Operation::Kind::kCompareSwap:
      batch.compare_swap(number, flags, local, remote, operation.compare_or_add, operation.swap);
      break;
    case Operation::Kind::kFetchAdd:
      batch.fetch_add(number, flags, local, remote, operation.compare_or_add);
      break;
    case Operation::Kind::kSend:
      batch.send(number, flags, local);
      break;
  }
}

Result<std::size_t> VerbsConnection::post(std::span<const Operation> operations) {
  if (!alive()) {
    return fail_call(Code::kDisconnected, "ibv_wr_complete", 0, "the connection is down");
  }
  const std::uint64_t room = limits_.sends_in_flight + probing_ - (next_ - oldest_);
  const std::size_t count = std::min<std::size_t>(room, operations.size());
  if (count == 0) return 0U;
  if (!atomics_ && std::ranges::any_of(operations.first(count), is_atomic)) [[unlikely]] {
    return fail(Code::kUnsupported, "the RDMA device has no atomic operations");
  }
  Batch batch = link_->qp.batch();
  for (std::size_t i = 0; i < count; ++i)
    append(batch, operations[i], next_ + i);
  if (const Status posted = std::move(batch).submit(); !posted) {
    close();
    Error error = posted.error();
    error.code = Code::kDisconnected;
    return std::unexpected(error);
  }
  next_ += count;
  return count;
}

void VerbsConnection::abort() {
  // First the state, then the flag: a thread that sees the flag may post the marker, and a queue
  // pair that still works would send the marker to the peer.
  report_teardown(link_->qp.to_error());
  alive_.store(false, std::memory_order_release);
  queue_->wake_for_control();
}

void VerbsConnection::close() {
  if (closing_) return;
  closing_ = true;
  report_teardown(link_->qp.to_error());
  alive_.store(false, std::memory_order_release);
  report_teardown(link_->id.disconnect());
  marker_ = next_;
  if (queue_->shared().iwarp) return queue_->report_when_empty(*this);
  Batch batch = link_->qp.batch();
  batch.send(marker_, OpFlags::kSignaled, RegisteredSpan());
  if (!std::move(batch).submit()) {
    // This provider accepts no work in the error state.
    queue_->report_when_empty(*this);
    return;
  }
  ++next_;
}

void VerbsConnection::look_at_silence() {
  if (!probes_ || closing_ || !alive() || !handle_->established.load(std::memory_order_acquire))
    return;
  if (queue_->shared().iwarp && probe_.length == 0) return;
  ++silent_looks_;
  if (probing_ != 0) {
    if (silent_looks_ >= kProbeAfter + kGiveUpAfter) close();
    return;
  }
  if (silent_looks_ < kProbeAfter) return;
  const std::uint64_t number = next_;
  if (unwritten_) unwritten_->expect_nothing(number);
  ring_[number & (ring_.size() - 1)] = {
      .context = 0, .kind = Kind::kRead, .report = false, .probe = true};
  Batch batch = link_->qp.batch();
  batch.read(number, OpFlags::kSignaled, queue_->probe_sink(probe_.length), probe_);
  if (!std::move(batch).submit()) return close();
  ++next_;
  probing_ = 1;
  unsignaled_ = 0;  // its completion covers earlier operations
}

void VerbsConnection::finish(rdma::Completion& out) {
  closed_ = true;
  out = {.kind = Kind::kDisconnected, .connection = this};
}

// Reports unsignaled operations too, as the device would.
void VerbsConnection::tell_end(rdma::Completion& out) {
  if (oldest_ >= std::min(next_, marker_)) return finish(out);
  if (ring_[oldest_ & (ring_.size() - 1)].probe) {
    probing_ = 0;
    if (++oldest_ >= std::min(next_, marker_)) return finish(out);
  }
  const InFlight& entry = ring_[oldest_ & (ring_.size() - 1)];
  ++oldest_;
  out = {.kind = entry.kind,
         .status = CompletionStatus::kFlushed,
         .provider_status = IBV_WC_WR_FLUSH_ERR,
         .connection = this,
         .context = entry.context};
}

bool VerbsConnection::complete(const WorkCompletion& from, rdma::Completion& out) {
  // It was reported before: as the end without a marker, or because soft-iWARP flushed a READ
  // twice.
  if (from.wr_id < oldest_) [[unlikely]]
    return false;
  oldest_ = from.wr_id + 1;
  if (from.wr_id == marker_) {
    finish(out);
    return true;
  }
  const InFlight& entry = ring_[from.wr_id & (ring_.size() - 1)];
  heard();
  if (entry.probe) [[unlikely]] {
    probing_ = 0;
    if (!from.ok()) close();
    return false;
  }
  const bool no_data = from.ok() && unwritten_ && unwritten_->has(from.wr_id);
  const ibv_wc_status status = no_data ? IBV_WC_GENERAL_ERR : from.status;
  if (status == IBV_WC_SUCCESS && !entry.report) return false;
  out = {.kind = entry.kind,
         .status = status_of(status),
         .provider_status = static_cast<std::uint8_t>(status),
         .connection = this,
         .context = entry.context};
  if (status != IBV_WC_SUCCESS) [[unlikely]]
    close();
  return true;
}

}  // namespace rkv::rdma::verbs
