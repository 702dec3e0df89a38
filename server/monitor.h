// What a server shows of itself to who looks from outside (--metrics): /metrics, /status, /healthz,
// /readyz and a page at /. It answers from the moment that the server starts, long before there is
// data to serve, until it has stopped.
//
//   Monitor monitor(clock);
//   monitor.listen("127.0.0.1:9471");        // optional
//   monitor.doing("opening the database");
//   ...
//   monitor.ready({.facts = [this] { return facts(); }, ...});
//   ... every 100 ms: monitor.tick();
//   monitor.stopping();  ...  monitor.close();
//
// Values are gathered when somebody asks, ten times a second at most however many ask: gathering
// takes locks of the store that workers want as well. What is looked at in between is whether
// workers make turns and how far the disk is behind.
//
// Invariants:
//  S1  The parts are called only between ready() and the end of close().
//  S2  Facts are gathered, and made into text, without the lock that tick() takes: whoever asks
//      holds nobody up, but for what facts() itself has to wait for.
//  S3  What is kept is served for kKept at most, and never after the state has changed.
//
// Thread safety: one owner; answer() is for one thread, the HTTP server's or a test's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/facts.h"
#include "server/http_server.h"
#include "server/lag_meter.h"
#include "server/liveness.h"
#include "server/reports.h"

namespace rkv::server {

// All that is shown of one moment; what is made of it when it is asked for.
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
    // Of those, what is looked at between two questions.
    std::function<LogFacts()> log;
    std::function<std::vector<WorkerFacts>()> workers;
  };
  // Of what was gathered for one who asked, for who asks next.
  static constexpr Nanos kKept = 100 * kNanosPerMs;

  explicit Monitor(const Clock& clock);
  ~Monitor() { close(); }
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Address, names and errors as HttpServer::start. Logs where it listens.
  Status listen(const std::string& address, std::vector<std::string> names = {});
  // What the start is doing, as a person reads it behind "starting: ".
  void doing(std::string what);
  void ready(Parts parts);
  void tick();
  void stopping();
  // Nobody asks any more when this returns.
  void close();

  // What a path is answered with. For the HTTP server, and for tests without one.
  HttpAnswer answer(std::string_view path);

 private:
  using View = MonitorView;
  View& view();
  void add_lags(View& view);
  ServerState state() const;
  HttpAnswer health();
  HttpAnswer readiness();
  std::string stuck() const;

  const Clock& clock_;
  std::mutex mutex_;          // guards all of the following but view_ and http_
  std::uint64_t change_ = 0;  // number of the state: of phase, what is being done, parts
  ServerState::Phase phase_ = ServerState::kStarting;
  std::string doing_ = "reading the options";
  std::uint64_t unix_ms_at_start_ = 0;
  std::shared_ptr<const Parts> parts_;
  LagMeter wal_lag_;
  LagMeter sync_lag_;
  Liveness liveness_;
  std::vector<std::string> names_;  // of the workers that liveness_ looks at
  std::optional<View> view_;        // of who answers
  std::unique_ptr<HttpServer> http_;
};

}  // namespace rkv::server
