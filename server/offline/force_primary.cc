#include "server/offline/force_primary.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "common/random.h"
#include "server/group/configuration/etcd_configuration_store.h"
#include "server/group/connection/reachable.h"
#include "server/group/replica/replica_storage.h"
#include "server/persistence/lock_file.h"
#include "server/persistence/storage_engine.h"
#include "server/program/etcd_files.h"

namespace rkv::server {

namespace {

constexpr std::int64_t kEtcdMs = 5000;
constexpr std::chrono::seconds kConnectLimit{1};
// The primary that is lost may have used versions of later terms than its own, as many as it has
// written more than this replica has. So many terms are some thousand TiB.
constexpr std::uint32_t kTermsLeftOut = std::uint32_t{1} << 16;

Failure refused(std::string sentence) {
  return {.exit_code = kExitOther, .sentence = std::move(sentence)};
}

// Why nothing is to be forced.
std::optional<Failure> objection(const GroupConfiguration& now, const Options& options,
                                 const ReplicaStorage::Kept& kept) {
  const Member* const me = now.find(options.name);
  const bool is_past = now.number < kept.number || now.term < kept.term;  // it would not start
  if (me != nullptr && me->in_sync() && !is_past) {
    return refused(
        fmt::format("{} is in sync: start it as usual, and it becomes the primary if it is needed",
                    options.name));
  }
  for (const Member& member : now.members) {
    if (!member.in_sync() || !is_reachable(member.address, kConnectLimit)) continue;
    return refused(
        fmt::format("{} is in sync and can be reached at {}: nothing need be given up. If it must "
                    "not be used, stop it first",
                    member.name, member.address));
  }
  return std::nullopt;
}

std::string in_sync_of(const GroupConfiguration& configuration) {
  std::string names;
  for (const Member& member : configuration.members) {
    if (!member.in_sync()) continue;
    names += (names.empty() ? "" : ", ") + member.name;
    if (member.name == configuration.primary) names += " (primary)";
  }
  return names;
}

// etcd may have been restored to the past: the replica's disk knows of later configurations.
Result<GroupConfiguration> next_of(GroupConfiguration now, const Options& options,
                                   const ReplicaStorage::Kept& kept) {
  now.number = std::max(now.number, kept.number);
  const std::uint64_t highest =
      std::max<std::uint64_t>({now.term, kept.term, kept.history.last().version >> 32U});
  if (highest + kTermsLeftOut > std::numeric_limits<std::uint32_t>::max())
    return fail(Code::kOutOfRange, "the group has used up all terms");
  return forced(now,
                {.name = options.name,
                 .address = options.listen,
                 .epoch = random_from_kernel() | 1U},  // of no process: the next one starts again
                static_cast<std::uint32_t>(highest) + kTermsLeftOut);
}

}  // namespace

std::optional<Failure> force_primary(const Options& options, const Print& print,
                                     const Clock& clock) {
  std::string sentence;
  const auto lock = LockFile::acquire(options.data_dir, &sentence);
  if (!lock) return Failure{kExitDataLater, sentence};
  std::error_code error;
  if (!std::filesystem::exists(options.data_dir + "/db/CURRENT", error)) {
    return Failure{kExitData, fmt::format("the data directory {} has no database: is its disk "
                                          "mounted?",
                                          options.data_dir)};
  }
  auto engine = StorageEngine::open(options.data_dir, {.least_boot = 1});
  if (!engine) {
    return Failure{kExitData, fmt::format("cannot use the data directory {}: {}", options.data_dir,
                                          to_string(engine.error()))};
  }
  const auto kept = ReplicaStorage::kept_in(**engine);
  if (!kept) return Failure{kExitData, to_string(kept.error())};
  const auto access = EtcdAccess::load(etcd_files(options), &sentence);
  if (!access) return Failure{kExitEnvironment, sentence};
  EtcdConfigurationStore store(options.etcd, options.group, clock, *access);
  const auto stored = store.read(Deadline::after_ms(clock, kEtcdMs));
  if (!stored)
    return Failure{kExitEnvironment,
                   fmt::format("etcd does not answer: {}", to_string(stored.error()))};
  if (!stored->configuration)
    return refused(fmt::format("etcd has no group {}: nothing is to be forced", options.group));
  const GroupConfiguration& now = *stored->configuration;
  if (kept->group != now.group) {
    return Failure{kExitData, fmt::format("the data directory {} holds no data of group {}",
                                          options.data_dir, options.group)};
  }
  if (auto objected = objection(now, options, *kept)) return objected;
  const LogPosition last = kept->history.last();
  const auto next = next_of(now, options, *kept);
  if (!next) return refused(to_string(next.error()));
  print(fmt::format(
      "In sync were: {}. What they have and {} has not is given up now: all writes after "
      "version {} of term {}.",
      in_sync_of(now), options.name, last.version, last.term));
  const auto revision = store.replace(stored->revision, *next, Deadline::after_ms(clock, kEtcdMs));
  if (!revision) {
    return Failure{kExitEnvironment,
                   fmt::format("etcd may not have stored the change: {}: run this again. If {} is "
                               "said to be in sync then, it was stored",
                               to_string(revision.error()), options.name)};
  }
  print(
      fmt::format("Start {} now: it becomes the primary. Replicas that come back get a copy of "
                  "its data, and lose their own.",
                  options.name));
  return (*engine)->close() ? std::nullopt
                            : std::optional(refused("the database was not closed properly"));
}

}  // namespace rkv::server
