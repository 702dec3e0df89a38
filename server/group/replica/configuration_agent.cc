#include "server/group/replica/configuration_agent.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/log.h"
#include "common/thread.h"

namespace rkv::server {

namespace {

constexpr std::int64_t kReadMs = 1000;
constexpr std::int64_t kStoreMs = 1000;
// Longest watch, if no change ends it. stop() waits for it.
constexpr std::int64_t kWatchMs = 1000;
constexpr Nanos kRetryAfter = 100 * kNanosPerMs;
// Shorter troubles with the store are not logged.
constexpr Nanos kWorthALine = 3 * kNanosPerSecond;
// Interval of the attempts to find out whether the store takes changes. After a failed attempt it
// is shorter.
constexpr Nanos kTryEvery = 10 * kNanosPerSecond;
constexpr Nanos kTryAgainAfter = kNanosPerSecond;

bool are_same(const Membership::Change& one, const Membership::Change& other) {
  return one.revision == other.revision && one.next.number == other.next.number;
}

Nanos passed(Nanos since, Nanos now) {
  return since == 0 ? 0 : std::max<Nanos>(now - since, 1);
}

}  // namespace

ConfigurationAgent::ConfigurationAgent(ConfigurationStore& store, const Clock& clock, Read read,
                                       Refused refused)
    : store_(store), clock_(clock), read_(std::move(read)), refused_(std::move(refused)) {}

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
    const bool same =
        change.has_value() == wanted_.has_value() && (!change || are_same(*change, *wanted_));
    if (same) return;
    wanted_ = change;
  }
  changed_.notify_all();
}

bool ConfigurationAgent::give_up(const Membership::Change& change) {
  const MutexLock lock(mutex_);
  const bool is_unknown = unknown_ && are_same(*unknown_, change);
  if (!wanted_ || !are_same(*wanted_, change) || is_sending_ || is_unknown) return false;
  wanted_.reset();
  return true;
}

void ConfigurationAgent::ask(std::function<void(const Status&)> told) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) {
      asked_.push_back(std::move(told));
      told = nullptr;
    }
  }
  if (told) return told(fail(Code::kBusy, "this replica is being stopped"));
  changed_.notify_all();
}

Nanos ConfigurationAgent::unanswered_for(Nanos now) const {
  return std::max(passed(unanswered_since_.load(std::memory_order_relaxed), now),
                  passed(went_back_at_.load(std::memory_order_relaxed), now));
}

Nanos ConfigurationAgent::unstored_for(Nanos now) const {
  return passed(unstored_since_.load(std::memory_order_relaxed), now);
}

// Returns false if the store has not answered. That is logged once it has lasted, and when it is
// over.
template <class Answer>
bool ConfigurationAgent::note(const Answer& answer) {
  const Nanos now = clock_.now();
  Nanos since = unanswered_since_.load();
  if (answer) {
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
             "etcd does not answer ({}): the group goes on, but none of its replicas can be "
             "replaced",
             to_string(answer.error()));
  }
  return false;
}

// A failed comparison shows that the store takes changes: it is made where changes are stored.
// While the store does not answer at all, only that is logged.
template <class Answer>
void ConfigurationAgent::note_stored(const Answer& answer) {
  const Nanos now = clock_.now();
  const Nanos since = unstored_since_.load();
  if (answer || answer.error().code == Code::kConflict) {
    unstored_since_.store(0);
    try_at_ = now + kTryEvery;
    if (std::exchange(has_told_unstored_, false)) {
      log_info(EventName("etcd_stores"), "etcd stores changes again after {} s",
               field("seconds", (now - since) / kNanosPerSecond));
    }
    return;
  }
  try_at_ = now + kTryAgainAfter;
  if (since == 0) return unstored_since_.store(now);
  if (now - since <= kWorthALine || has_told_unstored_ || unanswered_since_.load() != 0) return;
  has_told_unstored_ = true;
  log_warn(EventName("etcd_refuses"),
           "etcd answers, but stores no change ({}): the group goes on, but none of its replicas "
           "can be replaced",
           to_string(answer.error()));
}

// `before`: the highest revision that this thread has read. Reads of one thread never go back, so a
// lower revision shows that the store has lost data.
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
    const Nanos asked_at = clock_.now();
    const auto stored =
        reads ? store_.read(Deadline::after_ms(clock_, kReadMs))
              : store_.wait_for_other(revision_.load(), Deadline::after_ms(clock_, kWatchMs));
    // A watch that times out is inconclusive: perhaps nothing has changed, perhaps the store does
    // not answer.
    const bool says_nothing = !reads && !stored && stored.error().code == Code::kTimeout;
    reads = !stored;
    if (says_nothing) continue;
    (void)note(stored);
    if (stored) {
      note_revision(stored->revision, highest);
      highest = std::max(highest, stored->revision);
      revision_.store(stored->revision);
      read_(*stored, asked_at);
    } else if (!sleep(kRetryAfter)) {
      return;
    }
  }
}

// Returns false if the store has not answered.
bool ConfigurationAgent::read_once() {
  const Nanos asked_at = clock_.now();
  const auto stored = store_.read(Deadline::after_ms(clock_, kReadMs));
  if (!note(stored)) return false;
  // Does not pass on an older configuration. The watching thread reports that the store has lost
  // data.
  if (stored->revision < revision_.load()) return false;
  read_(*stored, asked_at);
  return true;
}

Status ConfigurationAgent::try_storing() {
  const Status tried = store_.try_storing(Deadline::after_ms(clock_, kStoreMs));
  note_stored(tried);
  return tried;
}

void ConfigurationAgent::answer(const std::vector<std::function<void(const Status&)>>& asked,
                                bool stops) {
  Status answer;
  if (stops) {
    answer = fail(Code::kBusy, "this replica is being stopped");
  } else if (!read_once()) {
    answer = fail(Code::kBusy, "etcd does not answer");
  } else if (!try_storing()) {
    answer = fail(Code::kBusy, "etcd stores no change: its log and etcdctl alarm list say why");
  }
  for (const auto& told : asked)
    told(answer);
}

void ConfigurationAgent::send(const Membership::Change& change) {
  const Nanos asked_at = clock_.now();
  const auto revision =
      store_.replace(change.revision, change.next, Deadline::after_ms(clock_, kStoreMs));
  note_stored(revision);
  const bool has_no_effect = !revision && revision.error().code != Code::kConflict &&
                             revision.error().write == WriteOutcome::kNotApplied;
  {
    const MutexLock lock(mutex_);
    is_sending_ = false;
    if (!has_no_effect) unknown_ = change;
  }
  if (revision) return read_({.configuration = change.next, .revision = *revision}, asked_at);
  if (has_no_effect && refused_) refused_(change);
  (void)read_once();
}

void ConfigurationAgent::store() {
  name_thread("rkv-etcd-store");
  try_at_ = clock_.now() + kTryEvery;
  for (;;) {
    std::optional<Membership::Change> change;
    std::vector<std::function<void(const Status&)>> asked;
    bool stops = false;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && !wanted_ && asked_.empty() && clock_.now() < try_at_)
        changed_.wait_for(mutex_, std::chrono::nanoseconds(try_at_ - clock_.now()));
      stops = stopping_;
      asked.swap(asked_);
      if (asked.empty() && !stops) change = wanted_;
      is_sending_ = change.has_value();
    }
    if (!asked.empty()) {
      answer(asked, stops);
      continue;  // another change may be wanted by now
    }
    if (stops) return;
    if (!change) {
      (void)try_storing();
      continue;
    }
    send(*change);
    // If the change is not over, it is sent again a little later.
    (void)sleep(kRetryAfter / 10);
  }
}

}  // namespace rkv::server
