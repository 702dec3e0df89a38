#include "tests/sim/plan.h"

#include <algorithm>
#include <initializer_list>

namespace rkv::sim {

namespace {

constexpr Nanos kMicro = 1000;
constexpr Nanos kMilli = kNanosPerMs;

template <class T>
T pick(Random& random, std::initializer_list<T> choices) {
  return *(choices.begin() + random.below(choices.size()));
}

rdma::sim::Faults draw_network(Random& random) {
  using N = Nanos;
  using U = std::uint64_t;
  rdma::sim::Faults faults;
  faults.latency = pick<N>(random, {kMicro, 3 * kMicro, 20 * kMicro});
  faults.pieces = pick<std::uint32_t>(random, {1, 3, 8, 16});
  faults.piece_spread = pick<N>(random, {0, 3 * kMicro, 30 * kMicro, 100 * kMicro, 300 * kMicro});
  faults.retransmit_in = pick<U>(random, {0, 4, 20});
  faults.retransmit = pick<N>(random, {200 * kMicro, 2 * kMilli, 20 * kMilli});
  faults.slow_in = pick<U>(random, {0, 0, 20});
  faults.slow = pick<N>(random, {100 * kMicro, 10 * kMilli});
  faults.cut_in = pick<U>(random, {0, 0, 40, 300});
  faults.notice = pick<N>(random, {kMicro, 100 * kMicro, 5 * kMilli, 5 * kMilli, 3000 * kMilli});
  faults.refuse_in = pick<U>(random, {0, 0, 0, 0, 0, 100});
  faults.handshake_in = pick<U>(random, {0, 0, 0, 6});
  faults.sends_in_flight = pick<std::uint32_t>(random, {0, 0, 1, 3});
  faults.reads_in_flight = pick<std::uint32_t>(random, {1, 2, 16});
  faults.refill = pick<N>(random, {0, 0, 2 * kMilli});
  faults.short_poll_in = pick<U>(random, {0, 3});
  faults.early_wake_in = pick<U>(random, {0, 5});
  return faults;
}

ClientOptions draw_client(Random& random, bool may_fail) {
  using std::chrono::milliseconds;
  ClientOptions options;
  options.server = ServerProcess::kAddress;
  options.timeout = milliseconds(may_fail ? pick(random, {5, 50, 50, 2000}) : 2000);
  options.connect_timeout = milliseconds(pick(random, {5, 20, 100}));
  options.first_backoff = milliseconds(1);
  options.longest_backoff = milliseconds(pick(random, {1, 10}));
  options.cache_bytes = random.below(3) == 0 ? 0 : std::size_t{1} << 14;
  options.reads_in_flight = static_cast<std::uint32_t>(1 + random.below(4));
  options.requests_in_flight = static_cast<std::uint16_t>(1 + random.below(6));
  return options;
}

// For half of the runs: few faults, but all clients use the same one or two keys, and the server
// pauses within its writes. This shows a wrong order of stores.
void crowd(Random& random, Plan& plan) {
  plan.clients = 3 + random.below(2);
  plan.operations = 40 + random.below(60);
  plan.hot_keys = pick<std::size_t>(random, {1, 1, 2, 4});
  plan.think = pick<Nanos>(random, {0, 0, 10 * kMicro});
  plan.nap_in = pick<std::uint64_t>(random, {0, 5, 20});
  plan.two_lengths = random.below(2) == 0;
  plan.pause_in = pick<std::uint64_t>(random, {2, 4, 8});
  plan.pause = pick<Nanos>(random, {30 * kMicro, 100 * kMicro});
  plan.long_in = plan.huge_in = 0;
  plan.pace = {.wake_up = pick<Nanos>(random, {200, 2 * kMicro}),
               .yield_in = pick<std::uint64_t>(random, {0, 16}),
               .yield = kMicro};
  plan.network.latency = pick<Nanos>(random, {kMicro, 3 * kMicro});
  plan.network.piece_spread = pick<Nanos>(random, {0, kMicro, 10 * kMicro, 100 * kMicro});
  plan.network.notice = pick<Nanos>(random, {kMicro, 100 * kMicro});
  plan.network.slow_in = pick<std::uint64_t>(random, {0, 0, 20});
  if (random.below(3) == 0) return;
  plan.restarts = 0;
  plan.disk.fail_in = 0;
  plan.network.cut_in = plan.network.handshake_in = plan.network.refuse_in = 0;
}

// Adds a passing of time, and steps of the wall clock while keys with a time to live exist.
void set_clocks(Random& random, Plan& plan, std::size_t steps, bool stands) {
  plan.clock_steps = steps;
  plan.clock_stands = stands;
  if (steps == 0 && !stands) return;
  plan.brief_in = 2;
  if (steps == 0) return;
  plan.operations = 20 + random.below(20);
  plan.think = 30 * kMilli;
  plan.hot_keys = 3 + random.below(6);
  plan.nap_in = 0;
}

// More than memory holds: records are evicted, and loaded again for operations.
void tighten(Random& random, Plan& plan) {
  plan.server.tight = true;
  plan.server.max_index_segments = 8;
  plan.fillers = 130;
  plan.filler_bytes = pick<std::size_t>(random, {8'000, 10'000});
  plan.hot_keys = pick<std::size_t>(random, {1, 2, 5});
  plan.long_in = pick<std::uint64_t>(random, {2, 4});
  plan.huge_in = 0;
  plan.nap_in = pick<std::uint64_t>(random, {0, 3});
  plan.disk.read_fails_in = 0;
}

void draw_server(Random& random, Plan& plan) {
  plan.disk = {.write = pick<Nanos>(random, {kMicro, 100 * kMicro}),
               .sync = pick<Nanos>(random, {10 * kMicro, kMilli}),
               .fail_in = pick<std::uint64_t>(random, {0, 0, 0, 5, 30}),
               .recover_fails_in = 3,
               .lies_in = 0};
  plan.server = {.hash_seed = random(),
                 .index_segments = pick<std::uint32_t>(random, {1, 1, 2}),
                 .max_index_segments = pick<std::uint32_t>(random, {2, 2, 8}),
                 .workers = pick<std::uint32_t>(random, {1, 1, 2})};
  plan.server.applier.sync_interval_ms = pick(random, {1, 20, 1000});
  plan.server.applier.batch_records = pick<std::uint32_t>(random, {1, 3, 4096});
  plan.server.applier.retry_ms_min = 1;
  plan.server.applier.retry_ms_max = 20;
}

void break_something(Plan& plan, Canary canary) {
  if (canary == Canary::kLyingDisk) {
    plan.disk.lies_in = 2;
    plan.restarts = 2;
  }
  if (canary == Canary::kStaleDisk) plan.disk.stale_in = 2;
  if (canary == Canary::kHidingDisk) {
    plan.disk.hides_in = 10;
    plan.scans = true;
  }
  if (canary == Canary::kNoExpiry) {
    plan.server.expires = false;
    plan.brief_in = 2;
    plan.disk.fail_in = plan.huge_in = plan.restarts = 0;
  }
}

// Wrong answers to clients that have lost one: connections end often, and the server goes on.
void answer_wrongly(Plan& plan, Canary canary) {
  plan.server.asked = canary == Canary::kForgetful      ? Asked::kForgotten
                      : canary == Canary::kAppliesAgain ? Asked::kNeverDone
                      : canary == Canary::kWrongLane    ? Asked::kAnotherLane
                                                        : Asked::kRight;
  if (plan.server.asked == Asked::kRight) return;
  plan.network.cut_in = 20;
  plan.restarts = 0;
}

void draw_room(Random& random, Plan& plan, Canary canary) {
  const bool broken = canary == Canary::kDroppingDisk || canary == Canary::kFullForGood;
  plan.fillings = random.below(8) == 0 || broken ? 1 + random.below(3) : 0;
  plan.full_for = pick<Nanos>(random, {kMilli, 5 * kMilli, 50 * kMilli});
  if (canary == Canary::kNoExpiry) plan.fillings = 0;
  plan.disk.drops_when_full = canary == Canary::kDroppingDisk;
  plan.disk.stays_full = canary == Canary::kFullForGood;
  if (!broken) return;
  plan.huge_in = plan.disk.fail_in = 0;
  plan.restarts = 2;
}

void draw_clock(Random& random, Plan& plan, Canary canary) {
  const bool hasty = canary == Canary::kHastyClock;
  const bool deaf = canary == Canary::kDeafClock;
  // Rare, because a minute passes until a clock that stays ahead is believed.
  const bool stands = random.below(24) == 0 || deaf;
  const bool steps = random.below(10) == 0 || hasty;
  if (deaf || hasty) plan.fillings = plan.disk.fail_in = plan.huge_in = plan.restarts = 0;
  set_clocks(random, plan, steps ? 1 + random.below(4) + (hasty ? 4 : 0) : 0,
             stands && plan.disk.fail_in == 0 && plan.huge_in == 0 && plan.fillings == 0);
  if (hasty) plan.server.follows = ServerOptions::Follows::kAtOnce;
  if (deaf) plan.server.follows = ServerOptions::Follows::kNever;
}

// Draws from its own generator, so that the draws of runs without cells stay the same.
void draw_cells(Random random, Plan& plan, Canary canary) {
  Random own(random());
  const bool broken = canary == Canary::kNoSweep || canary == Canary::kBlindSeal;
  plan.cell_keys = pick<std::size_t>(own, {0, 0, 1, 2});
  if (broken) plan.cell_keys = 2;
  if (canary != Canary::kNone && !broken) plan.cell_keys = 0;
  if (plan.cell_keys == 0) return;
  plan.server.cells = broken ? 64 : pick<std::uint32_t>(own, {1, 3, 64, 64});
  plan.server.flush_sweeps = canary != Canary::kNoSweep;
  plan.server.seals_blindly = canary == Canary::kBlindSeal;
  if (broken) plan.restarts = 2;
  if (broken || plan.clock_steps != 0 || own.below(3) != 0) return;
  // Longer than it takes until counts are logged without a flush.
  plan.think = 200 * kMilli;
  plan.restarts = std::max<std::size_t>(plan.restarts, 1);
}

}  // namespace

Plan Plan::draw(Random& random, Canary canary) {
  Plan plan;
  plan.clients = 2 + random.below(3);
  plan.operations = 20 + random.below(40);
  plan.hot_keys = pick<std::size_t>(random, {1, 1, 2, 3, 5, 8});
  // Two groups hold 60 keys. With more, keys move between home, neighbour and stash, and segments
  // split if they may.
  plan.fillers = pick<std::size_t>(random, {0, 0, 0, 25, 56, 62, 130});
  plan.think = pick<Nanos>(random, {0, 0, 10 * kMicro, 100 * kMicro, 3 * kMilli});
  plan.store_step = pick<Nanos>(random, {0, 30, 300});
  plan.pause_in = pick<std::uint64_t>(random, {0, 2, 6, 30});
  plan.pause = pick<Nanos>(random, {10 * kMicro, 100 * kMicro});
  plan.long_in = pick<std::uint64_t>(random, {0, 0, 8});
  plan.huge_in = pick<std::uint64_t>(random, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3});
  plan.restarts = pick<std::size_t>(random, {0, 0, 1, 2});
  plan.network = draw_network(random);
  plan.pace = {.wake_up = pick<Nanos>(random, {200, 2 * kMicro, 50 * kMicro}),
               .yield_in = pick<std::uint64_t>(random, {0, 4, 16}),
               .yield = pick<Nanos>(random, {kMicro, 20 * kMicro})};
  draw_server(random, plan);
  plan.counters = pick<std::size_t>(random, {0, 0, 1, 2});
  plan.brief_in = pick<std::uint64_t>(random, {0, 0, 2, 8});
  plan.scans = random.below(2) == 0;
  plan.server.clock_step_ms = pick<std::uint64_t>(random, {0, 0, 20, 3'600'000});
  plan.server.load_rate = pick<std::uint64_t>(random, {0, 0, 10'000, 200'000});
  plan.disk.read = pick<Nanos>(random, {kMicro, 100 * kMicro, kMilli});
  plan.disk.read_fails_in = pick<std::uint64_t>(random, {0, 0, 0, 20});
  if (random.below(2) == 0 || canary == Canary::kForgedRecords) crowd(random, plan);
  if (random.below(8) == 0 || canary == Canary::kStaleDisk) tighten(random, plan);
  if (plan.huge_in != 0) {
    // The commit log fills up because the disk is slow.
    plan.disk.sync = 30 * kMilli;
    plan.server.applier.sync_interval_ms = 1000;
  }
  break_something(plan, canary);
  answer_wrongly(plan, canary);
  plan.large_in = plan.server.tight ? 0 : pick<std::uint64_t>(random, {20, 60, 120});
  if (canary == Canary::kMixedValues) {
    plan.disk.mixes_large = true;
    plan.large_in = 8;
    plan.restarts = 2;
  }
  draw_room(random, plan, canary);
  draw_clock(random, plan, canary);
  draw_cells(random, plan, canary);
  plan.may_fail = plan.restarts != 0 || plan.disk.fail_in != 0 || plan.network.cut_in != 0 ||
                  plan.network.handshake_in != 0 || plan.network.refuse_in != 0 ||
                  plan.huge_in != 0 || plan.fillers > 50 || plan.disk.read_fails_in != 0;
  // A log that is full or failed keeps expired keys; otherwise server/MANUAL.md's bound holds.
  const bool on_time = plan.disk.fail_in == 0 && plan.huge_in == 0 && plan.fillings == 0;
  plan.expiry_late = on_time ? 200 * kMilli : 3'600'000 * kMilli;
  // 100 ms until the sweep begins, and as much for two sweeps and the way to the log.
  if (on_time && plan.server.cells != 0) plan.to_log = 200 * kMilli;
  // The server reads the clock ten times a second, and the expirer uses it once a second.
  if (plan.clock_stands) plan.expiry_late += 1200 * kMilli;
  for (std::size_t i = 0; i < plan.clients; ++i) {
    plan.client_options.push_back(draw_client(random, plan.may_fail));
    if (plan.server.asked != Asked::kRight) {  // time enough to ask
      plan.client_options.back().timeout = std::chrono::milliseconds(2000);
    }
  }
  return plan;
}

}  // namespace rkv::sim
