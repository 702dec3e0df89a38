// Channels to several peers, used together: one doorbell per peer, and one wait for all peers.
//
//   MultiChannel peers(std::move(channels));
//   GroupOutcome sent = peers.multicast_send(message, deadline);
//   GroupOutcome got = peers.gather_read(places, tables, deadline);    // one READ from each
//   for (const PeerOutcome& one : got.each())
//     if (!one.status) ...                                             // only that peer failed
//
// A peer that fails, or has not answered at the deadline, breaks only its own channel. Outcome i
// belongs to work item i. As with a single channel, no posted request names any buffer after a call
// has returned.
//
// Thread safety: one thread at a time, the channels included. Bookkeeping memory is allocated when
// a call has more work than any call before.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rkv/export.h"
#include "rkv/rdma/channel.h"
#include "rkv/result.h"

namespace rkv::rdma {

// A span of one peer's memory, and that peer's index.
struct PeerMemory {
  std::uint32_t peer = 0;
  RemoteSpan span;
  // Empty if the range reaches outside the span.
  std::optional<PeerMemory> subspan(std::uint64_t offset, std::uint64_t bytes) const {
    const auto piece = span.subspan(offset, bytes);
    if (!piece) return std::nullopt;
    return PeerMemory{.peer = peer, .span = *piece};
  }
};

struct PeerWork {
  std::uint32_t peer = 0;
  Work work;
};
inline PeerWork write_to(const RegisteredSpan& from, const PeerMemory& to) {
  return {.peer = to.peer, .work = Work::write(from, to.span)};
}
inline PeerWork read_from(const RegisteredSpan& to, const PeerMemory& from) {
  return {.peer = from.peer, .work = Work::read(to, from.span)};
}

struct PeerOutcome {
  std::uint32_t peer = 0;
  Status status;
  Done done;  // valid if status is ok
};

// Valid until the next call on the group that returned it. The end of a scope does not invalidate
// it, so a scope's body may return the outcome of a call within the scope.
class [[nodiscard]] GroupOutcome {
 public:
  explicit GroupOutcome(std::span<const PeerOutcome> each = {}) : each_(each) {}
  std::span<const PeerOutcome> each() const { return each_; }
  const PeerOutcome& operator[](std::size_t index) const { return each_[index]; }
  bool ok() const { return failed_count() == 0; }
  std::size_t failed_count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(each_, [](const PeerOutcome& one) { return !one.status; }));
  }
  // The status of the first failed item.
  Status status() const {
    const auto found = std::ranges::find_if(each_, [](const auto& one) { return !one.status; });
    return found == each_.end() ? Status{} : found->status;
  }

 private:
  std::span<const PeerOutcome> each_;
};

class MultiChannel;

// The operations of one closure with several peers. Only MultiChannel::scope() creates it.
class RKV_EXPORT GroupScope {
 public:
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;
  ~GroupScope();

  // REQUIRES: peer < the group's size.
  Pending start(std::uint32_t peer, const Work& work) { return {state(peer), deadline_, work}; }
  Pending send(std::uint32_t peer, const RegisteredSpan& message) {
    return start(peer, Work::send(message));
  }
  Pending receive(std::uint32_t peer, const RegisteredSpan& buffer) {
    return start(peer, Work::receive(buffer));
  }
  Pending write(const RegisteredSpan& from, const PeerMemory& to) {
    return start(to.peer, Work::write(from, to.span));
  }
  Pending read(const RegisteredSpan& to, const PeerMemory& from) {
    return start(from.peer, Work::read(to, from.span));
  }
  // As Scope::post().
  Status post(std::uint32_t peer, std::span<const Work> work);

 private:
  friend class MultiChannel;
  GroupScope(MultiChannel& group, const Deadline& deadline);
  detail::ChannelState& state(std::uint32_t peer) const;
  void leave();

  MultiChannel* group_;
  Deadline deadline_;
  bool left_ = false;
};

template <class T>
struct [[nodiscard]] GroupScoped {
  // One entry per peer: the first error of operations that the closure did not check; kTimeout if
  // operations were cut off.
  GroupOutcome operations;
  T value;
};
template <>
struct [[nodiscard]] GroupScoped<void> {
  GroupOutcome operations;
};

class RKV_EXPORT MultiChannel {
 public:
  explicit MultiChannel(std::vector<Channel> peers);
  MultiChannel(const MultiChannel&) = delete;
  MultiChannel& operator=(const MultiChannel&) = delete;
  ~MultiChannel();

  std::uint32_t size() const { return static_cast<std::uint32_t>(peers_.size()); }
  // REQUIRES: peer < size(). A broken channel may be replaced by assigning a new one, but not
  // within a scope.
  Channel& operator[](std::uint32_t peer);

  // Runs any work. Blocks until it has finished or the deadline has passed. Adjacent items of one
  // peer start with one doorbell, so keep a peer's items together.
  GroupOutcome run(std::span<const PeerWork> work, const Deadline& deadline);

  // As run(), one operation per peer: item i belongs to peer i. REQUIRES: one item per peer.
  GroupOutcome scatter_send(std::span<const RegisteredSpan> messages, const Deadline& deadline);
  GroupOutcome scatter_write(std::span<const RegisteredSpan> from, std::span<const RemoteSpan> to,
                             const Deadline& deadline);
  GroupOutcome gather_receive(std::span<const RegisteredSpan> buffers, const Deadline& deadline);
  GroupOutcome gather_read(std::span<const RegisteredSpan> to, std::span<const RemoteSpan> from,
                           const Deadline& deadline);
  GroupOutcome multicast_send(const RegisteredSpan& message, const Deadline& deadline);

  // As Channel::scope(), over all peers. `operations` is valid until the next scope.
  template <class F>
    requires detail::ScopeBody<F, GroupScope>
  auto scope(const Deadline& deadline, F&& body) {
    using T = std::invoke_result_t<F&, GroupScope&>;
    GroupScope scope(*this, deadline);
    if constexpr (std::is_void_v<T>) {
      std::forward<F>(body)(scope);
      scope.leave();
      return GroupScoped<void>{.operations = GroupOutcome(scope_outcomes_)};
    } else {
      GroupScoped<std::remove_cvref_t<T>> out{.operations = GroupOutcome(),
                                              .value = std::forward<F>(body)(scope)};
      scope.leave();
      out.operations = GroupOutcome(scope_outcomes_);
      return out;
    }
  }

 private:
  friend class GroupScope;
  friend struct detail::ChannelAccess;
  struct Bookkeeping;
  void find_states();
  GroupOutcome run_prepared(const Deadline& deadline);
  void post_run(std::size_t first, std::size_t count, const Deadline& deadline);
  template <class Make>
  GroupOutcome with_each(const Deadline& deadline, Make make);

  std::vector<Channel> peers_;
  std::vector<detail::ChannelState*> states_;
  std::vector<pollfd> descriptors_;
  std::vector<PeerWork> work_;
  std::vector<PeerOutcome> outcomes_;        // of the last call
  std::vector<PeerOutcome> scope_outcomes_;  // of the last scope
  std::unique_ptr<Bookkeeping> books_;
};

}  // namespace rkv::rdma
