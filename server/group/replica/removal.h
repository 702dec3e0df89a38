// Removal: takes a replica that is gone for good out of its group.
//
// Thread safety: none: the replicator's thread.
#pragma once

#include <functional>
#include <string>

#include "server/group/rules/primary.h"

namespace rkv::server {

class Removal {
 public:
  using Done = std::function<void(const Status&)>;
  // `done` is called now, with the reason why not, or by a later step().
  void begin(Primary& primary, const std::string& name, Done done);
  void step(const Primary& primary);

 private:
  std::string name_;
  Done done_;  // set: under way
};

}  // namespace rkv::server
