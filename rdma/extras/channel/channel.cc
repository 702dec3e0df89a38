#include "rkv/rdma/channel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "common/bytes.h"
#include "rdma/extras/channel/channel_parts.h"

namespace rkv::rdma {
namespace {

constexpr std::array<const char*, 8> kNames = {
    "SEND",      "SEND with immediate", "receive",      "RDMA WRITE", "RDMA WRITE with immediate",
    "RDMA READ", "compare and swap",    "fetch and add"};
constexpr std::uint32_t kMostOperations = 16384;
constexpr std::uint32_t kMostSge = 32;

Status check(const ChannelOptions& options) {
  if (options.sends == 0 || options.sends > kMostOperations) {
    return fail(Code::kInvalidArgument, "ChannelOptions::sends is from 1 to 16384");
  }
  if (options.receives == 0 || options.receives > kMostOperations) {
    return fail(Code::kInvalidArgument, "ChannelOptions::receives is from 1 to 16384");
  }
  if (options.send_sge == 0 || options.send_sge > kMostSge) {
    return fail(Code::kInvalidArgument, "ChannelOptions::send_sge is from 1 to 32");
  }
  if (options.drain_ms < 0) {
    return fail(Code::kInvalidArgument, "ChannelOptions::drain_ms is not negative");
  }
  return {};
}

}  // namespace

Result<detail::ChannelParts> detail::make_parts(const ProtectionDomain& pd,
                                                const ChannelOptions& options) {
  RKV_RETURN_IF_ERROR(check(options));
  RKV_ASSIGN_OR_RETURN(CompletionChannel events, CompletionChannel::create(pd.device()));
  RKV_ASSIGN_OR_RETURN(
      CompletionQueue queue,
      CompletionQueue::create(pd.device(),
                              {.entries = options.sends + options.receives, .channel = &events}));
  RKV_ASSIGN_OR_RETURN(PreparedQueuePair<Rc> qp,
                       QueuePair::create(pd, queue, queue,
                                         {.send_length = options.sends,
                                          .receive_length = options.receives,
                                          .send_sge = options.send_sge,
                                          .inline_bytes = options.inline_bytes,
                                          .operations = options.operations}));
  return ChannelParts{std::move(events), std::move(queue), std::move(qp)};
}

const char* to_string(WorkOp op) {
  return kNames[static_cast<std::size_t>(op)];
}

// ---- Pending ----

Pending::Pending(detail::ChannelState& state, const Deadline& deadline, const Work& work)
    : state_(&state), deadline_(deadline) {
  detail::ChannelState::NodeRef node;
  Status posted = state.wait_established({&work, 1}, deadline);
  if (posted) posted = state.post({&work, 1}, {&node, 1});
  posted_ = posted.has_value();
  if (!posted_) refused_ = posted.error();
  node_ = node.index;
  generation_ = node.generation;
}

Pending::~Pending() {
  if (answered_) return;
  if (!posted_) {
    state_->note_refused(refused_);
    return;
  }
  const detail::ChannelState::NodeRef node = {.index = node_, .generation = generation_};
  if (state_->is_current(node)) state_->abandon(node);
}

bool Pending::finished() {
  if (answered_ || !posted_) return true;
  state_->reap();
  return state_->is_done({.index = node_, .generation = generation_});
}

Result<Done> Pending::wait() {
  return wait(deadline_);
}

Result<Done> Pending::wait(const Deadline& deadline) {
  RKV_CHECK(!answered_, "the result of an operation was taken twice");
  if (!posted_) {
    answered_ = true;
    return std::unexpected(refused_);
  }
  const detail::ChannelState::NodeRef node = {.index = node_, .generation = generation_};
  if (!detail::wait_until(*state_, deadline, [&] { return state_->is_done(node); })) {
    return fail(Code::kTimeout, "the deadline passed, and the operation is still outstanding");
  }
  answered_ = true;
  return state_->take(node);
}

// ---- Scope ----

Scope::Scope(detail::ChannelState& state, const Deadline& deadline)
    : state_(&state), deadline_(deadline) {
  state.open_scope();
}

Scope::~Scope() {
  std::uint32_t cut = 0;
  if (!left_) std::ignore = leave(cut);
}

Status Scope::post(std::span<const Work> work) {
  RKV_RETURN_IF_ERROR(state_->wait_established(work, deadline_));
  return state_->post(work, {});
}

Status Scope::wait_posted() {
  return wait_posted(deadline_);
}

Status Scope::wait_posted(const Deadline& deadline) {
  const bool all =
      detail::wait_until(*state_, deadline, [&] { return state_->abandoned_pending() == 0; });
  state_->see_abandoned();
  RKV_RETURN_IF_ERROR(state_->take_failure());
  if (all) return {};
  return fail(Code::kTimeout, "the deadline passed, and operations are still outstanding");
}

std::uint32_t Scope::unseen() const {
  return state_->unseen();
}

Status Scope::leave(std::uint32_t& cut) {
  left_ = true;
  detail::ChannelState* const one[] = {state_};
  pollfd descriptors[2];
  cut = detail::settle(one, descriptors, deadline_);
  state_->close_scope();
  const Status failed = state_->take_failure();
  // Operations that were cut off complete as flushed. The reason to report is the deadline, or an
  // earlier error that broke the connection.
  if (cut != 0) return std::unexpected(state_->cause());
  return failed;
}

// ---- Channel ----

Channel::Channel(std::unique_ptr<detail::ChannelState> state) : state_(std::move(state)) {}
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

Result<Channel> Channel::adopt(CompletionChannel events, CompletionQueue queue, QueuePair qp,
                               const ChannelOptions& options) {
  RKV_RETURN_IF_ERROR(check(options));
  // Otherwise every wait would end at its deadline.
  if (qp.raw()->send_cq != queue.raw() || qp.raw()->recv_cq != queue.raw()) {
    return fail(Code::kInvalidArgument,
                "the queue pair uses another completion queue than this one");
  }
  if (queue.raw()->channel != events.raw()) {
    return fail(Code::kInvalidArgument, "the completion queue was not created on this channel");
  }
  if (qp.raw()->srq != nullptr) {
    return fail(Code::kInvalidArgument, "the queue pair has a shared receive queue");
  }
  if (queue.entries() < options.sends + options.receives) {
    return fail(Code::kInvalidArgument,
                "the completion queue has fewer entries than sends + receives");
  }
  RKV_ASSIGN_OR_RETURN(const QueuePair::Queried found, qp.query(IBV_QP_CAP));
  if (found.created.cap.max_send_wr < options.sends ||
      found.created.cap.max_recv_wr < options.receives) {
    return fail(Code::kInvalidArgument,
                "the queue pair's queues are shorter than sends or receives of ChannelOptions");
  }
  return Channel(std::make_unique<detail::ChannelState>(std::move(events), std::move(queue),
                                                        std::move(qp), options));
}

detail::ChannelState& Channel::state() const {
  RKV_CHECK(state_ != nullptr, "the channel was moved from");
  return *state_;
}

Result<Done> Channel::run(const Work& work, const Deadline& deadline) {
  detail::ChannelState::NodeRef node;
  RKV_RETURN_IF_ERROR(state().wait_established({&work, 1}, deadline));
  RKV_RETURN_IF_ERROR(state().post({&work, 1}, {&node, 1}));
  if (!detail::wait_until(state(), deadline, [&] { return state().is_done(node); })) {
    const Error error = detail::timed_out(work.op);
    detail::cut_off(state(), error);
    std::ignore = state().take(node);
    return std::unexpected(error);
  }
  return state().take(node);
}

namespace {
Status without_value(const Result<Done>& done) {
  if (!done) return std::unexpected(done.error());
  return {};
}
Result<std::uint64_t> old_word(const Result<Done>& done, const RegisteredSpan& old_value) {
  if (!done) return std::unexpected(done.error());
  return load_le<std::uint64_t>(old_value.bytes().data());
}
}  // namespace

Status Channel::send(const RegisteredSpan& message, const Deadline& deadline) {
  return without_value(run(Work::send(message), deadline));
}
Status Channel::send_immediate(const RegisteredSpan& message, std::uint32_t immediate,
                               const Deadline& deadline) {
  return without_value(run(Work::send_immediate(message, immediate), deadline));
}
Result<Done> Channel::receive(const RegisteredSpan& buffer, const Deadline& deadline) {
  return run(Work::receive(buffer), deadline);
}
Status Channel::write(const RegisteredSpan& from, const RemoteSpan& to, const Deadline& deadline) {
  return without_value(run(Work::write(from, to), deadline));
}
Status Channel::write_immediate(const RegisteredSpan& from, const RemoteSpan& to,
                                std::uint32_t immediate, const Deadline& deadline) {
  return without_value(run(Work::write_immediate(from, to, immediate), deadline));
}
Status Channel::read(const RegisteredSpan& to, const RemoteSpan& from, const Deadline& deadline) {
  return without_value(run(Work::read(to, from), deadline));
}
Result<std::uint64_t> Channel::compare_swap(const RegisteredSpan& old_value, const RemoteSpan& word,
                                            std::uint64_t expected, std::uint64_t desired,
                                            const Deadline& deadline) {
  return old_word(run(Work::compare_swap(old_value, word, expected, desired), deadline), old_value);
}
Result<std::uint64_t> Channel::fetch_add(const RegisteredSpan& old_value, const RemoteSpan& word,
                                         std::uint64_t addend, const Deadline& deadline) {
  return old_word(run(Work::fetch_add(old_value, word, addend), deadline), old_value);
}

Status Channel::expect(const RegisteredSpan& buffer) {
  if (broken()) {
    return fail(Code::kDisconnected, "the channel is broken by an earlier failure: connect again");
  }
  return state().expect(queue_pair(), buffer);
}

namespace {

// Sleeps until the queue may have a completion, the connection an event, or the deadline passes.
Status sleep_on(detail::ChannelState& state, const Deadline& deadline) {
  const auto& link = state.link();
  std::array<pollfd, 2> descriptors = {
      {{.fd = state.events().fd(), .events = POLLIN, .revents = 0},
       {.fd = link ? link->channel.fd() : -1, .events = POLLIN, .revents = 0}}};
  if (::poll(descriptors.data(), descriptors.size(), deadline.left_ms()) <= 0) return {};
  RKV_RETURN_IF_ERROR(state.events().drain());
  return {};
}

Status check_connection(detail::ChannelState& state) {
  return state.link() ? state.link()->check() : Status{};
}

// When a connection ends, READs are refused or complete as flushed. The reason to report is how the
// connection ended, which the kernel may report a moment later.
std::unexpected<Error> why_failed(detail::ChannelState& state, const Error& error) {
  if (const auto& link = state.link(); link && !link->ended) {
    const auto patience = std::chrono::milliseconds(state.options().drain_ms);
    std::ignore = wait_readable(link->channel.fd(), Deadline::in(patience));
  }
  const Status alive = check_connection(state);
  return std::unexpected(alive ? error : alive.error());
}

// Runs a plan to its end. Ends early when the connection has ended.
Status run_reads(detail::ChannelState& state, const ReadPlan& plan, const Deadline& deadline) {
  ReadFlow flow(plan);
  std::array<WorkCompletion, 32> some;
  bool is_armed = false;
  while (!flow.done()) {
    // Both are read before the poll: READs that completed before the end, or in time, count.
    const Status alive = check_connection(state);
    const bool is_late = deadline.passed();
    const Status posted = alive ? flow.post(*state.qp()) : Status{};
    if (!posted) return why_failed(state, posted.error());
    RKV_ASSIGN_OR_RETURN(const std::size_t count, state.queue().poll(some));
    for (const WorkCompletion& one : std::span(some).first(count)) {
      const Result<bool> ours = flow.completed(one);
      if (!ours && one.status == IBV_WC_WR_FLUSH_ERR) return why_failed(state, ours.error());
      RKV_RETURN_IF_ERROR(ours);
      RKV_CHECK(*ours, "the channel's completion queue has a completion of other work");
    }
    if (count != 0) {
      is_armed = false;
    } else if (!alive) {
      return alive;
    } else if (is_late) {
      return fail_call(Code::kTimeout, "RDMA READ", 0,
                       "the deadline passed before all READs completed");
    } else if (!is_armed) {  // then poll once more: a completion before arm() raises no event
      if (state.faults.before_arming) state.faults.before_arming();
      RKV_RETURN_IF_ERROR(state.queue().arm());
      is_armed = true;
    } else {
      RKV_RETURN_IF_ERROR(sleep_on(state, deadline));
      is_armed = false;
    }
  }
  plan.copy();
  return {};
}

}  // namespace

// Uses no nodes: unsignaled READs have no completions. READs that cannot finish are ended by
// destroying the queue pair.
Status Channel::read_all(const ReadPlan& plan, const Deadline& deadline) {
  RKV_CHECK(state().pending() == 0, "read_all() while operations are outstanding");
  if (state().broken()) {
    return fail(Code::kDisconnected, "the channel is broken by an earlier failure: connect again");
  }
  if (plan.window() > state().options().sends) {
    return fail(Code::kInvalidArgument, "the plan's window is wider than ChannelOptions::sends");
  }
  RKV_RETURN_IF_ERROR(state().wait_established(deadline));
  const Status done = run_reads(state(), plan, deadline);
  if (!done) {
    state().break_with(done.error());
    state().destroy_queue_pair();
  }
  return done;
}

Result<ReadPlanLimits> Channel::read_limits() {
  RKV_ASSIGN_OR_RETURN(ReadPlanLimits limits, ReadPlanLimits::of(queue_pair(), state().queue()));
  limits.send_slots = std::min(limits.send_slots, state().options().sends);
  return limits;
}

ProtectionDomain Channel::domain() const {
  RKV_CHECK(state().qp().has_value(), "the queue pair has been destroyed to cut off its work");
  return state().qp()->domain();
}
Bytes Channel::peer_data() const {
  return state().link() ? state().link()->peer_data.bytes() : Bytes();
}

Status Channel::wait_until_peer_leaves(const Deadline& deadline) {
  RKV_CHECK(state().link().has_value(), "the channel was not connected by address (dial.h)");
  CmConnection& link = *state().link();
  while (!link.ended) {
    RKV_ASSIGN_OR_RETURN(const bool told, wait_readable(link.channel.fd(), deadline));
    state().check_link();
    if (!told && !link.ended) return fail(Code::kTimeout, "the peer has not left");
  }
  if (link.peer_left) return {};
  return std::unexpected(*link.ended);
}

Status Channel::disconnect() {
  RKV_CHECK(state().link().has_value(), "the channel was not connected by address (dial.h)");
  if (state().qp()) RKV_RETURN_IF_ERROR(state().qp()->to_error());
  state().break_with({.code = Code::kDisconnected, .text = "this side has disconnected"});
  return state().link()->id.disconnect();
}

bool Channel::broken() const {
  return state().broken();
}
Error Channel::why_broken() const {
  RKV_CHECK(broken(), "why_broken() needs a channel that is broken");
  return state().cause();
}
std::uint32_t Channel::outstanding() const {
  return state().pending();
}
QueuePair& Channel::queue_pair() {
  RKV_CHECK(state().qp().has_value(), "the queue pair has been destroyed to cut off its work");
  return *state().qp();
}
void Channel::check_seen(bool seen) {
  RKV_CHECK(seen, "a strict scope ended before the results of all operations were taken");
}

// ---- PreparedChannel ----

Result<PreparedChannel> PreparedChannel::create(const ProtectionDomain& pd,
                                                const ChannelOptions& options) {
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, pd.device().first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, pd.device().routable_gid(port));
  return create(pd, port, gid, options);
}

Result<PreparedChannel> PreparedChannel::create(const ProtectionDomain& pd, std::uint8_t port,
                                                const GidEntry& gid,
                                                const ChannelOptions& options) {
  RKV_ASSIGN_OR_RETURN(detail::ChannelParts parts, detail::make_parts(pd, options));
  RKV_ASSIGN_OR_RETURN(const Endpoint endpoint, parts.qp.endpoint(port, gid));
  return PreparedChannel(std::move(parts.events), std::move(parts.queue), std::move(parts.qp),
                         endpoint, options);
}

Result<Channel> PreparedChannel::connect(const Endpoint& peer,
                                         const ConnectionParameters& parameters) && {
  RKV_ASSIGN_OR_RETURN(QueuePair qp, std::move(qp_).handshake(peer, parameters));
  return Channel(std::make_unique<detail::ChannelState>(std::move(events_), std::move(queue_),
                                                        std::move(qp), options_));
}

}  // namespace rkv::rdma
