// A link: two ends, their operations in flight, and how operations and ends terminate.
//
// Each operation passes through events: it *arrives* at the peer (in the order of posting) and is
// carried out there (a READ in pieces). Then its answer *returns*, and the completions are passed
// to the queue in the order of posting.
//
// Invariants (README.md has the rules that they serve):
//  SIMLINK-1  Operations of one end arrive, and complete, in the order of posting.
//  SIMLINK-2  A remote byte is read only after its operation was posted and before its completion.
//      A local byte is written only before the completion and before the connection's destruction.
//  SIMLINK-3  An end reports kDisconnected once, after everything else.
//
// Thread safety: none.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/network/fabric.h"

namespace rkv::rdma::sim {

class SimConnection;
class SimQueue;
class SimRegion;

class Link {
 public:
  struct EndOptions {
    std::shared_ptr<Host> host;
    SimQueue* queue = nullptr;
    ConnectionLimits limits{};
    Access grant = Access::kLocal;
  };
  Link(Fabric& fabric, const EndOptions& active, const EndOptions& passive);

  // ---- called by the connection of a side
  void open(int side, SimConnection* handle);
  // The operations of this side arrive at `when` at the earliest. The passive end may send before
  // the active end has received the accept.
  void hold_until(int side, Nanos when) { ends_[side].arrive_not_before = when; }
  Result<std::size_t> post(int side, std::span<const Operation> batch);
  const ConnectionLimits& limits(int side) const { return ends_[side].limits; }
  bool alive(int side) const { return ends_[side].alive; }
  void abort(int side);
  void close(int side);  // the connection is destroyed

  // ---- called by the queue
  void taken(int side) { --ends_[side].in_queue; }

  // ---- called by the fabric
  bool touches(const Host& host) const {
    return ends_[0].host.get() == &host || ends_[1].host.get() == &host;
  }
  // Drops all packets in both directions from now on. The ends detect it later.
  void sever();

 private:
  enum class Cut : std::uint8_t { kNone, kBefore, kAfter };
  struct Piece {
    std::size_t offset;
    std::size_t length;
  };
  struct Pending {
    Operation operation;
    std::vector<std::byte> inline_bytes;
    std::vector<Piece> pieces;
    std::size_t pieces_left = 0;
    Cut cut = Cut::kNone;
    bool arrived = false;
    bool landed = false;
    Completion::Status status = Completion::Status::kOk;
  };
  struct End {
    std::shared_ptr<Host> host;
    SimQueue* queue = nullptr;
    SimConnection* handle = nullptr;
    ConnectionLimits limits{};
    Access grant = Access::kLocal;
    bool alive = true;
    bool reported = false;         // kDisconnected is in the queue
    std::uint64_t first = 0;       // number of the operation pending.front()
    std::deque<Pending> pending;   // posted, completion not yet in the queue
    std::size_t issued = 0;        // of pending
    std::size_t reads_issued = 0;  // READs issued and not landed
    std::size_t in_queue = 0;      // completions that poll() has not yet taken
    Nanos arrive_not_before = 0;
    std::deque<std::uint64_t> held;  // arrived at the peer behind a message that waits for a buffer
    // Messages that were flushed here and are still in the network, by number.
    std::map<std::uint64_t, std::vector<std::byte>> stray{};
  };

  Pending* find(int side, std::uint64_t number);
  void check_local(const End& end, const Operation& operation) const;
  void issue(int side);
  void arrive(int side, std::uint64_t number);
  void retry_held(int side);
  bool carry_out(int side, std::uint64_t number);
  bool carry_out_send(int side, Pending& pending);
  void deliver(int side, Bytes message);
  void let_stray(int side);
  void carry_out_read(int side, std::uint64_t number, Pending& pending);
  void carry_out_atomic(int side, std::uint64_t number, Pending& pending);
  bool permitted(int side, const Pending& pending, Access least) const;
  void touch(int side, std::uint64_t number, std::size_t piece);
  void executed(int side, std::uint64_t number);
  void answer(int side, std::uint64_t number, Completion::Status status);
  void returned(int side, std::uint64_t number);
  void complete_in_order(int side);
  void complete(int side, const Pending& pending, Completion::Status status);
  void push_disconnected(int side);
  void die(int side, Completion::Status first_status);
  void die_later(int side, Nanos in, Completion::Status first_status);

  Fabric& fabric_;
  std::array<End, 2> ends_;
  bool severed_ = false;
};

class SimConnection final : public Connection {
 public:
  SimConnection(std::shared_ptr<Fabric> fabric, Link& link, int side, std::string peer,
                std::vector<std::byte> private_data);
  ~SimConnection() override { link_.close(side_); }

  Result<std::size_t> post(std::span<const Operation> batch) override;
  ConnectionLimits limits() const override { return link_.limits(side_); }
  Bytes private_data() const override { return private_data_; }
  const std::string& peer() const override { return peer_; }
  bool alive() const override { return link_.alive(side_); }
  void abort() override { link_.abort(side_); }

 private:
  std::shared_ptr<Fabric> fabric_;
  Link& link_;
  int side_;
  std::string peer_;
  std::vector<std::byte> private_data_;
};

}  // namespace rkv::rdma::sim
