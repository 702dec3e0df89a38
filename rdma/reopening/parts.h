// What is made from a ReopeningTransport, and how each of them lives through a loss of its device.
//
// Locks, taken in this order: Parts::mutex_, then one of a part. Neither is held by a user's thread
// while it waits for the network.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rdma/transport.h"
#include "rdma/waker.h"

namespace rkv::rdma::reopening {

class Parts;

// Memory that stays where it is, registered with the device that is there.
class KeptRegion final : public Region {
 public:
  // Memory of `owner` if it is not null.
  KeptRegion(std::shared_ptr<Parts> parts, MutableBytes memory, Access access,
             std::shared_ptr<void> owner);
  ~KeptRegion() override;
  KeptRegion(const KeptRegion&) = delete;
  KeptRegion& operator=(const KeptRegion&) = delete;

  MutableBytes bytes() const override { return memory_; }
  // 0 while there is no device.
  std::uint32_t local_key() const override { return local_key_.load(std::memory_order_relaxed); }
  std::uint32_t remote_key() const override { return remote_key_.load(std::memory_order_relaxed); }

  // Under Parts::mutex_.
  Status enroll(Transport& transport);
  void end() { registration_.reset(); }
  const Region& registration() const { return *registration_; }

 private:
  const std::shared_ptr<Parts> parts_;
  const std::shared_ptr<void> owner_;
  const MutableBytes memory_;
  const Access access_;
  std::unique_ptr<Region> registration_;
  // Connections that use them are made after they were stored, through a lock: relaxed.
  std::atomic<std::uint32_t> local_key_{0};
  std::atomic<std::uint32_t> remote_key_{0};
};

// One queue after the other. Invariants:
//  Q1  A queue is let go when it is abandoned, no connection is bound to it, nobody is about to
//      bind one (guests_), and every receive buffer has been given back.
//  Q2  No wake() is lost: one that went to a queue which is let go is made up for.
class KeptQueue final : public Queue {
 public:
  KeptQueue(std::shared_ptr<Parts> parts, const QueueOptions& options);
  ~KeptQueue() override;
  KeptQueue(const KeptQueue&) = delete;
  KeptQueue& operator=(const KeptQueue&) = delete;
  Status open() { return idle_.open(); }

  std::size_t poll(std::span<Completion> out) override;
  void wait(const Deadline& deadline) override;
  void wake() override;
  void release(std::span<const std::uint32_t> receive_buffers) override;
  bool is_ready() override;
  std::optional<int> begin_sleep() override;
  void end_sleep() override;

  // Under Parts::mutex_.
  Status prepare(Transport& transport);
  void take_prepared() { queue_ = std::move(prepared_); }  // of a new one
  void offer();
  void lose();
  bool is_empty() const;

  // While one lives, the queue that it names is not let go. Any thread.
  class Guest {
   public:
    explicit Guest(KeptQueue& host) : host_(host) {}
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;
    ~Guest();
    // nullptr: there is no device.
    Queue* enter();

   private:
    KeptQueue& host_;
    bool inside_ = false;
  };

 private:
  void attend();

  const std::shared_ptr<Parts> parts_;
  const QueueOptions options_;
  Waker idle_;  // in the place of the queue's own
  // Written by the owner's thread under mutex_: read there without, elsewhere with it.
  std::unique_ptr<Queue> queue_;
  std::size_t held_ = 0;           // receive buffers with the user; the owner's thread
  bool abandoned_ = false;         // the owner's thread
  std::atomic<bool> call_{false};  // attend() has something to do
  mutable std::mutex mutex_;       // guards the following
  std::unique_ptr<Queue> prepared_;
  bool offered_ = false;
  bool lost_ = false;
  std::uint32_t guests_ = 0;
};

class KeptListener final : public Listener {
 public:
  KeptListener(std::shared_ptr<Parts> parts, std::unique_ptr<Listener> first, std::string address);
  ~KeptListener() override;
  KeptListener(const KeptListener&) = delete;
  KeptListener& operator=(const KeptListener&) = delete;
  Status open() { return idle_.open(); }

  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override;
  std::uint16_t port() const override { return port_; }

  // Under Parts::mutex_.
  Status prepare(Transport& transport);
  void offer();
  void lose();
  bool is_empty() const;

 private:
  bool attend();
  void sleep(const Deadline& deadline);

  const std::shared_ptr<Parts> parts_;
  const std::uint16_t port_;
  const std::string address_;  // with the port that was bound
  Waker idle_;
  std::unique_ptr<Listener> listener_;  // as KeptQueue::queue_
  mutable std::mutex mutex_;            // guards the following
  std::unique_ptr<Listener> prepared_;
  bool offered_ = false;
  bool lost_ = false;
};

// R3 of transport.h.
class KeptAtomics final : public Atomics {
 public:
  KeptAtomics(std::shared_ptr<Parts> parts, const KeptRegion& region);
  ~KeptAtomics() override;
  KeptAtomics(const KeptAtomics&) = delete;
  KeptAtomics& operator=(const KeptAtomics&) = delete;

  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override;
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override;

  // Under Parts::mutex_.
  Status enroll(Transport& transport);
  void lose();    // the region is registered still
  void own();     // it is not
  void disown();  // it is about to be

 private:
  const std::shared_ptr<Parts> parts_;
  const KeptRegion& region_;
  std::mutex mutex_;  // one call at a time; guards the following
  std::unique_ptr<Atomics> device_;
  bool owned_ = false;  // by the processor
};

// The device that is there, and everything that was made. Shared by all of it.
class Parts {
 public:
  explicit Parts(std::unique_ptr<Transport> first) : transport_(std::move(first)) {}

  // For users' calls. The transport that is there, or nullptr, for as long as the lock is held.
  template <class Call>
  auto with_transport(Call call) {
    const std::scoped_lock lock(mutex_);
    return call(lost_ ? nullptr : transport_.get());
  }
  // Of a queue that a guest is in.
  Transport& transport_of_guest() const {
    const std::scoped_lock lock(mutex_);
    return *transport_;
  }
  std::string describe() const;

  template <class Part>
  void add(Part& part) {
    list_of(part).push_back(&part);  // by who is in with_transport()
  }
  template <class Part>
  void remove(Part& part) {
    const std::scoped_lock lock(mutex_);
    std::erase(list_of(part), &part);
    emptied();
  }

  // For step(). A queue or a listener has been let go.
  void emptied() {
    const std::scoped_lock lock(emptied_mutex_);
    emptied_ = true;
    changed_.notify_all();
  }
  void lose();
  // Waits until users have let go of everything, then lets go of the rest. False: not yet.
  bool let_go(const Deadline& deadline);
  // All parts on the device of `fresh`, or none. `publish` is called when all keys are known.
  Status take(std::unique_ptr<Transport> fresh, const std::function<void()>& publish);

 private:
  std::vector<KeptRegion*>& list_of(KeptRegion&) { return regions_; }
  std::vector<KeptQueue*>& list_of(KeptQueue&) { return queues_; }
  std::vector<KeptListener*>& list_of(KeptListener&) { return listeners_; }
  std::vector<KeptAtomics*>& list_of(KeptAtomics&) { return atomics_; }
  bool is_empty();
  Status prepare_all(Transport& transport);
  void end_all();

  mutable std::mutex mutex_;  // guards the following
  std::unique_ptr<Transport> transport_;
  bool lost_ = false;
  std::string description_;
  std::vector<KeptRegion*> regions_;
  std::vector<KeptQueue*> queues_;
  std::vector<KeptListener*> listeners_;
  std::vector<KeptAtomics*> atomics_;
  std::mutex emptied_mutex_;  // guards the following
  std::condition_variable changed_;
  bool emptied_ = false;
};

}  // namespace rkv::rdma::reopening
