// AdminRequests: administrators' requests that name what they are about: shut a user out, move the
// primary, remove a replica, log at another level.
//
// Thread safety: the worker's thread.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "common/wire.h"
#include "rkv/result.h"
#include "server/clients/admission/revocations.h"
#include "server/clients/admission/users.h"
#include "server/request/awaited.h"
#include "server/request/group_task.h"

namespace rkv::server {

class AdminRequests {
 public:
  // Begins kMovePrimary or kRemoveReplica; must not block.
  using ChangeGroup =
      std::function<std::shared_ptr<const GroupTask>(Opcode, std::string_view replica)>;
  // `revocations`, which must outlive this object: nullptr if the server has no users.
  // `change_group`: empty if the server is in no group.
  AdminRequests(Revocations* revocations, ChangeGroup change_group)
      : revocations_(revocations), change_group_(std::move(change_group)) {}

  // Begins a request that administers (OpcodeTraits), and logs which user asked for it. `by`: that
  // user; nullptr: the server has no users. Returns nullptr if it is done already. After an error
  // nothing was begun. Does not wait.
  Result<std::unique_ptr<Awaited>> begin(Opcode opcode, std::string_view name, const User* by);

 private:
  Result<std::unique_ptr<Awaited>> revoke(std::string_view user, const User* by);
  Result<std::unique_ptr<Awaited>> change_group(Opcode opcode, std::string_view replica,
                                                const User* by);
  static Status set_level(std::string_view level, std::string_view by);

  Revocations* const revocations_;
  const ChangeGroup change_group_;
};

}  // namespace rkv::server
