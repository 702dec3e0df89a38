// Regions, queues, listeners and atomics of a ReopeningTransport, and how each survives the loss of
// its device.
//
// Locks are taken in this order: Parts::mutex_, then the mutex of one part. No user thread holds
// either while it waits for the network.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::reopening {

class Parts;

// Memory that stays in place, registered with the current device.
class KeptRegion final : public Region {
 public:
  // Takes a share in `owner`, which keeps the memory alive; nullptr if the caller owns the memory.
  KeptRegion(std::shared_ptr<Parts> parts, MutableBytes memory, Access access,
             std::shared_ptr<void> owner);
  ~KeptRegion() override;
  KeptRegion(const KeptRegion&) = delete;
  KeptRegion& operator=(const KeptRegion&) = delete;

  MutableBytes bytes() const override { return memory_; }
  // 0 until a device is available
  std::uint32_t local_key() const override { return local_key_.load(std::memory_order_relaxed); }
  std::uint32_t remote_key() const override { return remote_key_.load(std::memory_order_relaxed); }

  // Called under Parts::mutex_.
  Status enroll(Transport& transport);
  void end() { registration_.reset(); }
  bool is_local() const { return access_ == Access::kLocal; }
  const Region& registration() const { return *registration_; }

 private:
  const std::shared_ptr<Parts> parts_;
  const std::shared_ptr<void> owner_;
  const MutableBytes memory_;
  const Access access_;
  std::unique_ptr<Region> registration_;
  // Relaxed: a connection that uses the keys is created after they were stored, and a lock orders
  // the two.
  std::atomic<std::uint32_t> local_key_{0};
  std::atomic<std::uint32_t> remote_key_{0};
};

// A sequence of queues, one per device. Invariants:
//  REOPENQ-1  A queue is released when it is abandoned, no connection is bound to it or about to be
//      bound (guests_), and every receive buffer has been given back.
//  REOPENQ-2  No wake() is lost: when a queue is released, its owner's thread is woken once more.
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

  // Called under Parts::mutex_.
  Status prepare(Transport& transport);
  void take_prepared();  // for a new KeptQueue
  void offer();
  void lose();
  bool is_empty() const;

  // While a Guest is inside, the queue that enter() returned is not released. Any thread.
  class Guest {
   public:
    explicit Guest(KeptQueue& host) : host_(host) {}
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;
    ~Guest();
    // Returns nullptr if there is no device.
    Queue* enter();

   private:
    KeptQueue& host_;
    bool inside_ = false;
  };

 private:
  void attend();

  const std::shared_ptr<Parts> parts_;
  const QueueOptions options_;
  Waker idle_;  // used while there is no queue
  // Written by the owner's thread under mutex_. That thread reads it without the lock, other
  // threads with it.
  std::unique_ptr<Queue> queue_;
  std::size_t held_ = 0;           // receive buffers held by the user; owner's thread only
  bool abandoned_ = false;         // owner's thread only
  std::atomic<bool> call_{false};  // attend() has work to do
  mutable Mutex mutex_;
  std::unique_ptr<Queue> prepared_ RKV_GUARDED_BY(mutex_);
  bool offered_ RKV_GUARDED_BY(mutex_) = false;
  bool lost_ RKV_GUARDED_BY(mutex_) = false;
  bool ending_ RKV_GUARDED_BY(mutex_) = false;  // a queue is being released
  std::uint32_t guests_ RKV_GUARDED_BY(mutex_) = 0;
};

class KeptListener final : public Listener {
 public:
  KeptListener(std::shared_ptr<Parts> parts, std::unique_ptr<Listener> first,
               const std::string& address);
  ~KeptListener() override;
  KeptListener(const KeptListener&) = delete;
  KeptListener& operator=(const KeptListener&) = delete;
  Status open() { return idle_.open(); }

  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override;
  std::uint16_t port() const override { return port_.load(std::memory_order_relaxed); }

  // Called under Parts::mutex_.
  Status prepare(Transport& transport);
  void offer();
  void lose();
  bool is_empty() const;

 private:
  bool attend();
  void sleep(const Deadline& deadline);

  const std::shared_ptr<Parts> parts_;
  const std::string asked_;          // the address as the caller gave it
  std::atomic<std::uint16_t> port_;  // the bound port; a drawn port may change with the device
  Waker idle_;
  std::unique_ptr<Listener> listener_;  // locked as KeptQueue::queue_
  mutable Mutex mutex_;
  std::unique_ptr<Listener> prepared_ RKV_GUARDED_BY(mutex_);
  bool offered_ RKV_GUARDED_BY(mutex_) = false;
  bool lost_ RKV_GUARDED_BY(mutex_) = false;
  bool ending_ RKV_GUARDED_BY(mutex_) = false;  // a listener is being released
};

// Implements REOPEN-3 of transport.h.
class KeptAtomics final : public Atomics {
 public:
  KeptAtomics(std::shared_ptr<Parts> parts, const KeptRegion& region);
  ~KeptAtomics() override;
  KeptAtomics(const KeptAtomics&) = delete;
  KeptAtomics& operator=(const KeptAtomics&) = delete;

  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override;
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override;

  // Called under Parts::mutex_.
  Status enroll(Transport& transport);
  void lose();    // the region is still registered
  void own();     // the region is not registered; the processor takes over
  void disown();  // the region is about to be registered

 private:
  const std::shared_ptr<Parts> parts_;
  const KeptRegion& region_;
  Mutex mutex_;  // one call at a time
  std::unique_ptr<Atomics> device_ RKV_GUARDED_BY(mutex_);
  bool owned_ RKV_GUARDED_BY(mutex_) = false;  // by the processor
};

// The current device and everything created through the transport. All parts share it.
class Parts {
 public:
  explicit Parts(std::unique_ptr<Transport> first) : transport_(std::move(first)) {}

  // For users' calls. Runs `call` under the lock, with the current transport, or with nullptr if
  // there is none.
  template <class Call>
  auto with_transport(Call call) {
    const MutexLock lock(mutex_);
    return call(lost_ ? nullptr : transport_.get());
  }
  // The transport of the queue that a guest has entered.
  Transport& transport_of_guest() const {
    const MutexLock lock(mutex_);
    return *transport_;
  }
  std::string describe() const;

  // REQUIRES: the caller is in with_transport(), which holds the lock.
  template <class Part>
  void add(Part& part) {
    mutex_.assert_held();
    list_of(part).push_back(&part);
  }
  template <class Part>
  void remove(Part& part) {
    const MutexLock lock(mutex_);
    std::erase(list_of(part), &part);
    emptied();
  }

  // A part was destroyed, or a queue or a listener was released: wakes step().
  void emptied() {
    const MutexLock lock(emptied_mutex_);
    emptied_ = true;
    changed_.notify_all();
  }
  void lose();
  // Waits for users to release everything, then releases the rest. Returns false if something is
  // left at the deadline, or after a change or emptied().
  bool let_go(const Deadline& deadline);
  // Releases atomics, and regions that a peer may access. REQUIRES: as
  // ReopeningTransport::end_registrations().
  void end_registrations();
  // Moves all parts to the device of `fresh`, or none. Calls `publish` when all keys are known.
  Status take(std::unique_ptr<Transport> fresh, const std::function<void()>& publish);

 private:
  std::vector<KeptRegion*>& list_of(KeptRegion&) RKV_REQUIRES(mutex_) { return regions_; }
  std::vector<KeptQueue*>& list_of(KeptQueue&) RKV_REQUIRES(mutex_) { return queues_; }
  std::vector<KeptListener*>& list_of(KeptListener&) RKV_REQUIRES(mutex_) { return listeners_; }
  std::vector<KeptAtomics*>& list_of(KeptAtomics&) RKV_REQUIRES(mutex_) { return atomics_; }
  bool is_empty();
  Status prepare_all(Transport& transport) RKV_REQUIRES(mutex_);
  enum class Ending : std::uint8_t { kWhole, kForPeers };
  void end_all(Ending ending = Ending::kWhole) RKV_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<Transport> transport_ RKV_GUARDED_BY(mutex_);
  bool lost_ RKV_GUARDED_BY(mutex_) = false;
  std::string description_ RKV_GUARDED_BY(mutex_);
  std::vector<KeptRegion*> regions_ RKV_GUARDED_BY(mutex_);
  std::vector<KeptQueue*> queues_ RKV_GUARDED_BY(mutex_);
  std::vector<KeptListener*> listeners_ RKV_GUARDED_BY(mutex_);
  std::vector<KeptAtomics*> atomics_ RKV_GUARDED_BY(mutex_);
  Mutex emptied_mutex_;
  ConditionVariable changed_;
  bool emptied_ RKV_GUARDED_BY(emptied_mutex_) = false;
};

}  // namespace rkv::rdma::reopening
