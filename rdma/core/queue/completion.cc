#include "rkv/rdma/completion.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/mutex.h"
#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/extended_completion.h"

namespace rkv::rdma {
namespace detail {

// Several threads may sleep on one channel. One of them, the leader, sleeps in poll(2) on the
// descriptor and takes the events for all; the others sleep on the condition variable. Otherwise a
// thread could take the event of another thread's queue, and that thread would not wake.
struct CompletionChannelState {
  std::shared_ptr<ibv_context> context;
  ibv_comp_channel* channel;
  Mutex mutex;  // also for the queues' event counts
  ConditionVariable taken;
  bool has_leader RKV_GUARDED_BY(mutex) = false;

  CompletionChannelState(std::shared_ptr<ibv_context> owner, ibv_comp_channel* raw)
      : context(std::move(owner)), channel(raw) {}
  CompletionChannelState(const CompletionChannelState&) = delete;
  CompletionChannelState& operator=(const CompletionChannelState&) = delete;
  ~CompletionChannelState() {
    report_teardown(from_errno("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel)));
  }
};

struct CompletionQueueState {
  // Acknowledging takes a lock inside libibverbs, so events are acknowledged in batches of this
  // size.
  static constexpr unsigned kAckBatch = 16;

  std::shared_ptr<ibv_context> context;
  std::shared_ptr<CompletionChannelState> channel;
  ibv_cq* queue = nullptr;
  ibv_cq_ex* extended = nullptr;
  void* user_context = nullptr;
  WcField fields = kBasicFields;
  std::uint64_t events RKV_GUARDED_BY(channel->mutex) = 0;
  // Events not acknowledged yet: below kAckBatch, and 0 once closing.
  unsigned unacknowledged RKV_GUARDED_BY(channel->mutex) = 0;
  bool closing RKV_GUARDED_BY(channel->mutex) = false;
  // rdma-core's SoftRoCE provider ends the poll itself when ibv_next_poll finds nothing. The
  // ibv_end_poll that must follow then skips a completion that has not arrived yet, and old
  // completions are delivered again. So on SoftRoCE each completion has its own poll.
  bool one_by_one = false;

  CompletionQueueState() = default;
  CompletionQueueState(const CompletionQueueState&) = delete;
  CompletionQueueState& operator=(const CompletionQueueState&) = delete;
  ~CompletionQueueState() {
    if (queue == nullptr) return;
    checked::queue_ends(queue);
    if (channel != nullptr) {
      // ibv_destroy_cq blocks until every event is acknowledged. From here on a thread that takes
      // an event acknowledges it at once and does not use this object afterwards.
      const MutexLock lock(channel->mutex);
      closing = true;
      acknowledge();
    }
    report_teardown(from_errno("ibv_destroy_cq", ibv_destroy_cq(queue)));
  }
  void acknowledge() RKV_REQUIRES(channel->mutex) {
    if (unacknowledged != 0) ibv_ack_cq_events(queue, std::exchange(unacknowledged, 0));
  }
};

}  // namespace detail

namespace {

void fill_plain(WorkCompletion& out, const ibv_wc& from, bool soft_roce) {
  out = {.wr_id = from.wr_id, .qp_num = from.qp_num, .status = from.status};
  if (!out.ok()) {
    out.vendor_error = from.vendor_err;
    return;
  }
  out.kind = detail::work_kind(from.opcode);
  out.byte_length = from.byte_len;
  if ((from.wc_flags & IBV_WC_WITH_IMM) != 0) {
    out.has_immediate = true;
    out.immediate = ntohl(from.imm_data);
  } else if ((from.wc_flags & detail::invalidate_flag(soft_roce)) != 0) {
    out.has_invalidated = true;
    out.immediate = from.invalidated_rkey;
  }
}

}  // namespace

Result<bool> wait_readable(int fd, const Deadline& deadline) {
  for (;;) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, deadline.left_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return verb_error("poll", errno);
    if (deadline.passed()) return false;
  }
}

Result<CompletionChannel> CompletionChannel::create(const Device& device) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_comp_channel * raw,
                       from_null("ibv_create_comp_channel", ibv_create_comp_channel(device.raw())));
  auto state = std::make_shared<detail::CompletionChannelState>(device.shared(), raw);
  const int flags = fcntl(raw->fd, F_GETFL);
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", flags));
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", fcntl(raw->fd, F_SETFL, flags | O_NONBLOCK)));
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", fcntl(raw->fd, F_SETFD, FD_CLOEXEC)));
  return CompletionChannel(std::move(state));
}

int CompletionChannel::fd() const {
  return state_->channel->fd;
}
ibv_comp_channel* CompletionChannel::raw() const {
  return state_->channel;
}

bool CompletionEvent::is_of(const CompletionQueue& other) const {
  return queue == other.raw();
}

Result<std::optional<CompletionEvent>> CompletionChannel::next_event() {
  for (;;) {
    // Taken and counted under one lock, so that the destructor of the queue sees both or neither.
    const MutexLock lock(state_->mutex);
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(state_->channel, &queue, &context) != 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<CompletionEvent>{};
      if (errno == EINTR) continue;
      return verb_error("ibv_get_cq_event", errno);
    }
    auto* state = static_cast<detail::CompletionQueueState*>(context);
    const CompletionEvent event{.context = state->user_context, .queue = queue};
    state->channel->mutex.assert_held();  // this channel's
    ++state->events;
    ++state->unacknowledged;
    if (state->closing || state->unacknowledged >= detail::CompletionQueueState::kAckBatch) {
      state->acknowledge();
    }
    return std::optional(event);
  }
}

Result<std::size_t> CompletionChannel::drain() {
  for (std::size_t taken = 0;; ++taken) {
    RKV_ASSIGN_OR_RETURN(const auto event, next_event());
    if (!event) return taken;
  }
}

const char* to_string(WcField one) {
  switch (one) {
    case WcField::kByteLength:
      return "byte length";
    case WcField::kImmediate:
      return "immediate data";
    case WcField::kQueuePair:
      return "queue pair number";
    case WcField::kSourceQueuePair:
      return "source queue pair";
    case WcField::kSlid:
      return "source LID";
    case WcField::kServiceLevel:
      return "service level";
    case WcField::kPathBits:
      return "path bits";
    case WcField::kTimestamp:
      return "completion time stamp";
    case WcField::kWallclock:
      return "completion wall clock";
    case WcField::kNone:
      break;
  }
  return "?";
}

// The extended calls can fill a WorkCompletion only if the queue reads all of kBasicFields. A
// provider may lack functions for fields that were not requested.
CompletionQueue::CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state)
    : state_(std::move(state)),
      extended_(has(state_->fields, kBasicFields) ? state_->extended : nullptr),
      chained_(state_->one_by_one || extended_ == nullptr ? &detail::polled_otherwise : extended_),
      one_by_one_(state_->one_by_one) {
  // A thread that takes an event of this queue gets the state's address from the kernel, which does
  // not synchronize in the C++ memory model. Taking this lock publishes the state to that thread.
  if (state_->channel == nullptr) return;
  const MutexLock published(state_->channel->mutex);
}

namespace {

struct OptionalField {
  WcField field;
  const char* lacks;
};
constexpr std::array kOptionalFields = {
    OptionalField{WcField::kTimestamp, "the device has no completion time stamps (kTimestamp)"},
    OptionalField{WcField::kWallclock,
                  "the device has no wall-clock time in completions (kWallclock)"},
};

// Returns the name of a field that the device refuses, by requesting each field alone; nullptr if
// each alone is accepted.
const char* lacking_field(ibv_context* context, WcField fields) {
  for (const OptionalField& candidate : kOptionalFields) {
    if (!has(fields, candidate.field)) continue;
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 1;
    wanted.wc_flags = std::to_underlying(candidate.field);
    ibv_cq_ex* trial = ibv_create_cq_ex(context, &wanted);
    if (trial == nullptr) return candidate.lacks;
    report_teardown(from_errno("ibv_destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(trial))));
  }
  return nullptr;
}

Status check_options(const Device& device, const CompletionQueueOptions& options,
                     const DeviceAttributes& limits) {
  if (options.entries == 0 || options.entries > limits.max_completions) {
    return fail_call(Code::kInvalidArgument, "ibv_create_cq_ex", 0,
                     "CompletionQueueOptions::entries is not from 1 to the device's "
                     "max_completions (DeviceAttributes)");
  }
  const int vectors = device.raw()->num_comp_vectors;
  if (options.vector != 0 && (vectors <= 0 || options.vector >= static_cast<unsigned>(vectors))) {
    return fail_call(Code::kInvalidArgument, "ibv_create_cq_ex", 0,
                     "CompletionQueueOptions::vector is not below the device's count of interrupt "
                     "vectors (ibv_context::num_comp_vectors)");
  }
  return {};
}

}  // namespace

Result<CompletionQueue> CompletionQueue::create(const Device& device,
                                                const CompletionQueueOptions& options) {
  return create(device, options, kBasicFields, false);
}

Result<CompletionQueue> CompletionQueue::create(const Device& device,
                                                const CompletionQueueOptions& options,
                                                WcField fields, bool classic) {
  auto state = std::make_shared<detail::CompletionQueueState>();
  state->context = device.shared();
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device.attributes());
  RKV_RETURN_IF_ERROR(check_options(device, options, limits));
  state->one_by_one = limits.soft_roce;
  state->user_context = options.context;
  state->fields = fields;
  if (options.channel != nullptr) state->channel = options.channel->state_;
  ibv_comp_channel* channel = state->channel != nullptr ? state->channel->channel : nullptr;
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = options.entries;
  wanted.cq_context = state.get();
  wanted.channel = channel;
  wanted.comp_vector = options.vector;
  wanted.wc_flags = std::to_underlying(fields) | checked::fields_needed();
  const bool standard = has(kStandardFields, fields);
  if (!classic) {
    errno = 0;
    state->extended = ibv_create_cq_ex(device.raw(), &wanted);
    if (state->extended != nullptr) {
      state->queue = ibv_cq_ex_to_cq(state->extended);
      checked::queue_begins(state->queue, state->extended);
      return CompletionQueue(std::move(state));
    }
    const int refused = errno != 0 ? errno : EIO;
    if (!standard) {
      if (const char* lacks = lacking_field(device.raw(), fields)) {
        return fail_call(Code::kUnsupported, "ibv_create_cq_ex", refused, lacks);
      }
    }
    if (!standard || (refused != EOPNOTSUPP && refused != ENOSYS)) {
      return verb_error("ibv_create_cq_ex", refused);
    }
  }
  errno = 0;  // a provider may leave it as it was: an older reason would be taken for its own
  RKV_ASSIGN_OR_RETURN(
      state->queue,
      from_null("ibv_create_cq",
                ibv_create_cq(device.raw(), static_cast<int>(options.entries), state.get(), channel,
                              static_cast<int>(options.vector))));
  checked::queue_begins(state->queue, nullptr);
  return CompletionQueue(std::move(state));
}

ibv_cq_ex detail::polled_otherwise = [] {
  ibv_cq_ex out{};
  out.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) { return kPolledOtherwise; };
  return out;
}();

Error Polled::error() const noexcept {
  RKV_CHECK(answer_ < 0, "the error of a poll that has none");
  if (answer_ <= -kPollCq)
    return verb_error("ibv_poll_cq", static_cast<int>(-answer_ - kPollCq)).error();
  return verb_error("ibv_start_poll", static_cast<int>(-answer_)).error();
}

Polled CompletionQueue::poll_otherwise(std::span<WorkCompletion> out) noexcept {
  return extended_ == nullptr ? poll_plain(out) : poll_one_by_one(out);
}

Polled CompletionQueue::poll_one_by_one(std::span<WorkCompletion> out) const noexcept {
  std::int64_t count = 0;
  for (WorkCompletion& one : out) {
    ibv_poll_cq_attr none{};
    const int started = ibv_start_poll(extended_, &none);
    // Completions read so far are valid; a broken queue fails again at the next call.
    if (started != 0 && started != ENOENT && count == 0) {
      return Polled::failed(started);
    }
    if (started != 0) break;
    detail::fill(one, extended_, true);
    ++count;
    ibv_end_poll(extended_);
  }
  return Polled::of_start_poll(count);
}

Polled CompletionQueue::poll_plain(std::span<WorkCompletion> out) const noexcept {
  std::array<ibv_wc, 32> raw;
  std::size_t count = 0;
  while (count < out.size()) {
    const auto room = static_cast<int>(std::min(raw.size(), out.size() - count));
    const int found = ibv_poll_cq(state_->queue, room, raw.data());
    // As from_count(), way 4 of error.h.
    if (found < 0) return Polled::of_poll_cq(found == -1 ? -EIO : found);
    for (int i = 0; i < found; ++i)
      fill_plain(out[count++], raw[static_cast<std::size_t>(i)], one_by_one_);
    if (found < room) break;
  }
  return Polled::of_poll_cq(static_cast<std::int64_t>(count));
}

Status CompletionQueue::arm(bool solicited_only) {
  return from_errno("ibv_req_notify_cq", ibv_req_notify_cq(state_->queue, solicited_only ? 1 : 0));
}

std::uint64_t CompletionQueue::events() const {
  if (state_->channel == nullptr) return 0;
  const MutexLock lock(state_->channel->mutex);
  return state_->events;
}

Result<bool> CompletionQueue::wait_event(std::uint64_t seen, const Deadline& deadline) {
  RKV_CHECK(state_->channel != nullptr, "wait_event() needs a completion queue with a channel");
  MutexLock lock(state_->channel->mutex);
  while (state_->events == seen) {
    if (deadline.passed()) return false;
    if (state_->channel->has_leader) {
      state_->channel->taken.wait_for(state_->channel->mutex,
                                      std::chrono::milliseconds(deadline.left_ms()));
      continue;
    }
    state_->channel->has_leader = true;
    lock.unlock();
    const Result<bool> readable = wait_readable(state_->channel->channel->fd, deadline);
    const Result<std::size_t> taken =
        readable && *readable ? CompletionChannel(state_->channel).drain() : 0U;
    lock.lock();
    // Events of any queue may have been taken, and a new leader is needed: wake all to check again.
    state_->channel->has_leader = false;
    state_->channel->taken.notify_all();
    if (!readable) return std::unexpected(readable.error());
    if (!taken) return std::unexpected(taken.error());
  }
  return true;
}

Result<std::size_t> CompletionQueue::wait(std::span<WorkCompletion> out, const Deadline& deadline) {
  RKV_CHECK(!out.empty(), "wait() needs space for at least one completion");
  const Result<std::size_t> present = poll(out);
  if (!present || *present != 0) return present;
  if (state_->channel == nullptr) return poll_until(out, deadline);
  for (;;) {
    const std::uint64_t seen = events();
    // Arm before the poll that decides to sleep: a completion between poll and arm would raise no
    // event, and the thread would not wake.
    RKV_RETURN_IF_ERROR(arm());
    const Result<std::size_t> found = poll(out);
    if (!found || *found != 0) return found;
    RKV_ASSIGN_OR_RETURN(const bool woken, wait_event(seen, deadline));
    if (!woken) return poll(out);
  }
}

Result<std::size_t> CompletionQueue::poll_until(std::span<WorkCompletion> out,
                                                const Deadline& deadline) {
  for (;;) {
    const bool last = deadline.passed();  // before the poll: a completion that came in time counts
    const Result<std::size_t> found = poll(out);
    if (!found || *found != 0 || last) return found;
    std::this_thread::yield();
  }
}

Result<std::size_t> CompletionQueue::wait_all(std::span<WorkCompletion> out,
                                              const Deadline& deadline) {
  std::size_t count = 0;
  while (count < out.size()) {
    RKV_ASSIGN_OR_RETURN(const std::size_t found, wait(out.subspan(count), deadline));
    if (found == 0) break;
    count += found;
  }
  return count;
}

Result<WorkCompletion> CompletionQueue::wait_one(const Deadline& deadline, const char* operation) {
  WorkCompletion one;
  RKV_ASSIGN_OR_RETURN(const std::size_t count, wait({&one, 1}, deadline));
  if (count == 0) {
    return fail_call(Code::kTimeout, operation, 0, "no completion came before the deadline");
  }
  if (!one.ok()) return std::unexpected(wc_error(operation, one.status));
  return one;
}

Status CompletionQueue::resize(std::uint32_t entries) {
  if (entries == 0 || entries > 0x7FFF'FFFF) {
    return fail_call(Code::kInvalidArgument, "ibv_resize_cq", 0,
                     "entries is not from 1 to the device's max_completions (DeviceAttributes)");
  }
  return from_errno("ibv_resize_cq", ibv_resize_cq(state_->queue, static_cast<int>(entries)));
}

std::uint32_t CompletionQueue::entries() const {
  return static_cast<std::uint32_t>(state_->queue->cqe);
}
bool CompletionQueue::extended() const {
  return state_->extended != nullptr;
}
WcField CompletionQueue::fields() const {
  return state_->fields;
}
ibv_cq* CompletionQueue::raw() const {
  return state_->queue;
}
ibv_cq_ex* CompletionQueue::raw_extended() const {
  return state_->extended;
}

}  // namespace rkv::rdma
