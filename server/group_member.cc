#include "server/group_member.h"

#include <fmt/format.h>

#include <future>
#include <string_view>

#include "common/log.h"
#include "common/trust_times.h"
#include "server/group/configuration/etcd_configuration_store.h"
#include "server/group/connection/group_secret.h"
#include "server/group/rules/succession.h"
#include "server/program/etcd_files.h"
#include "server/program/wall_clock.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

namespace {

// The longest time that a server that ends waits for its hand-over: the limits of the steps
// together, and a second. The first step asks etcd (Replicator::hand_over()), the third lets the
// last tick run out.
constexpr Nanos kLongestLeave = 3 * kNanosPerSecond + Succession::kSyncedWithin + kTrustWindow +
                                Succession::kToldWithin + kNanosPerSecond;

GroupClock::Reading read_clocks(const Clock& clock) {
  const WallClock::Look look = WallClock::look(clock);
  return {.clock = look.clock, .since_boot = look.since_boot, .unix_ms = look.unix_ms};
}

}  // namespace

std::optional<Failure> GroupMember::join() {
  if (auto failure = create_replicator()) return failure;
  std::string problem;
  if (const Status listening = replicator_->start(&problem); !listening)
    return Failure{kExitEnvironment, problem};
  return std::nullopt;
}

std::optional<Failure> GroupMember::create_replicator() {
  const Options& options = parts_.options;
  GroupSecret secret = GroupSecret::well_known();
  std::string problem;
  if (!options.group_secret.empty()) {
    auto loaded = GroupSecret::load(options.group_secret, &problem);
    if (!loaded) return Failure{exit_code_of_file(loaded.error()), problem};
    secret = *loaded;
  }
  auto access = EtcdAccess::load(etcd_files(options), &problem);
  if (!access) return Failure{exit_code_of_file(access.error()), problem};
  configurations_ = std::make_unique<EtcdConfigurationStore>(options.etcd, options.group,
                                                             parts_.clock, *std::move(access));
  Endpoints& endpoints = parts_.endpoints;
  auto replicator = Replicator::create(
      {.group = options.group,
       .name = options.name,
       .address = options.listen,
       .data_dir = options.data_dir,
       .secret = secret,
       .queue_bytes = options.queue_bytes,
       .sync_interval_ms = static_cast<int>(options.sync_interval_ms),
       .min_copies = options.min_copies,
       .may_found = options.found_group,
       .last_has_ended = parts_.data.lock_file().others_have_ended(),
       .alone_without_store = options.alone_without_etcd},
      {.engine = *parts_.data.engine(),
       .store = *configurations_,
       .clock = parts_.clock,
       .read_clocks = [this] { return read_clocks(parts_.clock); },
       .may_lead = [this] { return fitness_.may_lead(parts_.clock.now()); },
       .lanes = options.lanes ? LaneTransports{.verbs = endpoints.transport("verbs"),
                                               .shm = endpoints.transport("shm")}
                              : LaneTransports{}});
  if (!replicator) {
    return Failure{exit_code_of_data(replicator.error()),
                   fmt::format("cannot use the data directory {}: {}", options.data_dir,
                               to_string(replicator.error()))};
  }
  replicator_ = std::move(*replicator);
  return std::nullopt;
}

// Called by the replicator's thread.
Fitness::Look GroupMember::look_at_threads() const {
  const Endpoints& endpoints = parts_.endpoints;
  Fitness::Look look{.has_way_in = endpoints.has_way_in(), .turns = endpoints.acceptor_turns()};
  const bool is_busy = is_becoming_primary_.load(std::memory_order_relaxed);
  look.turns.push_back(is_busy ? static_cast<std::uint64_t>(parts_.clock.now())
                               : main_turns_.load(std::memory_order_relaxed));
  if (!has_workers_.load(std::memory_order_acquire)) return look;
  for (const WorkerFacts& worker : endpoints.workers())
    look.turns.push_back(worker.counters->get(WorkerCounters::kTurns));
  return look;
}

void GroupMember::take_turn() {
  main_turns_.fetch_add(1, std::memory_order_relaxed);
  if (ended_) return;
  follow();
  watch_.look(*replicator_->status(), parts_.clock.now());
}

void GroupMember::follow() {
  const Replicator::State state = replicator_->state();
  if (state.phase == Replicator::Phase::kEnded) {
    ended_ = {
        .failure = {state.may_start_again ? kExitDataLater : kExitData,
                    fmt::format("this replica has ended its part in the group: {}", state.why)},
        .may_start_again = state.may_start_again,
        .has_copy = state.has_copy};
    return;
  }
  // After the phase was read, and before anybody is admitted.
  parts_.access.follow(replicator_->revoked());
  // A primary waits until then, and a backup in sync was added by one that had waited.
  if (state.phase == Replicator::Phase::kElected ||
      replicator_->status()->role == GroupStatus::Role::kBackup)
    parts_.data.lock_file().settle();
  if (is_serving_) return;
  if (state.phase == Replicator::Phase::kElected) return become_primary(state.term);
  if (state.primary == std::exchange(followed_, state.primary)) return;
  parts_.endpoints.refuse_as_backup(state.primary);
  log_info(EventName("following"), "the primary of the group is {}",
           field("primary", state.primary.empty() ? "not known" : state.primary));
}

void GroupMember::become_primary(std::uint32_t term) {
  log_info(EventName("elected"), "this replica is the primary of the group in term {}",
           field("term", term));
  is_becoming_primary_.store(true, std::memory_order_relaxed);
  if (auto failure = parts_.become_primary(term))
    ended_ = {.failure = *std::move(failure), .may_start_again = false};
  is_becoming_primary_.store(false, std::memory_order_relaxed);
}

void GroupMember::serves() {
  is_serving_ = true;
  has_workers_.store(true, std::memory_order_release);
}

bool GroupMember::begin_leaving() {
  if (!is_serving_ || ended_) return false;
  leaving_until_ = parts_.clock.now() + kLongestLeave;
  if (replicator_->state().is_handing_over) return true;  // by an operator's request
  std::promise<Status> begun;
  replicator_->hand_over({}, [&begun](const Status& status) { begun.set_value(status); });
  // An operator's request may have begun while etcd was asked.
  if (const Status status = begun.get_future().get();
      !status && !replicator_->state().is_handing_over) {
    log_warn(EventName("not_handed_over"), "this primary ends without a hand-over: {}",
             to_string(status.error()));
    leaving_until_ = 0;
    return false;
  }
  return true;
}

bool GroupMember::is_leaving() const {
  return leaving_until_ != 0 && parts_.clock.now() < leaving_until_ &&
         replicator_->state().is_handing_over;
}

AdminRequests::ChangeGroup GroupMember::change_group() {
  return [this](Opcode opcode, std::string_view name) {
    const auto task = std::make_shared<GroupTask>([this] { parts_.endpoints.wake_workers(); });
    const auto done = [task](const Status& status) { task->finish(status); };
    if (opcode == Opcode::kMovePrimary) {
      replicator_->hand_over(std::string(name), done);
    } else {
      replicator_->remove(std::string(name), done);
    }
    return std::shared_ptr<const GroupTask>(task);
  };
}

}  // namespace rkv::server
