#include "tests/sim/run_seed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/layout.h"
#include "server/memory/publish_hooks.h"
#include "tests/sim/client_actor.h"
#include "tests/sim/entropy.h"

namespace rkv::sim {

namespace {

constexpr std::uint64_t kMostEvents = 5'000'000;
constexpr Nanos kLatest = 600'000 * kNanosPerMs;
// The longest life of a brief key, its possible delay included.
constexpr Nanos kLongestLife = 300 * kNanosPerMs;
constexpr Nanos kLongestLifeWithSteps = 900 * kNanosPerMs;
constexpr std::int64_t kUntilWellMs = 10'000;  // many times the longest pause between two attempts
constexpr Nanos kUntilBelieved = 60'000 * kNanosPerMs;  // until a wall clock that is ahead is
                                                        // believed
constexpr std::int64_t kAheadForGoodMs = 7'200'000;     // longer than any key lives
constexpr Nanos kLongestDowntime = 5 * kNanosPerMs;

// Starts the server, restarts it as planned, ends the faults, and finally stops it.
class Operator {
 public:
  explicit Operator(Story& story) : story_(story) {}

  void run() {
    start();
    const std::size_t total = story_.plan.operations * story_.plan.clients;
    for (std::size_t i = 0; i < story_.plan.restarts; ++i) {
      const std::size_t at = story_.operations_done + 1 + story_.random.below(total / 2);
      while (story_.operations_done < at && story_.clients_working != 0)
        story_.scheduler.park(story_.progress, story_.scheduler.now() + 100 * kNanosPerMs);
      story_.scheduler.sleep(story_.scheduler.up_to(30'000));
      restart();
    }
    while (story_.clients_working != 0 || story_.clock_working || story_.room_working)
      story_.scheduler.park(story_.progress, story_.scheduler.now() + 100 * kNanosPerMs);
    story_.fabric->faults() = {};
    story_.disk.faults() = {.stays_full = story_.plan.disk.stays_full};
    const Deadline patience = Deadline::after_ms(story_.scheduler, kUntilWellMs);
    while (server_->log().failed() && !patience.passed())
      story_.scheduler.sleep(kNanosPerMs);
    if (server_->log().failed()) {
      story_.history.note({.what = "the disk is well, and the server takes no writes", .key = {}});
    }
    if (story_.plan.clock_stands) set_clock_for_good();
    // All clients must reconnect once more, now without an excuse for lost connections.
    story_.fabric->cut_all();
    // After this every key with a time to live is gone.
    if (story_.plan.clock_steps != 0) {
      story_.scheduler.sleep(kLongestLifeWithSteps);
    } else if (story_.plan.brief_in != 0) {
      story_.scheduler.sleep(kLongestLife);
    }
    story_.calm = true;
  }
  // Called when all clients have ended.
  void finish() { stop(); }
  ServerProcess* server() { return server_.get(); }
  std::uint64_t restarts() const { return restarts_; }
  std::uint64_t stashed() const { return stashed_; }
  std::uint64_t splits() const { return splits_; }
  std::uint64_t promoted() const { return promoted_; }
  std::uint64_t evicted() const { return evicted_; }
  std::uint64_t expired() const { return expired_; }

 private:
  void start() {
    story_.plan.server.boot = static_cast<std::uint32_t>(2 + restarts_);
    const auto content = story_.disk.records();
    server_ = std::make_unique<ServerProcess>(story_.fabric, story_.disk, story_.wall,
                                              story_.plan.server);
    story_.history.server_starts(story_.plan.server.boot, story_.scheduler.now(), content,
                                 story_.keys);
  }
  void restart() {
    const std::uint64_t how = story_.random.below(5);
    if (how == 0) {
      stop();
    } else {
      const Nanos now = story_.scheduler.now();
      // A failing disk may lose data that is written and not synced, whatever kind of end comes.
      const bool keeps_written = how < 3 && !server_->log().failed();
      server_->crash(how < 3 ? Disk::End::kProcess : Disk::End::kMachine);
      story_.history.server_ends(now,
                                 keeps_written ? History::End::kProcess : History::End::kMachine,
                                 story_.disk.records(), story_.keys);
      server_->join();
      discard();
    }
    ++restarts_;
    story_.scheduler.sleep(story_.scheduler.up_to(kLongestDowntime));
    start();
  }
  // Called when no client works any more. The clock is believed a minute later, and not before.
  void set_clock_for_good() {
    story_.wall.set_by(kAheadForGoodMs);
    story_.history.clock_is_believed(story_.scheduler.now() + kUntilBelieved);
    story_.scheduler.sleep(kUntilBelieved + story_.plan.expiry_late + kNanosPerMs);
  }
  void stop() {
    const bool saved = server_->stop();
    if (!saved && story_.plan.disk.fail_in == 0) {
      story_.history.note({.what = "a stopping server could not save its data", .key = {}});
    }
    story_.history.server_ends(server_->gone_at(),
                               saved ? History::End::kStopped : History::End::kMachine,
                               story_.disk.records(), story_.keys);
    discard();
  }
  void discard() {
    stashed_ = std::max(stashed_, server_->stats().stashed_records);
    splits_ += server_->stats().index_splits;
    promoted_ += server_->stats().promoted;
    evicted_ += server_->stats().evicted;
    expired_ += server_->stats().expired;
    server_.reset();
  }

  Story& story_;
  std::unique_ptr<ServerProcess> server_;
  std::uint64_t restarts_ = 0;
  std::uint64_t stashed_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t promoted_ = 0;
  std::uint64_t evicted_ = 0;
  std::uint64_t expired_ = 0;
};

// ---------------------------------------------------------------------------------- canaries

std::optional<Location> location_of(const ServerProcess* server, std::uint64_t address) {
  if (server == nullptr) return std::nullopt;
  for (std::uint32_t id = 0; id < server->memory().extent_count(); ++id) {
    const auto& extent = server->memory().extent(id);
    if (extent.kind != ExtentEntry::kData) continue;
    const auto base = reinterpret_cast<std::uint64_t>(extent.base);
    if (address < base || address >= base + extent.length_bytes) continue;
    return Location::of(extent.id, static_cast<std::uint32_t>((address - base) / kUnitBytes));
  }
  return std::nullopt;
}

// Gives a record that does not verify the checksum that it would have if it were whole and live.
void forge(const ServerProcess* server, MutableBytes landed, std::uint64_t address) {
  const auto location = location_of(server, address);
  if (!location || landed.size() < kRecordHeaderBytes) return;
  const std::uint64_t epoch = server->memory().epoch();
  if (decode_record(landed, epoch, *location)) return;
  const auto bytes = claimed_record_bytes(landed);
  if (!bytes || *bytes > landed.size()) return;
  const auto lengths = load_le<std::uint64_t>(landed.data() + 16);
  const std::size_t key_length = lengths & (kRecordExpiryFlag - 1);
  std::vector<std::byte> whole(round_up(*bytes, kUnitBytes));
  const RecordFields fields{.version = {load_le<std::uint64_t>(landed.data() + 8)},
                            .expiry_ms = 0,
                            .key = landed.subspan(kRecordHeaderBytes, key_length),
                            .value = landed.subspan(kRecordHeaderBytes + key_length,
                                                    *bytes - kRecordHeaderBytes - key_length)};
  (void)encode_record(whole, fields, RecordState::kLive, epoch, *location);
  store_le(landed.data(), load_le<std::uint64_t>(whole.data()));
}

using Remembered = std::map<std::pair<std::uint64_t, std::size_t>, std::vector<std::byte>>;

void answer_late(Story& story, Remembered& remembered, MutableBytes landed, std::uint64_t address) {
  std::vector<std::byte>& before = remembered[{address, landed.size()}];
  std::vector<std::byte> now(landed.begin(), landed.end());
  if (!before.empty() && story.scheduler.chance(4)) {
    std::ranges::copy(before, landed.begin());
  }
  before = std::move(now);
}

void tamper(Story& story, Operator& control, Canary canary, Remembered& remembered) {
  if (canary == Canary::kForgedRecords) {
    story.fabric->tampering() = [&control](MutableBytes landed, std::uint64_t address) {
      forge(control.server(), landed, address);
    };
  } else if (canary == Canary::kStaleReads) {
    story.fabric->tampering() = [&](MutableBytes landed, std::uint64_t address) {
      if (!story.calm) answer_late(story, remembered, landed, address);
    };
  }
}

// ----------------------------------------------------------------------------------- the run

// Fills the disk for a while. After the server has found that there is space again, it may not
// refuse any operation for lack of space.
void fill_disk(Story& story, Operator& control) {
  Scheduler& scheduler = story.scheduler;
  const auto working = [&] { return story.clients_working != 0; };
  const std::size_t total = story.plan.operations * story.plan.clients;
  for (std::size_t i = 0; i < story.plan.fillings; ++i) {
    const std::size_t at = story.operations_done + 1 + story.random.below(total / 3);
    while (story.operations_done < at && working())
      scheduler.sleep(scheduler.up_to(kNanosPerMs / 10));
    if (!working()) break;
    story.disk_is_full = true;
    story.disk.set_full(true);
    scheduler.sleep(scheduler.up_to(story.plan.full_for));
    story.disk.set_full(false);
    const Deadline patience = Deadline::after_ms(scheduler, kUntilWellMs);
    const auto trouble = [&] {
      return control.server() == nullptr || control.server()->log().failed();
    };
    while (trouble() && !patience.passed())
      scheduler.sleep(scheduler.up_to(kNanosPerMs / 10));
    story.was_full = scheduler.now();
    story.disk_is_full = false;
  }
  story.room_working = false;
}

// Sets the wall clock back for good, or ahead for a moment: so far ahead that it is not believed at
// once, despite all steps back.
void step_clock(Story& story) {
  static constexpr std::array<std::int64_t, 4> kBackMs = {50, 300, 5'000, 3'600'000};
  static constexpr std::array<std::int64_t, 2> kAheadMs = {10'000, 7'200'000};
  Scheduler& scheduler = story.scheduler;
  const auto working = [&] { return story.clients_working != 0; };
  while (story.operations_done == 0 && working())
    scheduler.sleep(kNanosPerMs);
  for (std::size_t i = 0; i < story.plan.clock_steps && working(); ++i) {
    scheduler.sleep(scheduler.up_to(200 * kNanosPerMs));
    if (scheduler.chance(3)) {
      story.wall.set_by(-kBackMs[scheduler.random().below(kBackMs.size())]);
      continue;
    }
    const std::int64_t ahead_ms = kAheadMs[scheduler.random().below(kAheadMs.size())];
    story.wall.set_by(ahead_ms);
    scheduler.sleep(scheduler.up_to(300 * kNanosPerMs));
    story.wall.undo(ahead_ms, story.plan.restarts != 0);
  }
  story.clock_working = false;
}

std::string describe(const History::Violation& violation, const Story& story) {
  return violation.what + "\n" +
         (violation.key ? "key " + story.keys[*violation.key] + ":\n" : "all operations:\n") +
         story.history.tell(violation.key, story.keys);
}

// Called between two stores of a publication. A record's body consists of many stores whose order
// does not matter, so most pauses are elsewhere.
void between_stores(Story& story, server::Step step) {
  rdma::sim::Scheduler& scheduler = story.scheduler;
  scheduler.spend(scheduler.up_to(story.plan.store_step));
  if (scheduler.group() != ServerProcess::kWorkers || story.calm) return;
  const std::uint64_t seldom = step == server::Step::kRecordBody ? 16 : 1;
  if (scheduler.chance(seldom * story.plan.pause_in)) {
    scheduler.sleep_holding(scheduler.up_to(story.plan.pause));
  }
}

Outcome judge(Story& story, const std::optional<std::string>& stuck) {
  Outcome outcome;
  if (stuck) {
    outcome.stuck = true;
    story.history.note({.what = *stuck, .key = {}});
    outcome.violation = describe({.what = *stuck, .key = {}}, story);
  } else if (const auto& violation = story.history.check(
                 story.keys.size(), story.plan.expiry_late + story.wall.set_back())) {
    outcome.violation = describe(*violation, story);
  }
  outcome.trace_hash = story.scheduler.trace_hash();
  outcome.events = story.scheduler.events();
  outcome.time = story.scheduler.now();
  outcome.network = story.fabric->counts();
  outcome.clock_steps = story.wall.steps();
  outcome.full_refusals = story.full_refusals;
  for (std::size_t i = 0; i < story.history.size(); ++i) {
    const Op& op = story.history[i];
    if (op.called == 0) continue;
    ++outcome.operations;
    const bool done = op.kind == Op::Kind::kPut && op.outcome == Op::Outcome::kDone;
    outcome.large_puts += done && op.length > kMaxInlineBytes ? 1 : 0;
    const bool failed = op.outcome == Op::Outcome::kFailed || op.outcome == Op::Outcome::kUnknown;
    outcome.failures += failed ? 1 : 0;
  }
  return outcome;
}

}  // namespace

Story::Story(std::uint64_t seed, Canary canary)
    : fabric(std::make_shared<Fabric>(mix64(seed))),
      scheduler(fabric->scheduler()),
      random(seed ^ 0x5EED),
      plan(Plan::draw(random, canary)),
      disk(scheduler),
      wall(scheduler) {
  fabric->faults() = plan.network;
  scheduler.pace() = plan.pace;
  disk.faults() = plan.disk;
  for (std::size_t i = 0; i < plan.hot_keys; ++i)
    keys.push_back(fmt::format("k{}", i));
  for (std::size_t i = 0; i < plan.fillers; ++i) {
    const std::size_t key = keys.size();
    keys.push_back(fmt::format("filler{}", i));
    const std::size_t number = history.begin({.kind = Op::Kind::kPut, .key = key});
    const Version version = Version::of(1, 1 + i);
    history[number].length = plan.filler_bytes;
    history[number].outcome = Op::Outcome::kDone;
    history[number].version = version;
    disk.preload(keys[key],
                 {.version = version, .value = History::value_of(number, plan.filler_bytes)});
  }
  for (std::size_t i = 0; i < plan.counters; ++i)
    keys.push_back(fmt::format("zcounter{}", i));
  // Present on the disk from the start, so that no opening creates one, which the model does not
  // know.
  if (plan.cell_keys != 0) history.count_in_cells(keys.size(), plan.to_log);
  for (std::size_t i = 0; i < plan.cell_keys; ++i) {
    keys.push_back(fmt::format("zzcell{}", i));
    disk.preload(keys.back(), {.version = Version::of(1, 1000 + i),
                               .value = std::string(kCounterBytes, 0),
                               .counter = true});
  }
}

Outcome run_seed(std::uint64_t seed, Canary canary) {
  auto story = std::make_unique<Story>(seed, canary);
  Random entropy(~seed);
  set_entropy(&entropy);
  rdma::sim::Scheduler& scheduler = story->scheduler;
  server::step_hook = [&story = *story](server::Step step, std::uint64_t*) {
    between_stores(story, step);
  };

  auto control = std::make_unique<Operator>(*story);
  Remembered remembered;
  tamper(*story, *control, canary, remembered);
  std::vector<std::unique_ptr<ClientActor>> actors;
  story->clients_working = story->plan.clients;
  std::size_t working = story->plan.clients;
  for (std::size_t i = 0; i < story->plan.clients; ++i) {
    actors.push_back(std::make_unique<ClientActor>(*story, static_cast<int>(i)));
    scheduler.spawn(fmt::format("client {}", i), [&, actor = actors.back().get()] {
      actor->run();
      --working;
    });
  }
  if (story->plan.fillings != 0) {
    story->room_working = true;
    scheduler.spawn("room", [&story = *story, &control = *control] { fill_disk(story, control); });
  }
  if (story->plan.clock_steps != 0) {
    story->clock_working = true;
    scheduler.spawn("clock", [&story = *story] { step_clock(story); });
  }
  scheduler.spawn("operator", [&] {
    control->run();
    while (working != 0)
      scheduler.sleep(10 * kNanosPerMs);
    control->finish();
  });
  const auto stuck = scheduler.run(kMostEvents, kLatest);
  server::step_hook = nullptr;
  Outcome outcome = judge(*story, stuck);
  outcome.restarts = control->restarts();
  outcome.stashed = control->stashed();
  outcome.splits = control->splits();
  outcome.promoted = control->promoted();
  outcome.evicted = control->evicted();
  outcome.expired = control->expired();
  for (const auto& actor : actors)
    outcome.clients += actor->stats();
  if (stuck) {  // kept alive: the fibers' stacks refer to these objects
    static auto& stories = *new std::vector<std::unique_ptr<Story>>;
    static auto& operators = *new std::vector<std::unique_ptr<Operator>>;
    static auto& clients = *new std::vector<std::unique_ptr<ClientActor>>;
    stories.push_back(std::move(story));
    operators.push_back(std::move(control));
    std::ranges::move(actors, std::back_inserter(clients));
  }
  return outcome;
}

}  // namespace rkv::sim
