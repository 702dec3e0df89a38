// ConfigurationAgent: the threads that wait for the store of configurations (etcd), so that the
// replicator does not.
//
//   ConfigurationAgent agent(store, clock, [&](const auto& stored) { post(stored); });
//   agent.start();
//   agent.want(membership.wanted(now));   // again and again: the newest counts
//   agent.stop();
//
// One thread watches the configuration, another stores changes. A change is sent until it is not
// wanted any more. After each attempt the configuration is read, so that the outcome becomes known.
//
// The store may answer reads and yet refuse changes, such as an etcd whose space is used up. So the
// second thread also tries, now and then and on request, whether the store would take a change.
// After a change that failed, the store counts as refusing changes until one succeeds.
//
// Thread safety: any thread; start and stop: the owner. The callbacks are called on the agent's
// threads.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "server/group/configuration/configuration_store.h"
#include "server/group/rules/membership.h"

namespace rkv::server {

class ConfigurationAgent {
 public:
  // The store was asked at `asked_at`, or later.
  using Read = std::function<void(const ConfigurationStore::Stored&, Nanos asked_at)>;
  // An attempt to store this change has failed, and had no effect: see give_up().
  using Refused = std::function<void(const Membership::Change&)>;
  // The store and the clock must outlive the agent.
  ConfigurationAgent(ConfigurationStore& store, const Clock& clock, Read read,
                     Refused refused = nullptr);
  ~ConfigurationAgent();  // stop()
  ConfigurationAgent(const ConfigurationAgent&) = delete;
  ConfigurationAgent& operator=(const ConfigurationAgent&) = delete;

  void start();
  // Blocks until the calls under way have ended, at most about two seconds.
  void stop();
  void want(const std::optional<Membership::Change>& change);
  // Stops sending the wanted change. Returns false if it may have been stored, or may still be
  // stored: then the caller must continue to want it.
  bool give_up(const Membership::Change& change);
  // Asks whether the store answers now and takes changes. `told` is called once, after about three
  // seconds at most, on one of the agent's threads. kBusy: why not. If the agent is being stopped,
  // `told` gets that as the reason, perhaps within this call. REQUIRES: start() was called, or will
  // be.
  void ask(std::function<void(const Status&)> told);
  // How long the store has not answered, or has answered with an older configuration than before
  // (its data was lost or restored). 0: all is well.
  Nanos unanswered_for(Nanos now) const;
  // How long no change has been stored although one was tried. 0: all is well.
  Nanos unstored_for(Nanos now) const;
  bool has_lost_data() const { return went_back_at_.load(std::memory_order_relaxed) != 0; }

 private:
  void watch();
  void store();
  void send(const Membership::Change& change);
  void answer(const std::vector<std::function<void(const Status&)>>& asked, bool stops);
  bool read_once();
  Status try_storing();
  bool sleep(Nanos at_most);
  template <class Answer>
  bool note(const Answer& answer);
  template <class Answer>
  void note_stored(const Answer& answer);
  void note_revision(std::int64_t revision, std::int64_t before);

  ConfigurationStore& store_;
  const Clock& clock_;
  const Read read_;
  const Refused refused_;
  std::atomic<Nanos> unanswered_since_{0};
  std::atomic<bool> has_told_{false};
  std::atomic<Nanos> unstored_since_{0};   // written by the storing thread alone
  bool has_told_unstored_ = false;         // only the storing thread uses it
  Nanos try_at_ = 0;                       // likewise
  std::atomic<Nanos> went_back_at_{0};     // 0: it has not
  std::atomic<std::int64_t> revision_{0};  // that the watching thread read last; it may fall
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<Membership::Change> wanted_ RKV_GUARDED_BY(mutex_);
  bool is_sending_ RKV_GUARDED_BY(mutex_) = false;                    // a change is under way
  std::optional<Membership::Change> unknown_ RKV_GUARDED_BY(mutex_);  // a change of unknown outcome
  std::vector<std::function<void(const Status&)>> asked_ RKV_GUARDED_BY(mutex_);
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
  std::thread watcher_;
  std::thread storer_;
};

}  // namespace rkv::server
