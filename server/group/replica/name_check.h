// NameCheck: whether the name of this replica belongs to another one that runs. Two processes of
// one name would depose each other in turn.
//
//   NameCheck check(io, me, secret, [&] { return listener->port(); }, [&] { pump(); });
//   check.read(configuration);                         // whenever one was read
//   if (check.verdict() == NameCheck::Verdict::kFree) ...
//
// If the group has a member of this name at another address, the check calls it: if a replica of
// the group answers, the name is taken. A process that starts again at its own address always
// passes. So does one that has moved: at its old address nobody answers, or the process itself
// does, if both spellings mean one address.
//
// Thread safety: none: the thread of the io_context.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/group/configuration/configuration.h"
#include "server/group/connection/group_secret.h"
#include "server/group/connection/replica_connector.h"

namespace rkv::server {

class NameCheck {
 public:
  enum class Verdict : std::uint8_t {
    kUnknown,  // no configuration was read yet, or the call is under way
    kFree,
    kTaken,
  };
  // All references outlive the check. `own_port`: where this replica listens for others. `known`:
  // the verdict has changed after a call; it is called by a handler of `io`.
  NameCheck(asio::io_context& io, const Replica& me, const GroupSecret& secret,
            std::function<std::uint16_t()> own_port, std::function<void()> known)
      : io_(io),
        me_(me),
        secret_(secret),
        own_port_(std::move(own_port)),
        known_(std::move(known)) {}
  NameCheck(const NameCheck&) = delete;
  NameCheck& operator=(const NameCheck&) = delete;

  // Takes a configuration that was read; nullptr: the group does not exist yet.
  void read(const GroupConfiguration* configuration);
  // Ends a call under way.
  void close() { connector_.reset(); }

  Verdict verdict() const { return verdict_; }
  // The address of the other replica, if the verdict is kTaken.
  const std::string& taken_by() const { return called_.first; }

 private:
  asio::io_context& io_;
  const Replica& me_;
  const GroupSecret& secret_;
  const std::function<std::uint16_t()> own_port_;
  const std::function<void()> known_;
  Verdict verdict_ = Verdict::kUnknown;
  std::pair<std::string, std::uint64_t> called_;  // its address and epoch
  std::unique_ptr<ReplicaConnector> connector_;
};

}  // namespace rkv::server
