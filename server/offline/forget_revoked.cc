#include "server/offline/forget_revoked.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "server/group/configuration/etcd_configuration_store.h"
#include "server/program/etcd_files.h"

namespace rkv::server {

std::optional<Failure> forget_revoked(const Options& options, const Print& print,
                                      const Clock& clock) {
  constexpr std::int64_t kEtcdAnswersMs = 5000;
  std::string sentence;
  const auto access = EtcdAccess::load(etcd_files(options), &sentence);
  if (!access) return Failure{kExitEnvironment, sentence};
  EtcdConfigurationStore store(options.etcd, options.group, clock, *access);
  const auto stored = store.read(Deadline::after_ms(clock, kEtcdAnswersMs));
  if (!stored) {
    return Failure{kExitEnvironment,
                   fmt::format("etcd does not answer: {}", to_string(stored.error()))};
  }
  if (!stored->configuration)
    return Failure{kExitOther, fmt::format("etcd has no group {}", options.group)};
  const bool is_all = options.forget_revoked == "*";
  const auto next =
      without_revoked(*stored->configuration, is_all ? std::string() : options.forget_revoked);
  if (!next) {
    return Failure{kExitOther,
                   is_all ? "the group's list of revoked secrets is empty"
                          : fmt::format("the group's list of revoked secrets has none of user {}",
                                        options.forget_revoked)};
  }
  const auto revision =
      store.replace(stored->revision, *next, Deadline::after_ms(clock, kEtcdAnswersMs));
  if (!revision && revision.error().code == Code::kConflict)
    return Failure{kExitOther, "the group has changed at the same moment: run this again"};
  if (!revision) {
    return Failure{kExitEnvironment, fmt::format("etcd may not have stored the change: {}: run "
                                                 "this again",
                                                 to_string(revision.error()))};
  }
  print(
      fmt::format("Secrets taken off the list of what is revoked in group {}: {}. Left on it: {}.",
                  options.group, stored->configuration->revoked.size() - next->revoked.size(),
                  next->revoked.size()));
  return std::nullopt;
}

}  // namespace rkv::server
