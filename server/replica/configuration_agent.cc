#include "server/replica/configuration_agent.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/thread.h"

namespace rkv::server {

namespace {

constexpr std::int64_t kReadMs = 1000;
constexpr std::int64_t kStoreMs = 1000;
// A watch that no change ends lasts so long. stop() waits for it.
constexpr std::int64_t kWatchMs = 1000;
constexpr Nanos kRetryAfter = 100 * kNanosPerMs;
// Shorter troubles with the store are not worth a line.
constexpr Nanos kWorthALine = 3 * kNanosPerSecond;

}  // namespace

ConfigurationAgent::ConfigurationAgent(ConfigurationStore& store, const Clock& clock, Read read)
    : store_(store), clock_(clock), read_(std::move(read)) {}

ConfigurationAgent::~ConfigurationAgent() {
  stop();
}

void ConfigurationAgent::start() {
  watcher_ = std::thread([this] { watch(); });
  storer_ = std::thread([this] { store(); });
}

void ConfigurationAgent::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (storer_.joinable()) storer_.join();
}

void ConfigurationAgent::want(const std::optional<Membership::Change>& change) {
  {
    const MutexLock lock(mutex_);
    const bool same = change.has_value() == wanted_.has_value() &&
                      (!change || (change->revision == wanted_->revision &&
                                   change->next.number == wanted_->next.number));
    if (same) return;
    wanted_ = change;
  }
  changed_.notify_all();
}

void ConfigurationAgent::ask(std::function<void(bool answers)> told) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) {
      asked_.push_back(std::move(told));
      told = nullptr;
    }
  }
  if (told) return told(false);
  changed_.notify_all();
}

Nanos ConfigurationAgent::unanswered_for(Nanos now) const {
  const auto passed = [now](Nanos since) {
    return since == 0 ? 0 : std::max<Nanos>(now - since, 1);
  };
  return std::max(passed(unanswered_since_.load(std::memory_order_relaxed)),
                  passed(went_back_at_.load(std::memory_order_relaxed)));
}

// False: the store has not answered. That is logged once it has lasted, and when it is over.
template <class Answer>
bool ConfigurationAgent::note(const Answer& answer, const char* doing) {
  const bool answered = answer.has_value() || answer.error().code == Code::kConflict;
  const Nanos now = clock_.now();
  Nanos since = unanswered_since_.load();
  if (answered) {
    since = unanswered_since_.exchange(0);
    if (since != 0 && has_told_.exchange(false)) {
      log_info(EventName("etcd_well"), "etcd answers again after {} s",
               field("seconds", (now - since) / kNanosPerSecond));
    }
    return true;
  }
  if (since == 0) {
    unanswered_since_.compare_exchange_strong(since, now);
  } else if (now - since > kWorthALine && !has_told_.exchange(true)) {
    log_warn(EventName("etcd_silent"),
             "etcd does not answer ({}: {}): the group goes on, but none of its replicas can be "
             "replaced",
             doing, to_string(answer.error()));
  }
  return false;
}

// `before`: the highest revision that this thread has read. Reads of one thread never go back.
void ConfigurationAgent::note_revision(std::int64_t revision, std::int64_t before) {
  if (revision >= before) {
    if (went_back_at_.exchange(0) != 0)
      log_info(EventName("etcd_well"), "etcd has a newer configuration of the group again");
    return;
  }
  if (went_back_at_.load() != 0) return;
  went_back_at_.store(clock_.now());
  log_error(EventName("etcd_went_back"),
            "etcd has lost the group's configuration, or has an older one: the group goes on, but "
            "none of its replicas can be replaced, until the configuration is put back and all "
            "replicas are started again");
}

bool ConfigurationAgent::sleep(Nanos at_most) {
  const MutexLock lock(mutex_);
  if (!stopping_) changed_.wait_for(mutex_, std::chrono::nanoseconds(at_most));
  return !stopping_;
}

void ConfigurationAgent::watch() {
  name_thread("rkv-etcd-watch");
  bool reads = true;  // else it waits for a change
  std::int64_t highest = 0;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    const auto stored =
        reads ? store_.read(Deadline::after_ms(clock_, kReadMs))
              : store_.wait_for_other(revision_.load(), Deadline::after_ms(clock_, kWatchMs));
    // A watch that times out says nothing: perhaps nothing has changed, perhaps nobody answers.
    const bool says_nothing = !reads && !stored && stored.error().code == Code::kTimeout;
    reads = !stored;
    if (says_nothing) continue;
    (void)note(stored, "reading");
    if (stored) {
      note_revision(stored->revision, highest);
      highest = std::max(highest, stored->revision);
      revision_.store(stored->revision);
      read_(*stored);
    } else if (!sleep(kRetryAfter)) {
      return;
    }
  }
}

// False: the store has not answered.
bool ConfigurationAgent::read_once() {
  const auto stored = store_.read(Deadline::after_ms(clock_, kReadMs));
  if (!note(stored, "reading") || !stored) return false;
  // An older configuration is not passed on. The watching thread reports that the store has lost
  // data.
  if (stored->revision < revision_.load()) return false;
  read_(*stored);
  return true;
}

void ConfigurationAgent::store() {
  name_thread("rkv-etcd-store");
  for (;;) {
    std::optional<Membership::Change> change;
    std::vector<std::function<void(bool)>> asked;
    bool stops = false;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && !wanted_ && asked_.empty())
        changed_.wait(mutex_);
      stops = stopping_;
      change = wanted_;
      asked.swap(asked_);
    }
    if (!asked.empty()) {
      const bool answers = !stops && read_once();
      for (const auto& told : asked)
        told(answers);
      continue;  // what is wanted may be another change by now
    }
    if (stops) return;
    const auto revision =
        store_.replace(change->revision, change->next, Deadline::after_ms(clock_, kStoreMs));
    (void)note(revision, "storing");
    if (revision) {
      read_({.configuration = change->next, .revision = *revision});
    } else {
      (void)read_once();
    }
    // The change is over, or it is sent again a little later.
    (void)sleep(kRetryAfter / 10);
  }
}

}  // namespace rkv::server
