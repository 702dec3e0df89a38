#include "rdma/extras/channel/channel_state.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/clock.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {
namespace {

constexpr std::uint32_t kNone = ChannelState::NodeRef::kNone;

bool has_remote(WorkOp op) {
  return op != WorkOp::kSend && op != WorkOp::kSendImmediate && op != WorkOp::kReceive;
}

// True if the operation has an effect at the peer.
bool changes(WorkOp op) {
  return op != WorkOp::kReceive && op != WorkOp::kRead;
}

bool is_atomic(WorkOp op) {
  return op == WorkOp::kCompareSwap || op == WorkOp::kFetchAdd;
}

// A remote span is a peer's claim, so an operation that exceeds it is an error, not a programming
// bug.
Status check(const Work& work) {
  if (work.local.size() > kMaxSgeBytes) {
    return fail(Code::kInvalidArgument, "one operation carries less than 2 GiB");
  }
  if (is_atomic(work.op) && work.local.size() != 8) {
    return fail(Code::kInvalidArgument, "the old value of an atomic takes exactly 8 bytes");
  }
  if (is_atomic(work.op) && work.remote.address % 8 != 0) {
    return fail(Code::kInvalidArgument, "the word of an atomic is not at a multiple of 8");
  }
  if (has_remote(work.op) && work.local.size() > work.remote.length) {
    return fail(Code::kInvalidArgument, "the local span is longer than the remote one");
  }
  return {};
}

void add(Batch& batch, std::uint64_t id, const Work& work, bool in_line) {
  const OpFlags flags = work.flags | OpFlags::kSignaled;
  const Gather source = in_line ? Gather(inlined(work.local.bytes())) : Gather(work.local);
  switch (work.op) {
    case WorkOp::kSend:
      return batch.send(id, flags, source);
    case WorkOp::kSendImmediate:
      return batch.op(id).with(flags).immediate(work.immediate).send(source);
    case WorkOp::kWrite:
      return batch.write(id, flags, source, work.remote);
    case WorkOp::kWriteImmediate:
      return batch.op(id).with(flags).immediate(work.immediate).write(source, work.remote);
    case WorkOp::kRead:
      return batch.read(id, flags, work.local, work.remote);
    case WorkOp::kCompareSwap:
      return batch.compare_swap(id, flags, work.local, work.remote, work.operand, work.desired);
    case WorkOp::kFetchAdd:
      return batch.fetch_add(id, flags, work.local, work.remote, work.operand);
    case WorkOp::kReceive:
      break;
  }
}

}  // namespace

Error timed_out(WorkOp op) {
  return {.code = Code::kTimeout,
          .write = changes(op) ? WriteOutcome::kMayHaveHappened : WriteOutcome::kNotApplied,
          .call = to_string(op),
          .text = "the deadline passed, and the channel was cut off to release the buffer"};
}

ChannelState::ChannelState(CompletionChannel events, CompletionQueue queue,
                           std::optional<QueuePair> qp, const ChannelOptions& options)
    : options_(options),
      events_(std::move(events)),
      queue_(std::move(queue)),
      qp_(std::move(qp)),
      nodes_(options.sends + options.receives) {
  expected_.reserve(options.receives);
  for (std::uint32_t i = 0; i < nodes_.size(); ++i)
    nodes_[i].next = i + 1 < nodes_.size() ? i + 1 : kNone;
}

ChannelState::~ChannelState() {
  RKV_CHECK(!scope_open_, "a channel is destroyed within its own scope");
}

std::uint32_t ChannelState::find_expected(std::span<const Work> work, std::span<NodeRef> nodes) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < nodes.size() && !expected_.empty(); ++i) {
    if (work[i].op != WorkOp::kReceive) continue;
    nodes[i] = take_expected(work[i].local);
    if (nodes[i].is_set()) ++count;
  }
  return count;
}

Status ChannelState::check_room(std::span<const Work> work, std::uint32_t expected) {
  if (broken()) {
    return fail(Code::kDisconnected, "the channel is broken by an earlier failure: connect again");
  }
  std::uint32_t sends = 0;
  for (const Work& one : work) {
    RKV_RETURN_IF_ERROR(check(one));
    if (one.op != WorkOp::kReceive) ++sends;
  }
  const auto receives = static_cast<std::uint32_t>(work.size()) - sends - expected;
  // A node that is done but not taken occupies a node, not a queue slot. The length of the free
  // list counts such nodes.
  const auto fits = [&] {
    if (sends_ + sends > options_.sends || receives_ + receives > options_.receives) return false;
    std::size_t room = 0;
    for (std::uint32_t i = free_; i != kNone && room < sends + receives; i = nodes_[i].next)
      ++room;
    return room == sends + receives;
  };
  if (fits()) return {};
  reap();
  if (broken()) return check_room({}, 0);
  if (fits()) return {};
  return fail(Code::kBusy, "the channel is full: no more operations may be outstanding");
}

ChannelState::NodeRef ChannelState::acquire(const Work& work, bool abandoned) {
  const std::uint32_t index = free_;
  Node& node = nodes_[index];
  free_ = node.next;
  node.state = Node::State::kPosted;
  node.op = work.op;
  node.abandoned = abandoned;
  ++(work.op == WorkOp::kReceive ? receives_ : sends_);
  ++unseen_;
  if (abandoned) {
    ++abandoned_pending_;
    ++abandoned_total_;
  }
  return {.index = index, .generation = node.generation};
}

void ChannelState::release(std::uint32_t index) {
  Node& node = nodes_[index];
  ++node.generation;
  node.state = Node::State::kFree;
  node.next = std::exchange(free_, index);
}

// Undoes acquire() for an operation that was not posted.
void ChannelState::unacquire(NodeRef ref) {
  Node& node = at(ref);
  --(node.op == WorkOp::kReceive ? receives_ : sends_);
  --unseen_;
  if (node.abandoned) {
    --abandoned_pending_;
    --abandoned_total_;
  }
  release(ref.index);
}

Status ChannelState::post_receive(QueuePairBase& on, const RegisteredSpan& buffer, NodeRef node) {
  return on.post_receive(std::uint64_t{node.generation} << 32 | node.index, buffer);
}

Status ChannelState::expect(QueuePairBase& on, const RegisteredSpan& buffer) {
  const Work work = Work::receive(buffer);
  RKV_RETURN_IF_ERROR(check_room({&work, 1}, 0));
  const NodeRef node = acquire(work, false);
  if (const Status posted = post_receive(on, buffer, node); !posted) {
    unacquire(node);
    return posted;
  }
  expected_.push_back({.address = buffer.address(), .length = buffer.size(), .node = node});
  return {};
}

ChannelState::NodeRef ChannelState::take_expected(const RegisteredSpan& buffer) {
  const auto found = std::ranges::find_if(expected_, [&](const Expected& one) {
    return one.address == buffer.address() && one.length == buffer.size();
  });
  if (found == expected_.end()) return {};
  const NodeRef node = found->node;
  expected_.erase(found);
  return node;
}

void ChannelState::adopt(CmConnection link) {
  qp_.emplace(std::move(link.qp));
  link_.emplace(std::move(link));
}

Status ChannelState::wait_established(std::span<const Work> work, const Deadline& deadline) {
  const auto is_receive = [](const Work& one) { return one.op == WorkOp::kReceive; };
  return std::ranges::all_of(work, is_receive) ? Status{} : wait_established(deadline);
}

Status ChannelState::wait_established(const Deadline& deadline) {
  if (is_established() || broken()) return {};
  const Status done = link_->wait_established(deadline);
  if (done) return {};
  if (link_->ended) {
    check_link();
    return done;
  }
  // Nothing was posted, and nothing will be: the caller must not wait again.
  const Error error{.code = Code::kDisconnected,
                    .text =
                        "the peer did not finish its handshake by the deadline: the connection "
                        "was given up"};
  cut_off(*this, error);
  break_with(error);
  return std::unexpected(error);
}

bool ChannelState::is_established() {
  if (!link_ || link_->established) return true;
  check_link();  // takes the events that have arrived already
  return link_->established;
}

void ChannelState::check_link() {
  if (!link_) return;
  if (drain_until_) {
    if (drain_until_->passed()) finish_cut();
    return;
  }
  const Status alive = link_->check();
  if (alive) return;
  link_ended_ = !broken();
  begin_cut(alive.error());
  drain_until_ = Deadline::in(std::chrono::milliseconds(options_.drain_ms));
}

int ChannelState::patience_ms(int left_ms) const {
  return drain_until_ && pending() != 0 ? std::min(left_ms, drain_until_->left_ms()) : left_ms;
}

Status ChannelState::post(std::span<const Work> work, std::span<NodeRef> nodes) {
  RKV_CHECK(nodes.empty() || nodes.size() == work.size(), "one node per operation, or none");
  std::ranges::fill(nodes, NodeRef{});
  const bool abandoned = nodes.empty();
  const std::uint32_t expected = find_expected(work, nodes);
  if (expected == work.size() && expected != 0) return {};
  RKV_RETURN_IF_ERROR(check_room(work, expected));
  // Receives first, so that an answer to a message of the same list finds its buffer.
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (work[i].op != WorkOp::kReceive) continue;
    if (!abandoned && nodes[i].is_set()) continue;
    const NodeRef node = acquire(work[i], abandoned);
    if (const Status posted = post_receive(*qp_, work[i].local, node); !posted) {
      unacquire(node);
      return posted;
    }
    if (!abandoned) nodes[i] = node;
  }
  std::uint32_t first = kNone;  // head of a list of the sends, linked by `next`, in case they are
                                // refused
  Batch batch = qp_->batch();
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (work[i].op == WorkOp::kReceive) continue;
    const NodeRef node = acquire(work[i], abandoned);
    nodes_[node.index].next = std::exchange(first, node.index);
    add(batch, std::uint64_t{node.generation} << 32 | node.index, work[i],
        work[i].local.addressable() &&
            work[i].local.size() <= std::min(options_.inline_bytes, qp_->inline_bytes()));
    if (!abandoned) nodes[i] = node;
  }
  const bool refused = faults.refuse_sends && batch.count() != 0;
  const Status sent = refused ? Status(fail_call(Code::kBusy, "ibv_wr_complete", ENOMEM))
                              : std::move(batch).submit();
  if (sent) return sent;
  while (first != kNone) {
    const std::uint32_t index = std::exchange(first, nodes_[first].next);
    unacquire({.index = index, .generation = nodes_[index].generation});
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (work[i].op != WorkOp::kReceive) nodes[i] = NodeRef{};
  }
  // Some operations of the list may have been accepted, and no device may use their buffers after
  // this call. Operations that were posted earlier end as flushed.
  if (qp_->refused_in_the_middle()) {
    break_with(sent.error());
    destroy_queue_pair();
  }
  return sent;
}

std::size_t ChannelState::reap() {
  if (pending() == 0 || faults.lose_completions) return 0;
  std::size_t all = 0;
  std::array<WorkCompletion, 32> some;
  for (;;) {
    const Result<std::size_t> found = queue_.poll(some);
    if (!found) {
      break_with(found.error());
      destroy_queue_pair();
      return all + 1;
    }
    for (std::size_t i = 0; i < *found; ++i)
      complete(some[i]);
    all += *found;
    if (*found < some.size()) return all;
  }
}

void ChannelState::complete(const WorkCompletion& completion) {
  const auto index = static_cast<std::uint32_t>(completion.wr_id);
  const auto generation = static_cast<std::uint32_t>(completion.wr_id >> 32);
  RKV_CHECK(index < nodes_.size() && nodes_[index].generation == generation &&
                nodes_[index].state == Node::State::kPosted,
            "the channel did not post the work of this completion");
  Node& node = nodes_[index];
  node.state = Node::State::kDone;
  node.completion = completion;
  --(node.op == WorkOp::kReceive ? receives_ : sends_);
  if (!completion.ok()) break_with(error_of(node));
  if (!node.abandoned) return;
  --abandoned_pending_;
  if (!completion.ok()) note_failure(error_of(node));
  release(index);
}

Error ChannelState::error_of(const Node& node) const {
  Error error = wc_error(to_string(node.op), node.completion.status);
  // Flushed work does not show the reason.
  if (link_ended_ && node.completion.status == IBV_WC_WR_FLUSH_ERR) error = *cause_;
  const WcClass kind = explain(node.completion.status).kind;
  // An operation refused on either side was not carried out. For any other error the outcome is
  // unknown.
  if (changes(node.op) && kind != WcClass::kLocalError && kind != WcClass::kRemoteRefused) {
    error.write = WriteOutcome::kMayHaveHappened;
  }
  return error;
}

Result<Done> ChannelState::take(NodeRef ref) {
  const Node& node = at(ref);
  RKV_CHECK(node.state == Node::State::kDone,
            "the result of an operation was taken before it is done");
  --unseen_;
  const WorkCompletion completion = node.completion;
  const Error error = completion.ok() ? Error{} : error_of(node);
  release(ref.index);
  if (!completion.ok()) return std::unexpected(error);
  return Done{.bytes = completion.byte_length,
              .immediate = completion.immediate,
              .has_immediate = completion.has_immediate};
}

void ChannelState::abandon(NodeRef ref) {
  Node& node = at(ref);
  node.abandoned = true;
  ++abandoned_total_;
  if (node.state == Node::State::kPosted) {
    ++abandoned_pending_;
    return;
  }
  if (!node.completion.ok()) note_failure(error_of(node));
  release(ref.index);
}

void ChannelState::open_scope() {
  RKV_CHECK(!scope_open_, "scopes of one channel do not nest");
  RKV_CHECK(pending() == 0 && expected_.empty(),
            "a scope is opened while operations are outstanding, or a receive is expected");
  scope_open_ = true;
  unseen_ = abandoned_total_ = 0;
  failure_.reset();
}

// A handle that still exists (only possible if it was kept on the heap) is detected by the new
// generation.
void ChannelState::close_scope() {
  RKV_CHECK(pending() == 0, "a scope is closed while operations are outstanding");
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].state != Node::State::kDone) continue;
    if (!nodes_[i].completion.ok()) note_failure(error_of(nodes_[i]));
    release(i);
  }
  unseen_ = abandoned_total_ = 0;
  scope_open_ = false;
}

void ChannelState::see_abandoned() {
  unseen_ -= std::exchange(abandoned_total_, abandoned_pending_) - abandoned_pending_;
}

void ChannelState::note_failure(const Error& error) {
  if (!failure_) failure_ = error;
}

void ChannelState::note_refused(const Error& error) {
  ++unseen_;
  ++abandoned_total_;
  note_failure(error);
}

Status ChannelState::take_failure() {
  if (!failure_) return {};
  return std::unexpected(*std::exchange(failure_, std::nullopt));
}

void ChannelState::break_with(const Error& error) {
  if (!cause_) cause_ = error;
}

void ChannelState::begin_cut(const Error& why) {
  break_with(why);
  if (pending() == 0 || faults.skip_cut) return;
  // A device that was removed refuses the transition; then the queue pair is destroyed at once.
  if (qp_ && !qp_->to_error()) destroy_queue_pair();
}

void ChannelState::finish_cut() {
  if (pending() != 0) destroy_queue_pair();
}

void ChannelState::destroy_queue_pair() {
  if (!faults.skip_cut) qp_.reset();
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].state != Node::State::kPosted) continue;
    complete(
        {.wr_id = std::uint64_t{nodes_[i].generation} << 32 | i, .status = IBV_WC_WR_FLUSH_ERR});
  }
}

bool wait_some(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
               const Deadline& deadline) {
  AdaptiveWait policy(kFewCores);
  while (policy.miss() != AdaptiveWait::Step::kSleep) {
    std::size_t found = 0;
    for (ChannelState* channel : channels)
      found += channel->reap();
    if (found != 0) return true;
    sched_yield();
  }
  if (deadline.passed()) return false;
  // A completion between the last poll and arm() raises no event, so poll once more between arming
  // and sleeping.
  std::size_t waiting = 0;
  for (ChannelState* channel : channels) {
    if (channel->pending() == 0) continue;
    if (channel->faults.before_arming) channel->faults.before_arming();
    if (const Status armed = channel->queue().arm(); !armed) {
      channel->break_with(armed.error());
      channel->destroy_queue_pair();
      return true;
    }
    descriptors[waiting++] = {.fd = channel->events().fd(), .events = POLLIN, .revents = 0};
    if (!channel->link() || channel->link()->ended) continue;
    descriptors[waiting++] = {.fd = channel->link()->channel.fd(), .events = POLLIN, .revents = 0};
  }
  for (ChannelState* channel : channels) {
    if (channel->reap() != 0) return true;
  }
  int patience_ms = deadline.left_ms();
  for (const ChannelState* channel : channels)
    patience_ms = channel->patience_ms(patience_ms);
  const int ready = ::poll(descriptors.data(), waiting, patience_ms);
  for (ChannelState* channel : channels) {
    // An error is ignored: if a channel's events cannot be read, a queue error or the deadline
    // shows that.
    if (ready > 0) std::ignore = channel->events().drain();
    // Completions that arrived before the end are taken first.
    if (channel->reap() == 0) channel->check_link();
  }
  return ready != 0 || !deadline.passed();
}

std::uint32_t cut_off(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                      const Error& why) {
  static const SteadyClock clock;
  std::uint32_t count = 0;
  std::int64_t patience_ms = 0;
  for (ChannelState* channel : channels) {
    if (channel->pending() == 0) continue;
    count += channel->pending();
    patience_ms = std::max(patience_ms, channel->options().drain_ms);
    channel->begin_cut(why);
    if (channel->faults.skip_cut) channel->finish_cut();
  }
  const auto drained = [&] {
    return std::ranges::all_of(channels, [](ChannelState* c) { return c->pending() == 0; });
  };
  if (count == 0) return 0;
  wait_until(channels, descriptors, Deadline::after_ms(clock, patience_ms), drained);
  for (ChannelState* channel : channels)
    channel->finish_cut();
  return count;
}

std::uint32_t cut_off(ChannelState& channel, const Error& why) {
  ChannelState* const one[] = {&channel};
  pollfd descriptors[2];
  return cut_off(one, descriptors, why);
}

std::uint32_t settle(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                     const Deadline& deadline) {
  const bool settled = wait_until(channels, descriptors, deadline, [&] {
    return std::ranges::all_of(channels, [](ChannelState* c) { return c->pending() == 0; });
  });
  if (settled) return 0;
  return cut_off(
      channels, descriptors,
      {.code = Code::kTimeout, .text = "the deadline passed: outstanding operations were cut off"});
}

}  // namespace rkv::rdma::detail
