#include "server/monitor/monitor.h"

#include <fmt/format.h>

#include <utility>

#include "common/log.h"
#include "server/monitor/group_reports.h"
#include "server/monitor/status_page.h"

namespace rkv::server {

namespace {

const char* consequence_of(const LogFacts& log) {
  if (log.disk_hangs)
    return ": durable writes wait, others are accepted until the queue is full; reads go on";
  return log.disk == DiskState::kOk ? "" : ": writes are refused, reads go on";
}

// The text of a server that has begun to serve.
std::string serving_text(const ServerFacts& facts, const GroupStatus* group, bool is_ready) {
  const std::string closed = closed_endpoints(facts);
  if (!has_way_in(facts)) return "no client can reach it\n" + closed;
  std::string text = is_ready ? "ready\n" : "";
  if (group != nullptr) text += group_line(*group) + group_worries(*group);
  if (facts.log.persistent) {
    text += fmt::format("disk: {}{}\n", facts.log.disk_name(), consequence_of(facts.log));
  } else {
    text += "disk: none\n";
  }
  if (facts.store.loading) {
    text +=
        fmt::format("loading: {} of about {} records\n", facts.load.loaded, facts.load.estimated);
  }
  return text + closed;
}

double as_seconds(Nanos time) {
  return static_cast<double>(time) / 1e9;
}

}  // namespace

Monitor::Monitor(const Clock& clock) : clock_(clock), unix_ms_at_start_(wall_clock_ms()) {}

Status Monitor::listen(const std::string& address, std::vector<std::string> names) {
  RKV_ASSIGN_OR_RETURN(http_,
                       HttpServer::start(address, std::move(names), clock_,
                                         [this](std::string_view path) { return answer(path); }));
  log_info(EventName("metrics_listening"), "metrics and status page on http://{}:{}/",
           field("host", address.substr(0, address.rfind(':'))), field("port", http_->port()));
  return {};
}

void Monitor::doing(std::string what) {
  const MutexLock lock(mutex_);
  ++change_;
  doing_ = std::move(what);
}

void Monitor::in_group(std::function<std::shared_ptr<const GroupStatus>()> status) {
  const MutexLock lock(mutex_);
  ++change_;
  group_ = std::move(status);
}

void Monitor::ready(Parts parts) {
  const MutexLock lock(mutex_);
  ++change_;
  parts_ = std::make_shared<const Parts>(std::move(parts));
  phase_ = ServerState::kReady;
  doing_.clear();
}

void Monitor::tick() {
  const MutexLock lock(mutex_);
  if (!parts_) return;
  const LogFacts log = parts_->log();
  const Nanos now = clock_.now();
  if (log.persistent) {
    wal_lag_.note(now, log.last_begun, log.wal_mark);
    sync_lag_.note(now, log.last_begun, log.sync_mark);
  }
  std::vector<std::uint64_t> turns;
  names_.clear();
  for (const WorkerFacts& worker : parts_->workers()) {
    turns.push_back(worker.counters->get(WorkerCounters::kTurns));
    names_.push_back(fmt::format("worker {} of {}", worker.number, worker.transport));
  }
  liveness_.look(now, turns);
}

void Monitor::stopping() {
  const MutexLock lock(mutex_);
  ++change_;
  if (phase_ == ServerState::kReady || group_) phase_ = ServerState::kStopping;
}

void Monitor::close() {
  http_.reset();  // without the lock: the HTTP thread may need it
  view_.reset();  // refers to workers
  const MutexLock lock(mutex_);
  ++change_;
  parts_.reset();
  group_ = nullptr;
}

// Reports nothing while the server starts or stops: workers have not begun, or are ending. A backup
// has a thread that follows the group.
std::string Monitor::stuck() const {
  if (group_ && phase_ != ServerState::kStopping) {
    if (std::string stuck = stuck_replicator(*group_(), clock_.now()); !stuck.empty()) return stuck;
  }
  if (phase_ != ServerState::kReady || liveness_.looked_at() == 0) return {};
  if (clock_.now() - liveness_.looked_at() >= Liveness::kStuckAfter) {
    return "the main thread is stuck";
  }
  const auto thread = liveness_.stuck();
  return thread ? names_[*thread] + " is stuck" : std::string();
}

ServerState Monitor::state() const {
  return {.phase = phase_,
          .doing = doing_,
          .stuck = stuck(),
          .unix_ms_at_start = unix_ms_at_start_,
          .group = group_ ? group_() : nullptr};
}

Monitor::View& Monitor::view() {
  std::shared_ptr<const Parts> parts;
  {
    const MutexLock lock(mutex_);
    const Nanos now = clock_.now();
    if (view_ && view_->change == change_ && now - view_->since < kKept) return *view_;
    view_.emplace();
    view_->change = change_;
    view_->since = now;
    view_->state = state();
    parts = parts_;
  }
  if (parts != nullptr) {  // (MON-1, MON-2)
    view_->facts = parts->facts();
    add_lags(*view_);
  }
  return *view_;
}

void Monitor::add_lags(View& view) {
  const LogFacts& log = view.facts->log;
  if (!log.persistent) return;
  const MutexLock lock(mutex_);
  view.state.wal_lag_s = as_seconds(wal_lag_.age(clock_.now(), log.wal_mark));
  view.state.sync_lag_s = as_seconds(sync_lag_.age(clock_.now(), log.sync_mark));
}

HttpAnswer Monitor::health() {
  const MutexLock lock(mutex_);
  const std::string what = stuck();
  if (!what.empty()) return {.status = 503, .body = what + "\n"};
  return {.body = "ok\n"};
}

// A failing disk does not make the server unready: reads go on. The answer names the disk's state.
HttpAnswer Monitor::readiness() {
  const View& now = view();
  const GroupStatus* const group = now.state.group.get();
  const bool is_backup = group != nullptr && group->role != GroupStatus::Role::kPrimary;
  HttpAnswer answer{.status = is_ready(now.state, now.known()) ? 200U : 503U, .body = {}};
  if (now.state.phase == ServerState::kStopping) {
    answer.body = "stopping\n";
  } else if (is_backup) {
    answer.body = group_line(*group) + group_worries(*group);
  } else if (now.state.phase == ServerState::kStarting) {
    answer.body = "starting: " + now.state.doing + "\n";
  } else if (!now.facts) {
    answer.body = "stopping\n";
  } else {
    answer.body = serving_text(*now.facts, group, answer.status == 200);
  }
  return answer;
}

HttpAnswer Monitor::answer(std::string_view path) {
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(status_page)};
  if (path == "/healthz") return health();
  if (path == "/readyz") return readiness();
  if (path == "/status") {
    View& now = view();
    if (!now.status) now.status = status_json(now.state, now.known());
    return {.type = "application/json", .body = *now.status};
  }
  if (path == "/metrics") {
    View& now = view();
    if (!now.metrics) now.metrics = metrics_text(now.state, now.known());
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = *now.metrics};
  }
  return HttpAnswer::not_found();
}

}  // namespace rkv::server
