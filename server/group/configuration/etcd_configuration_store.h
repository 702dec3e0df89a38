// EtcdConfigurationStore: a group's configuration as one key of etcd, by its gRPC interface
// (version 3). The key is `rkv/groups/NAME/configuration`.
//
// A call tries etcd's servers one after another, each for at most kTryMs, until one answers or the
// deadline has passed. Reads and transactions are linearizable: etcd answers them only if a
// majority of its servers agrees.
//
// A transaction whose answer is lost is sent again to the next server. That is safe, because it
// compares the revision: it takes effect once at most (STORED-2). If it then finds another revision
// with its own text, an earlier attempt made that change.
//
// With a user, calls carry a token that etcd gives for the password. etcd forgets tokens that were
// not used for some minutes, and all tokens when its users change. Then a call asks for another
// one.
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

#include "common/mutex.h"
#include "server/group/configuration/configuration_store.h"
#include "server/group/configuration/etcd_access.h"

namespace rkv::server {

class EtcdConfigurationStore final : public ConfigurationStore {
 public:
  static constexpr std::int64_t kTryMs = 1000;
  static constexpr std::int64_t kWatchMs = 500;

  // Connects at the first call only. `servers`: HOST:PORT of etcd's client ports, at least one.
  // `group`: see is_user_name(). The clock must outlive the store; it must be the system's
  // monotonic clock or run like it, since gRPC measures time itself.
  EtcdConfigurationStore(const std::vector<std::string>& servers, std::string_view group,
                         const Clock& clock, EtcdAccess access = {});
  ~EtcdConfigurationStore() override;
  EtcdConfigurationStore(const EtcdConfigurationStore&) = delete;
  EtcdConfigurationStore& operator=(const EtcdConfigurationStore&) = delete;

  Result<Stored> read(const Deadline& deadline) override;
  Result<std::int64_t> replace(std::int64_t revision, const GroupConfiguration& next,
                               const Deadline& deadline) override;
  Status try_storing(const Deadline& deadline) override;
  Result<Stored> wait_for_other(std::int64_t revision, const Deadline& deadline) override;

 private:
  struct Server;  // a channel to one of etcd's servers
  // How an attempt at all servers ended.
  struct Attempts {
    std::optional<Error> error{};  // nullopt: the last server asked has answered
    bool unanswered = false;       // a server asked earlier has not
  };
  struct Seen {
    Stored stored;
    std::int64_t etcd_revision = 0;  // etcd's overall revision when it was read
  };
  Server& server() const;
  void use_next(const Server& failed);
  std::string token() const;
  std::optional<Error> log_in(Server& server, const Deadline& deadline);
  template <class Call>
  Attempts try_servers(const Deadline& deadline, Call call);
  Result<Seen> look(const Deadline& deadline);
  Result<std::optional<Stored>> watch(const Seen& seen, const Deadline& deadline);

  const std::string key_;
  const Clock& clock_;
  const EtcdAccess access_;
  std::vector<std::unique_ptr<Server>> servers_;
  mutable Mutex mutex_;
  std::string token_ RKV_GUARDED_BY(mutex_);  // empty: none yet
  std::atomic<std::size_t> current_{0};  // the server that answered last, or the next one to try
};

}  // namespace rkv::server
