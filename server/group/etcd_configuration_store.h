// EtcdConfigurationStore: a group's configuration as one key of etcd, by its gRPC interface
// (version 3). The key is `rkv/groups/NAME/configuration`.
//
// A call tries one of etcd's servers after the other, each for at most kTryMs, until one answers or
// the deadline has passed. Reads and transactions are linearizable: etcd answers them only if a
// majority of its servers agrees.
//
// A transaction whose answer is lost is sent again to the next server. That is safe, because it
// compares the revision: it takes effect once at most (STORED-2). If it then finds another revision
// with its own text, an attempt before was what changed it.
//
// A server that is cut off from the majority reports no changes. So wait_for_other() also reads
// every kWatchMs.
//
// Thread safety: any thread. A call returns at most 100 ms after its deadline, apart from time in
// which its thread gets no processor.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/group/configuration_store.h"

namespace rkv::server {

class EtcdConfigurationStore final : public ConfigurationStore {
 public:
  static constexpr std::int64_t kTryMs = 1000;
  static constexpr std::int64_t kWatchMs = 500;

  // Connects at the first call only. `servers`: HOST:PORT of etcd's client ports, at least one.
  // `group`: see is_user_name(). The clock must outlive the store; it must be the system's
  // monotonic clock or run like it, since gRPC measures time itself.
  EtcdConfigurationStore(const std::vector<std::string>& servers, std::string_view group,
                         const Clock& clock);
  ~EtcdConfigurationStore() override;
  EtcdConfigurationStore(const EtcdConfigurationStore&) = delete;
  EtcdConfigurationStore& operator=(const EtcdConfigurationStore&) = delete;

  Result<Stored> read(const Deadline& deadline) override;
  Result<std::int64_t> replace(std::int64_t revision, const GroupConfiguration& next,
                               const Deadline& deadline) override;
  Result<Stored> wait_for_other(std::int64_t revision, const Deadline& deadline) override;

 private:
  struct Server;  // a channel to one of etcd's servers
  // How an attempt at all servers ended.
  struct Attempts {
    std::optional<Error> error{};  // nullopt: the last server asked has answered
    bool unanswered = false;       // a server asked before has not
  };
  struct Seen {
    Stored stored;
    std::int64_t etcd_revision = 0;  // of all of etcd when it was read
  };
  Server& server() const;
  void use_next(const Server& failed);
  template <class Call>
  Attempts try_servers(const Deadline& deadline, Call call);
  Result<Seen> look(const Deadline& deadline);
  Result<std::optional<Stored>> watch(const Seen& seen, const Deadline& deadline);

  const std::string key_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::atomic<std::size_t> current_{0};  // the server that answered last, or the next one to try
};

}  // namespace rkv::server
