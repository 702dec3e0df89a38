#include "server/group/replica/group_revocations.h"

#include <algorithm>
#include <utility>

namespace rkv::server {

void GroupRevocations::begin(Primary& primary, std::vector<RevokedSecret> secrets, Done done,
                             Nanos now) {
  if (const Status wanted = primary.revoke(secrets); !wanted) return done(wanted);
  waiting_.push_back(
      {.secrets = std::move(secrets), .done = std::move(done), .until = now + kPatience});
}

void GroupRevocations::step(const Primary& primary, Nanos now) {
  std::erase_if(waiting_, [&](const Waiting& each) {
    const bool is_stored = std::ranges::all_of(each.secrets, [&](const RevokedSecret& secret) {
      return primary.configuration().has_revoked(secret);
    });
    if (is_stored) {
      each.done({});
    } else if (now >= each.until) {
      each.done(
          fail(Code::kIo,
               "this primary has shut the user out, but etcd has not stored that yet: another "
               "primary would serve the user. Ask again, or remove its line from the users "
               "file of each replica"));
    }
    return is_stored || now >= each.until;
  });
}

}  // namespace rkv::server
