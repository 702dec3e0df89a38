// PackedAdds: additions to counters by requests, many in one request: a pack (common/pack.h) and
// its results.
//
// An addition by a request needs no binding: the server finds the number by the key, in a record or
// in a cell. One pack is in flight at a time, so additions are carried out in their order. An
// addition that the server puts off comes after the rest of its pack.
//
// Thread safety: none. Blocks until the deadline at most. Nothing allocates, except for errors.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "client/engine/connector.h"
#include "client/engine/requester.h"
#include "client/engine/session.h"
#include "client/link/arena.h"
#include "common/pack.h"
#include "rkv/values.h"

namespace rkv::client {

class PackedAdds {
 public:
  // The arguments must outlive the object.
  PackedAdds(Session& session, Connector& connector, Requester& requester)
      : session_(session), connector_(connector), requester_(requester) {}

  using Indices = std::span<const std::size_t>;
  struct Call {
    std::span<const CounterAddition> additions;
    std::span<Result<Counter>> results;
    const Deadline& deadline;
  };
  struct Sent {
    std::size_t taken = 0;  // how many indices, from the first, were handled; 1 or more
    // The handled indices without a result: the caller sends each of these additions alone. Valid
    // until the next call.
    Indices alone;
  };
  // Sends as many additions as a pack takes, in the order of `indices`, and stores their results.
  // Leaves an addition to the caller if it would be the only one of its pack, or if there is no
  // connection. REQUIRES: `indices` is not empty.
  Sent send(const Call& call, Indices indices);

 private:
  // Writes the pack. Returns the number of its additions.
  std::size_t fill(const Call& call, Indices indices);
  Sent ask(const Call& call, Indices packed);
  // Returns the indices of the additions that the caller sends.
  Indices on_answer(const Call& call, Indices packed, const Response& answer);

  Session& session_;
  Connector& connector_;
  Requester& requester_;
  std::array<std::byte, Arena::kRequestBytes - kRequestHeaderBytes> bytes_{};
  Bytes pack_;  // in bytes_
  std::array<std::size_t, kMaxPacked> alone_{};
};

}  // namespace rkv::client
