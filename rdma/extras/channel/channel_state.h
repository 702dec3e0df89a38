// The state of a channel: a pool of nodes, one per operation that may be outstanding. Only this
// code polls the channel's completion queue and cuts off its queue pair.
//
// Invariants:
//   1. A node is free, posted or done. While a node is posted, the device may refer to its buffer.
//      pending() counts the posted nodes. Only a completion or the destruction of the queue pair
//      ends this state.
//   2. Posted sends and receives never exceed the limits in the options, so neither queue can
//      overrun: the completion queue has entries for both, and every request is signaled.
//   3. A request's wr_id holds the node's index in the lower half and its generation in the upper
//      half. The generation changes whenever the node becomes free, so a stale handle is detected.
//   4. After cut_off() nothing is posted.
//   5. If its connection-manager connection has ended, the channel is broken and its queue pair
//      goes to the error state, so outstanding operations complete. Operations that have not
//      completed after ChannelOptions::drain_ms end with the queue pair (on iWARP: work that is
//      posted late).
//
// Thread safety: one thread at a time.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rkv/check.h"
#include "rkv/rdma/adaptive_wait.h"
#include "rkv/rdma/channel.h"
#include "rkv/rdma/connect.h"

namespace rkv::rdma::detail {

class ChannelState {
 public:
  struct NodeRef {
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    std::uint32_t index = kNone;
    std::uint32_t generation = 0;
    bool is_set() const { return index != kNone; }
  };
  // Faults that a test injects, to prove that its checks notice them.
  struct Faults {
    bool skip_cut = false;                          // cut_off() reports success without cutting
    bool lose_completions = false;                  // reap() finds nothing
    bool refuse_sends = false;                      // like a device without memory for sends
    std::function<void()> before_arming = nullptr;  // called between a wait's polling and its sleep
  };

  ChannelState(CompletionChannel events, CompletionQueue queue, std::optional<QueuePair> qp,
               const ChannelOptions& options);
  ChannelState(const ChannelState&) = delete;
  ChannelState& operator=(const ChannelState&) = delete;
  ~ChannelState();

  // Posts with one doorbell. A receive that was expected is not posted again. `nodes` is either
  // empty (then the operations cannot be awaited one by one) or as long as `work`, and filled. On
  // an error no send was posted. Some receives may have been posted: their nodes are is_set(), and
  // they are outstanding like any other operation.
  Status post(std::span<const Work> work, std::span<NodeRef> nodes);
  // Takes completions from the queue and returns their number. A failing queue breaks the channel.
  std::size_t reap();
  bool is_done(NodeRef node) const { return at(node).state == Node::State::kDone; }
  // Returns the result and frees the node. REQUIRES: is_done().
  Result<Done> take(NodeRef node);
  // Gives up the handle: the node is freed at its completion.
  void abandon(NodeRef node);
  bool is_current(NodeRef node) const { return nodes_[node.index].generation == node.generation; }

  // Posts a receive that receive() of the same buffer finds again. `on` is this channel's queue
  // pair, connected or not yet.
  Status expect(QueuePairBase& on, const RegisteredSpan& buffer);
  // Returns the receive that expect() posted for the buffer, and forgets it; not is_set() if there
  // is none.
  NodeRef take_expected(const RegisteredSpan& buffer);

  // Takes over a connection of the connection manager and its queue pair.
  void adopt(CmConnection link);
  std::optional<CmConnection>& link() { return link_; }
  // Waits until the peer has finished its handshake, unless `work` is receives alone; a request
  // that is sent before may be lost. If the peer has not finished by the deadline, the channel is
  // broken: kDisconnected.
  Status wait_established(std::span<const Work> work, const Deadline& deadline);
  Status wait_established(const Deadline& deadline);
  // Like wait_established(), without waiting.
  bool is_established();
  // Checks whether the connection has ended (invariant 5). Does not block.
  void check_link();
  // Returns how many milliseconds a wait may last: `left_ms`, or less if the drain ends earlier.
  int patience_ms(int left_ms) const;

  void open_scope();
  void close_scope();
  // Returns and clears the first error that was not reported yet.
  Status take_failure();
  void note_failure(const Error& error);
  // Counts a failed operation that was never posted and has no handle.
  void note_refused(const Error& error);

  // Moves the queue pair to the error state. Call it for all channels before finish_cut() for any,
  // so that they drain in parallel.
  void begin_cut(const Error& why);
  // Ends all operations, by destroying the queue pair if necessary.
  void finish_cut();

  std::uint32_t pending() const { return sends_ + receives_; }
  std::uint32_t abandoned_pending() const { return abandoned_pending_; }
  std::uint32_t unseen() const { return unseen_; }
  void see_abandoned();
  bool broken() const { return cause_.has_value(); }
  const Error& cause() const { return *cause_; }
  void break_with(const Error& error);
  // After this call the queue pair is destroyed, and no device refers to any buffer of this
  // channel.
  void destroy_queue_pair();

  std::optional<QueuePair>& qp() { return qp_; }
  CompletionQueue& queue() { return queue_; }
  CompletionChannel& events() { return events_; }
  const ChannelOptions& options() const { return options_; }
  Faults faults;

 private:
  struct Node {
    enum class State : unsigned char { kFree, kPosted, kDone };
    State state = State::kFree;
    bool abandoned = false;
    WorkOp op = WorkOp::kSend;
    std::uint32_t generation = 1;
    std::uint32_t next = 0;
    WorkCompletion completion;
  };
  Node& at(NodeRef node) {
    RKV_CHECK(is_current(node), "a handle outlived its scope");
    return nodes_[node.index];
  }
  const Node& at(NodeRef node) const { return const_cast<ChannelState*>(this)->at(node); }
  // Fills the nodes of receives that expect() posted before; returns their number.
  std::uint32_t find_expected(std::span<const Work> work, std::span<NodeRef> nodes);
  // Checks whether the work fits; `expected` of its receives are posted already.
  Status check_room(std::span<const Work> work, std::uint32_t expected);
  static Status post_receive(QueuePairBase& on, const RegisteredSpan& buffer, NodeRef node);
  NodeRef acquire(const Work& work, bool abandoned);
  void release(std::uint32_t index);
  void unacquire(NodeRef node);
  void complete(const WorkCompletion& completion);
  Error error_of(const Node& node) const;

  ChannelOptions options_;
  CompletionChannel events_;
  CompletionQueue queue_;
  std::optional<CmConnection> link_;  // without its queue pair, which it outlives
  std::optional<QueuePair> qp_;       // destroyed before the queue
  std::vector<Node> nodes_;
  std::uint32_t free_ = 0;
  std::uint32_t sends_ = 0;
  std::uint32_t receives_ = 0;
  std::uint32_t abandoned_pending_ = 0;
  std::uint32_t abandoned_total_ = 0;
  std::uint32_t unseen_ = 0;
  bool scope_open_ = false;
  struct Expected {
    std::uint64_t address = 0;
    std::size_t length = 0;
    NodeRef node;
  };
  std::vector<Expected> expected_;
  std::optional<Error> failure_;
  std::optional<Error> cause_;
  bool link_ended_ = false;              // cause_ is how the connection ended
  std::optional<Deadline> drain_until_;  // set when it ended
};

// The error of an operation whose channel was cut off at the deadline.
Error timed_out(WorkOp op);

// Waits until `ready` holds or the deadline passes. It polls some rounds, then arms every queue
// that has outstanding work, polls once more, and sleeps until a queue has a completion.
// `descriptors` has two entries per channel. Templates add little code: there are three callers.
bool wait_some(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
               const Deadline& deadline);

// Two threads of one host that wait for each other may share a processor. So a wait polls few times
// before it sleeps, and yields after each poll.
inline constexpr AdaptiveWaitOptions kFewCores = {.min_polls = 0, .max_polls = 0, .yields = 32};

template <class Ready>
bool wait_until(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                const Deadline& deadline, Ready ready) {
  for (;;) {
    for (ChannelState* channel : channels)
      channel->reap();
    if (ready()) return true;
    if (!wait_some(channels, descriptors, deadline)) return ready();
  }
}
template <class Ready>
bool wait_until(ChannelState& channel, const Deadline& deadline, Ready ready) {
  ChannelState* const one[] = {&channel};
  pollfd descriptors[2];
  return wait_until(one, descriptors, deadline, ready);
}

// Waits until the deadline for everything outstanding, then cuts off the rest on all channels
// together. Returns the number of operations that were cut off.
std::uint32_t settle(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                     const Deadline& deadline);
// The second half of settle().
std::uint32_t cut_off(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                      const Error& why);
std::uint32_t cut_off(ChannelState& channel, const Error& why);

struct ChannelAccess {
  static ChannelState& state(Channel& channel) { return channel.state(); }
  static Channel make(std::unique_ptr<ChannelState> state) { return Channel(std::move(state)); }
};

}  // namespace rkv::rdma::detail
