// OutcomeFinder: asks the server for the outcome of a write whose answer was lost with its
// connection.
//
// Invariants:
//  ASK-1  A write is asked about only in the call that has sent it, before the deadline of that
//      call. It is sent again only if the server says that it was not applied and never will be.
//      Any other answer, or none, means that it may have happened.
//  ASK-2  A server of another epoch is asked only if it is in the group of the write's server: it
//      may have the write in its log. Otherwise it knows nothing of writes before its start.
//
// Thread safety: none. find() blocks until the deadline at most.
#pragma once

#include <cstdint>
#include <optional>

#include "client/engine/connector.h"
#include "client/engine/session.h"
#include "common/wire.h"

namespace rkv::client {

// A write that was sent, and the server it was sent to.
struct SentWrite {
  WriteId id{};
  std::uint64_t epoch = 0;  // of the server
  bool in_group = false;    // whether the server is in a group
  std::uint32_t group = 0;  // the server's group
  Version since{};          // a version that was replicated before the write was sent
};

class OutcomeFinder {
 public:
  // The arguments must outlive the finder.
  OutcomeFinder(Session& session, Connector& connector)
      : session_(session), connector_(connector) {}

  // Returns the write that the link has sent last.
  SentWrite last_sent() const;
  // Whether the server of the present connection may know the write (ASK-2).
  bool may_be_known(const SentWrite& write) const {
    const ConnectAccept& accept = session_.link.accept();
    return is_of_this_server(write) ||
           (write.in_group && accept.in_group && write.group == accept.store);
  }
  // Returns the question to the server of the present connection. The question's value lies in
  // `value`, which must outlive it. REQUIRES: may_be_known(write).
  Request question(const SentWrite& write, std::span<std::byte, kWriteIdBytes> value) const;

  enum class Fate : std::uint8_t {
    kAnswered,    // with the write's own answer: applied, or failed
    kNotApplied,  // and never will be
    kLater,       // the server has no room for the answer: ask again
    kNotKnown,
  };
  // Returns the meaning of an answer to kOutcome. Counts it, except kLater and kNotKnown.
  Fate fate_in(const Response& answer);
  // Returns the error of a write that may have happened because its outcome is not known. Counts
  // it.
  Error not_known();
  // Connects, and asks until the deadline. nullopt: the write was not applied. An error: it may
  // have happened. Otherwise returns the answer that the write of this opcode would have got.
  Result<std::optional<Reply>> find(const SentWrite& write, Opcode opcode,
                                    const Deadline& deadline);

 private:
  Result<Reply> ask(const SentWrite& write, const Deadline& deadline);
  bool is_of_this_server(const SentWrite& write) const {
    return session_.link.accept().epoch == write.epoch;
  }

  Session& session_;
  Connector& connector_;
};

// Returns the answer to a write, made from the answer to kOutcome.
Result<Response> answer_of_write(const Response& outcome, Opcode opcode);

}  // namespace rkv::client
