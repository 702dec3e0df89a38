// The connections of an exchange while they are established: ranks that this rank dials, and
// callers that have not sent their greeting.
//
// Thread safety: one thread at a time.
#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/extras/group/exchange_frame.h"
#include "rkv/rdma/group/exchange.h"

namespace rkv::rdma::detail {

struct ExchangeState {
  std::uint32_t rank = 0;
  std::uint64_t digest = 0;
  std::uint32_t round = 0;
  std::uint32_t strangers = 0;
  ExchangeOptions options;
  std::vector<Socket> links;  // by rank; this rank's own is not open
  std::vector<FrameReader> readers;
  std::vector<FrameWriter> writers;
  bool broken = false;
};

class ExchangeMesh {
 public:
  ExchangeMesh(const Cluster& cluster, ExchangeListener listener, ExchangeState& state);
  // Blocks until every rank has a link.
  Status run(const Deadline& deadline);
  std::string problem() const;

 private:
  struct Dial {
    std::uint32_t rank;
    Socket socket;  // not open: no attempt is under way
    bool connected = false;
    Nanos due = 0;  // time of the next attempt
    FrameReader reader;
  };
  struct Stranger {
    Socket socket;
    Nanos due;  // deadline for the greeting
    FrameReader reader;
  };
  Nanos now() const { return clock_.now(); }
  bool is_complete() const;
  int wait_ms(const Deadline& deadline) const;
  std::vector<pollfd> interests() const;
  std::vector<std::byte> frame(FrameKind kind, std::uint32_t to, Bytes payload = {}) const;
  void start(Dial& dial);
  void retry_later(Dial& dial);
  Status go_on(Dial& dial);
  bool is_own_greeting(const Dial& dial) const;
  Status check_answer(const Dial& dial) const;
  Status accept_callers();
  bool hear(Stranger& stranger);  // false: the caller is accepted or dropped
  std::optional<Refusal> judge(const FrameHeader& header) const;
  void turn_away(const Error& why);

  const Cluster& cluster_;
  ExchangeListener listener_;
  ExchangeState& state_;
  SteadyClock clock_;
  std::list<Dial> dials_;
  std::list<Stranger> callers_;
  std::optional<Error> last_refused_;
  std::optional<std::uint32_t> failed_rank_;
};

}  // namespace rkv::rdma::detail
