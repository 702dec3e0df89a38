#include "rkv/rdma/group/multi_channel.h"

#include <utility>

#include "rdma/extras/group/channel_state.h"

namespace rkv::rdma {

struct MultiChannel::Bookkeeping {
  std::vector<detail::ChannelState::NodeRef> nodes;  // by index of the work
  std::vector<bool> posted;
  std::vector<Work> run;    // the current run of one peer's work
  std::vector<bool> late;   // peers with outstanding work at the deadline
  std::vector<bool> ready;  // peers that have finished their handshake
};

MultiChannel::MultiChannel(std::vector<Channel> peers)
    : peers_(std::move(peers)),
      descriptors_(2 * peers_.size()),
      books_(std::make_unique<Bookkeeping>()) {
  find_states();
}
MultiChannel::~MultiChannel() = default;

Channel& MultiChannel::operator[](std::uint32_t peer) {
  RKV_CHECK(peer < peers_.size(), "no such peer in the group");
  return peers_[peer];
}

// Each call begins with this: a broken channel may have been replaced by a new one.
void MultiChannel::find_states() {
  states_.clear();
  for (Channel& peer : peers_)
    states_.push_back(&detail::ChannelAccess::state(peer));
}

void MultiChannel::post_run(std::size_t first, std::size_t count, const Deadline& deadline) {
  books_->run.clear();
  for (std::size_t i = first; i < first + count; ++i)
    books_->run.push_back(work_[i].work);
  detail::ChannelState& peer = *states_[work_[first].peer];
  Status posted = peer.wait_established(books_->run, deadline);
  if (posted) posted = peer.post(books_->run, std::span(books_->nodes).subspan(first, count));
  for (std::size_t i = first; i < first + count; ++i) {
    // Receives of a refused list may be outstanding; they are awaited as well.
    books_->posted[i] = books_->nodes[i].is_set();
    outcomes_[i] = {.peer = work_[i].peer, .status = {}, .done = {}};
    if (!books_->posted[i]) outcomes_[i].status = posted;
  }
}

GroupOutcome MultiChannel::run(std::span<const PeerWork> work, const Deadline& deadline) {
  work_.assign(work.begin(), work.end());
  return run_prepared(deadline);
}

GroupOutcome MultiChannel::run_prepared(const Deadline& deadline) {
  find_states();
  outcomes_.resize(work_.size());
  books_->nodes.resize(work_.size());
  books_->posted.assign(work_.size(), false);
  books_->ready.clear();
  for (detail::ChannelState* peer : states_)
    books_->ready.push_back(peer->is_established());
  // Those whose peer has not finished its handshake come last, so that it holds up nobody.
  for (const bool established : {true, false}) {
    for (std::size_t i = 0; i < work_.size();) {
      RKV_CHECK(work_[i].peer < size(), "no such peer in the group");
      std::size_t count = 1;
      while (i + count < work_.size() && work_[i + count].peer == work_[i].peer)
        ++count;
      if (books_->ready[work_[i].peer] == established) post_run(i, count, deadline);
      i += count;
    }
  }
  const auto is_late = [&](std::size_t i) {
    return books_->posted[i] && !states_[work_[i].peer]->is_done(books_->nodes[i]);
  };
  std::size_t first = 0;  // all items before this one are done
  const bool in_time = detail::wait_until(states_, descriptors_, deadline, [&] {
    while (first < work_.size() && !is_late(first))
      ++first;
    return first == work_.size();
  });
  if (!in_time) {
    // Cut off only the late peers: the others keep their channels and their other outstanding work.
    books_->late.assign(size(), false);
    std::optional<Error> why;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (!is_late(i)) continue;
      const Error late = detail::timed_out(work_[i].work.op);
      if (!why) why = late;
      books_->late[work_[i].peer] = true;
      outcomes_[i].status = std::unexpected(late);
    }
    std::vector<detail::ChannelState*> cut;
    for (std::uint32_t peer = 0; peer < size(); ++peer) {
      if (books_->late[peer]) cut.push_back(states_[peer]);
    }
    if (why) detail::cut_off(cut, descriptors_, *why);
  }
  for (std::size_t i = 0; i < work_.size(); ++i) {
    if (!books_->posted[i]) continue;
    const Result<Done> done = states_[work_[i].peer]->take(books_->nodes[i]);
    if (!outcomes_[i].status) continue;  // keep the time-out: the flush error says less
    if (done) {
      outcomes_[i].done = *done;
    } else {
      outcomes_[i].status = std::unexpected(done.error());
    }
  }
  return GroupOutcome(outcomes_);
}

template <class Make>
GroupOutcome MultiChannel::with_each(const Deadline& deadline, Make make) {
  work_.clear();
  for (std::uint32_t peer = 0; peer < size(); ++peer)
    work_.push_back({.peer = peer, .work = make(peer)});
  return run_prepared(deadline);
}

GroupOutcome MultiChannel::scatter_send(std::span<const RegisteredSpan> messages,
                                        const Deadline& deadline) {
  RKV_CHECK(messages.size() == size(), "one message for each peer");
  return with_each(deadline, [&](std::uint32_t peer) { return Work::send(messages[peer]); });
}
GroupOutcome MultiChannel::scatter_write(std::span<const RegisteredSpan> from,
                                         std::span<const RemoteSpan> to, const Deadline& deadline) {
  RKV_CHECK(from.size() == size() && to.size() == size(), "one piece for each peer");
  return with_each(deadline, [&](std::uint32_t peer) { return Work::write(from[peer], to[peer]); });
}
GroupOutcome MultiChannel::gather_receive(std::span<const RegisteredSpan> buffers,
                                          const Deadline& deadline) {
  RKV_CHECK(buffers.size() == size(), "one buffer for each peer");
  return with_each(deadline, [&](std::uint32_t peer) { return Work::receive(buffers[peer]); });
}
GroupOutcome MultiChannel::gather_read(std::span<const RegisteredSpan> to,
                                       std::span<const RemoteSpan> from, const Deadline& deadline) {
  RKV_CHECK(from.size() == size() && to.size() == size(), "one piece for each peer");
  return with_each(deadline, [&](std::uint32_t peer) { return Work::read(to[peer], from[peer]); });
}
GroupOutcome MultiChannel::multicast_send(const RegisteredSpan& message, const Deadline& deadline) {
  return with_each(deadline, [&](std::uint32_t) { return Work::send(message); });
}

// ---- GroupScope ----

GroupScope::GroupScope(MultiChannel& group, const Deadline& deadline)
    : group_(&group), deadline_(deadline) {
  group.find_states();
  for (detail::ChannelState* state : group.states_)
    state->open_scope();
}

GroupScope::~GroupScope() {
  if (!left_) leave();
}

detail::ChannelState& GroupScope::state(std::uint32_t peer) const {
  RKV_CHECK(peer < group_->size(), "no such peer in the group");
  return *group_->states_[peer];
}

Status GroupScope::post(std::uint32_t peer, std::span<const Work> work) {
  RKV_RETURN_IF_ERROR(state(peer).wait_established(work, deadline_));
  return state(peer).post(work, {});
}

void GroupScope::leave() {
  left_ = true;
  std::vector<detail::ChannelState*>& states = group_->states_;
  std::vector<bool>& late = group_->books_->late;
  late.assign(states.size(), false);
  const bool settled = detail::wait_until(states, group_->descriptors_, deadline_, [&] {
    return std::ranges::all_of(states, [](auto* one) { return one->pending() == 0; });
  });
  for (std::size_t i = 0; i < states.size(); ++i)
    late[i] = !settled && states[i]->pending() != 0;
  if (!settled) {
    detail::cut_off(states, group_->descriptors_,
                    {.code = Code::kTimeout,
                     .text = "the deadline passed: outstanding operations were cut off"});
  }
  group_->scope_outcomes_.resize(states.size());
  for (std::uint32_t peer = 0; peer < states.size(); ++peer) {
    states[peer]->close_scope();
    Status status = states[peer]->take_failure();
    if (late[peer]) status = std::unexpected(states[peer]->cause());
    group_->scope_outcomes_[peer] = {.peer = peer, .status = status, .done = {}};
  }
}

}  // namespace rkv::rdma
