// What a channel is made of: a pool of nodes, one for each operation that may be outstanding, and
// the only places where its completion queue is polled and its queue pair is cut off.
//
// Invariants:
//  1. A node is free, posted or done. Posted means that the device may name its buffer; pending()
//     counts those, and only a completion, or the destruction of the queue pair, ends it.
//  2. sends + receives posted never exceed the options', so neither queue can overrun: the
//     completion queue has room for both, and every request is signaled.
//  3. A request's wr_id is the node's number below and its generation above; a node's generation
//     changes whenever it becomes free, so a stale handle is noticed.
//  4. After cut_off() nothing is posted.
//
// Thread safety: one thread at a time.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "rkv/check.h"
#include "rkv/rdma/adaptive_wait.h"
#include "rkv/rdma/channel.h"

namespace rkv::rdma::detail {

class ChannelState {
 public:
  struct NodeRef {
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    std::uint32_t index = kNone;
    std::uint32_t generation = 0;
    bool is_set() const { return index != kNone; }
  };
  // What a test may break, to see that its checks notice.
  struct Faults {
    bool skip_cut = false;                          // cut_off() only says that it has been done
    bool lose_completions = false;                  // none is seen
    bool refuse_sends = false;                      // as a device that has no memory for them
    std::function<void()> before_arming = nullptr;  // called when a wait has polled and will sleep
  };

  ChannelState(CompletionChannel events, CompletionQueue queue, std::optional<QueuePair> qp,
               const ChannelOptions& options);
  ChannelState(const ChannelState&) = delete;
  ChannelState& operator=(const ChannelState&) = delete;
  ~ChannelState();

  // Posts with one doorbell. `nodes` is empty, then nobody will ask for the operations one by one,
  // or as long as `work` and filled. On an error none of the sends was posted; of the receives some
  // may have been, and those have a node that is_set(): they are outstanding as any other.
  Status post(std::span<const Work> work, std::span<NodeRef> nodes);
  // Takes completions out; how many. A queue that does not work any more ends the channel.
  std::size_t reap();
  bool is_done(NodeRef node) const { return at(node).state == Node::State::kDone; }
  // Answers and frees. REQUIRES: is_done().
  Result<Done> take(NodeRef node);
  // Nobody will ask for it any more.
  void abandon(NodeRef node);
  bool is_current(NodeRef node) const { return nodes_[node.index].generation == node.generation; }

  void open_scope();
  void close_scope();
  // The first error that nobody was told; told now.
  Status take_failure();
  void note_failure(const Error& error);
  // Of an operation that was never posted, and that nobody asked for.
  void note_refused(const Error& error);

  // Moves the queue pair to the error state; begin on all channels before finish on any.
  void begin_cut(const Error& why);
  // Everything is taken back, by destroying the queue pair if need be.
  void finish_cut();

  std::uint32_t pending() const { return sends_ + receives_; }
  std::uint32_t abandoned_pending() const { return abandoned_pending_; }
  std::uint32_t unseen() const { return unseen_; }
  void see_abandoned();
  bool broken() const { return cause_.has_value(); }
  const Error& cause() const { return *cause_; }
  void break_with(const Error& error);
  // The queue pair is destroyed: no device names any buffer of ours.
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
  Status check_room(std::span<const Work> work);
  Status post_receive(const Work& work, NodeRef node);
  NodeRef acquire(const Work& work, bool abandoned);
  void release(std::uint32_t index);
  void unacquire(NodeRef node);
  void complete(const WorkCompletion& completion);
  Error error_of(const Node& node) const;

  ChannelOptions options_;
  CompletionChannel events_;
  CompletionQueue queue_;
  std::optional<QueuePair> qp_;  // destroyed before the queue
  std::vector<Node> nodes_;
  std::uint32_t free_ = 0;
  std::uint32_t sends_ = 0;
  std::uint32_t receives_ = 0;
  std::uint32_t abandoned_pending_ = 0;
  std::uint32_t abandoned_total_ = 0;
  std::uint32_t unseen_ = 0;
  bool scope_open_ = false;
  std::optional<Error> failure_;
  std::optional<Error> cause_;
};

// Of an operation that its channel was cut off for.
Error timed_out(WorkOp op);

// Waits until `ready` holds or the deadline has passed: polls some rounds, then arms every queue
// with work outstanding, polls once more, and sleeps until one has something. `descriptors` is room
// for one entry per channel. Templates cost nothing here: three callers.
bool wait_some(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
               const Deadline& deadline);

// Two threads of one host that wait for each other need the processor for the other one: few polls
// before a wait sleeps, with a yield after each.
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
  pollfd descriptor[1];
  return wait_until(one, descriptor, deadline, ready);
}

// Waits for everything outstanding until the deadline, then cuts off what is left, on all channels
// at a time. Returns how many operations were cut off.
std::uint32_t settle(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                     const Deadline& deadline);
// The second half of settle().
std::uint32_t cut_off(std::span<ChannelState* const> channels, std::span<pollfd> descriptors,
                      const Error& why);
std::uint32_t cut_off(ChannelState& channel, const Error& why);

struct ChannelAccess {
  static ChannelState& state(Channel& channel) { return channel.state(); }
};

}  // namespace rkv::rdma::detail
