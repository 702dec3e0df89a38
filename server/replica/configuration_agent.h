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
// The second thread also reads when it is asked whether the store answers.
//
// Thread safety: any thread; start and stop: the owner. `read` is called on the agent's threads.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "server/group/configuration_store.h"
#include "server/replication/membership.h"

namespace rkv::server {

class ConfigurationAgent {
 public:
  using Read = std::function<void(const ConfigurationStore::Stored&)>;
  // The store and the clock must outlive the agent.
  ConfigurationAgent(ConfigurationStore& store, const Clock& clock, Read read);
  ~ConfigurationAgent();  // stop()
  ConfigurationAgent(const ConfigurationAgent&) = delete;
  ConfigurationAgent& operator=(const ConfigurationAgent&) = delete;

  void start();
  // Blocks until the calls under way have ended, at most about two seconds.
  void stop();
  void want(const std::optional<Membership::Change>& change);
  // Whether the store answers now: reads it. `told` is called once, after about three seconds at
  // most, on one of the agent's threads. Once the agent is being stopped, it is told false, perhaps
  // within this call. REQUIRES: start() was called, or will be.
  void ask(std::function<void(bool answers)> told);
  // How long the store has not answered, or has answered with an older configuration than it had:
  // then its data was lost or restored. 0: all is well.
  Nanos unanswered_for(Nanos now) const;
  bool has_lost_data() const { return went_back_at_.load(std::memory_order_relaxed) != 0; }

 private:
  void watch();
  void store();
  bool read_once();
  bool sleep(Nanos at_most);
  template <class Answer>
  bool note(const Answer& answer, const char* doing);
  void note_revision(std::int64_t revision, std::int64_t before);

  ConfigurationStore& store_;
  const Clock& clock_;
  const Read read_;
  std::atomic<Nanos> unanswered_since_{0};
  std::atomic<bool> has_told_{false};
  std::atomic<Nanos> went_back_at_{0};     // 0: it has not
  std::atomic<std::int64_t> revision_{0};  // that was read last
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<Membership::Change> wanted_ RKV_GUARDED_BY(mutex_);
  std::vector<std::function<void(bool)>> asked_ RKV_GUARDED_BY(mutex_);
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
  std::thread watcher_;
  std::thread storer_;
};

}  // namespace rkv::server
