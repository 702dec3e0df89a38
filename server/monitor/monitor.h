// The monitoring endpoint (--metrics): /metrics, /status, /healthz, /readyz and a page at /. It
// answers from the start of the server, before data can be served, until the server has stopped.
//
//   Monitor monitor(clock);
//   monitor.listen("127.0.0.1:9471");        // optional
//   monitor.doing("opening the database");
//   monitor.in_group([this] { return replicator_->status(); });   // of a replica
//   ...
//   monitor.ready({.facts = [this] { return facts(); }, ...});
//   ... every 100 ms: monitor.tick();
//   monitor.stopping();  ...  monitor.close();
//
// Values are gathered on request, at most ten times a second however many clients ask: gathering
// takes locks of the store that workers also need. Between requests, tick() checks only whether
// workers take turns and how far the disk lags behind.
//
// Invariants:
//  MON-1  The parts are called only between ready() and the end of close(); the status of a group
//      only between in_group() and that.
//  MON-2  Facts are gathered and turned into text without the lock that tick() takes. A request
//      therefore delays only what facts() itself locks.
//  MON-3  A kept answer is served for at most kKept, and never after the state has changed.
//
// Thread safety: one owner. answer() is for one thread: the HTTP server's or a test's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/lag_meter.h"
#include "common/mutex.h"
#include "server/monitor/facts.h"
#include "server/monitor/http_server.h"
#include "server/monitor/liveness.h"
#include "server/monitor/reports.h"

namespace rkv::server {

// Everything shown of one moment. Texts are generated when first requested.
struct MonitorView {
  std::uint64_t change = 0;
  Nanos since = 0;
  ServerState state{};
  std::optional<ServerFacts> facts{};
  std::optional<std::string> metrics{};
  std::optional<std::string> status{};

  const ServerFacts* known() const { return facts ? &*facts : nullptr; }
};

class Monitor {
 public:
  struct Parts {
    std::function<ServerFacts()> facts;
    // The parts of the facts that tick() checks.
    std::function<LogFacts()> log;
    std::function<std::vector<WorkerFacts>()> workers;
  };
  // How long gathered values are kept for further requests.
  static constexpr Nanos kKept = 100 * kNanosPerMs;

  explicit Monitor(const Clock& clock);
  ~Monitor() { close(); }
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Address, names and errors as for HttpServer::start. Logs the address.
  Status listen(const std::string& address, std::vector<std::string> names = {});
  // Sets the text after "starting: ", which says what the start is doing.
  void doing(std::string what);
  // The server is a replica of a group: a backup is ready too, when it is in sync. `status` must
  // not block.
  void in_group(std::function<std::shared_ptr<const GroupStatus>()> status);
  // Clients are served from now on; `parts` supplies the facts.
  void ready(Parts parts);
  // Checks workers and disk lag. Call every 100 ms.
  void tick();
  // The server begins to stop.
  void stopping();
  // No request is running any more when this returns. Blocks until then.
  void close();

  // The answer for a path. Called by the HTTP server, and by tests without one.
  HttpAnswer answer(std::string_view path);

 private:
  using View = MonitorView;
  View& view();
  void add_lags(View& view);
  ServerState state() const RKV_REQUIRES(mutex_);
  HttpAnswer health();
  HttpAnswer readiness();
  std::string stuck() const RKV_REQUIRES(mutex_);

  const Clock& clock_;
  std::uint64_t unix_ms_at_start_ = 0;
  Mutex mutex_;
  std::uint64_t change_ RKV_GUARDED_BY(mutex_) = 0;  // counts changes of phase, doing, parts
  ServerState::Phase phase_ RKV_GUARDED_BY(mutex_) = ServerState::kStarting;
  std::string doing_ RKV_GUARDED_BY(mutex_) = "reading the options";
  std::shared_ptr<const Parts> parts_ RKV_GUARDED_BY(mutex_);
  std::function<std::shared_ptr<const GroupStatus>()> group_ RKV_GUARDED_BY(mutex_);
  LagMeter wal_lag_ RKV_GUARDED_BY(mutex_);
  LagMeter sync_lag_ RKV_GUARDED_BY(mutex_);
  Liveness liveness_ RKV_GUARDED_BY(mutex_);
  std::vector<std::string> names_ RKV_GUARDED_BY(mutex_);  // of the workers in liveness_
  std::optional<View> view_;                               // used by the answering thread only
  std::unique_ptr<HttpServer> http_;
};

}  // namespace rkv::server
