// A completion queue that many message transports share, and the place of each in it. Invariants:
// rkv/rdma/message/message_driver.h.
//
// How a sleeper is woken (DRIVER-4): a seat that sleeps is notified once, by the first completion
// or event that is delivered to it. A notification makes the eventfd readable. It is settled when
// the seat is polled or armed, or when another seat is armed: that call then returns false, so that
// the loop of the one thread comes around to the notified transport. A transport that nobody polls
// any more causes one such round and no more.
//
// Thread safety: one thread at a time for a queue and its seats.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rdma/extras/message/link_queues.h"
#include "rkv/rdma/accounting.h"
#include "rkv/rdma/completion_router.h"
#include "rkv/rdma/message/message_driver.h"

namespace rkv::rdma::detail {

class Seat;

class SharedQueue : public std::enable_shared_from_this<SharedQueue> {
 public:
  static Result<std::shared_ptr<SharedQueue>> create(const MessageDriverOptions& options);

  // kBusy: too few entries or seats are free. kInvalidArgument: another device than before.
  Result<std::unique_ptr<LinkQueues>> admit(const Device& device, std::uint32_t sends,
                                            std::uint32_t receives);

  // As MessageDriver.
  Result<std::size_t> poll(std::span<std::uint32_t> ready);
  Result<bool> arm();
  int fd() const { return poller_.get(); }
  MessageDriver::Counters counters() const;

  // Delivers completions to their seats. For pump(), and for tests.
  void route(std::span<const WorkCompletion> completions);

 private:
  friend class Seat;
  SharedQueue(const MessageDriverOptions& options, Descriptor poller, Descriptor waker)
      : options_(options),
        budget_(options.entries),
        router_(options.transports),
        poller_(std::move(poller)),
        waker_(std::move(waker)) {
    ready_.reserve(options.transports);
  }

  struct Queue {
    Device device;
    CompletionChannel channel;
    CompletionQueue queue;
  };
  Status open(const Device& device);
  Status watch(int fd, Seat* seat, std::uint32_t how);
  // Polls the queue until it is empty, for at most as many completions as it has entries.
  Status pump();
  // Takes the events of watched descriptors.
  Status collect();
  // Prepares for a sleep. False if a notification was not settled.
  Result<bool> prepare_sleep();
  void note(Seat& seat);
  void notify(Seat& seat);
  void settle(Seat& seat);
  void leave(Seat& seat);

  MessageDriverOptions options_;
  CompletionBudget budget_;
  CompletionRouter<Seat> router_;
  Descriptor poller_;
  Descriptor waker_;
  std::optional<Queue> queue_;
  std::vector<Seat*> ready_;  // seats with something new, in the order of arrival
  std::size_t notified_ = 0;  // seats notified in this round and not settled
  std::uint64_t round_ = 1;   // a new round settles all notifications
  bool waker_readable_ = false;
  std::uint64_t polled_ = 0;
  std::optional<std::uint64_t> armed_at_;  // polled_ when the queue was armed
  unsigned quiet_polls_ = 0;
  std::uint64_t strays_ = 0;
};

// One transport's place.
class Seat final : public LinkQueues {
 public:
  Seat(std::shared_ptr<SharedQueue> shared, CompletionBudget::Reservation entries,
       std::uint32_t sends, std::uint32_t receives)
      : shared_(std::move(shared)),
        entries_(std::move(entries)),
        sends_(sends),
        receives_(receives) {}
  ~Seat() override { shared_->leave(*this); }

  CompletionQueue& sends() override { return shared_->queue_->queue; }
  CompletionQueue& receives() override { return shared_->queue_->queue; }
  Status join(std::uint32_t qp_num) override;
  std::uint64_t send_id(std::uint32_t number) const override {
    return WorkId{.generation = generation_, .number = number}.wr_id();
  }
  std::uint64_t receive_id(std::uint32_t number) const override {
    return WorkId{.generation = generation_, .receive = true, .number = number}.wr_id();
  }
  Result<std::size_t> poll_sends(std::span<WorkCompletion> out) override {
    return poll(sends_, out);
  }
  Result<std::size_t> poll_receives(std::span<WorkCompletion> out) override {
    return poll(receives_, out);
  }
  Status watch(int fd) override;
  int fd() const override { return shared_->fd(); }
  Result<bool> arm() override;
  void sleeps_on(bool asleep) override;

 private:
  friend class SharedQueue;
  // Completions that were polled and not taken: a ring with room for all that can be outstanding.
  class Inbox {
   public:
    explicit Inbox(std::uint32_t most) : ring_(most) {}
    bool empty() const { return count_ == 0; }
    void push(const WorkCompletion& one);
    std::size_t take(std::span<WorkCompletion> out);

   private:
    std::vector<WorkCompletion> ring_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
  };

  void deliver(const WorkCompletion& one);
  Result<std::size_t> poll(Inbox& from, std::span<WorkCompletion> out);

  std::shared_ptr<SharedQueue> shared_;
  CompletionBudget::Reservation entries_;
  Inbox sends_;
  Inbox receives_;
  std::uint32_t qp_num_ = 0;
  std::uint16_t generation_ = 0;  // 0: not joined
  bool asleep_ = false;
  bool listed_ = false;                  // in ready_
  std::uint64_t notified_in_round_ = 0;  // the round of an unsettled notification
  std::vector<int> watched_;
};

}  // namespace rkv::rdma::detail
