// Buffers of GetPipeline and WritePipeline. A pipeline of a call lives as long as the call; an
// engine keeps the buffers from call to call, to save allocations. A pipeline that has ended its
// operations returns every lane or slot free, as it got them.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "client/engine/get_op.h"
#include "client/engine/getter.h"
#include "client/engine/outcome_finder.h"
#include "client/link/arena.h"
#include "client/link/large_buffers.h"
#include "common/check.h"
#include "common/pack.h"
#include "rdma/transport/transport.h"
#include "rkv/options.h"

namespace rkv::client {

// One GET in flight.
struct GetLane {
  GetLane(Session& session, std::size_t lane)
      : op(session, session.arena.get_memory(lane)), number(lane) {}
  GetOp op;
  std::size_t number;
  GetOp::Need at = GetOp::Need::kNothing;  // the need that GetPipeline acts on; kNothing: free
  std::uint32_t pending = 0;               // READs posted and not landed
  std::uint64_t token = 0;                 // GetItem::token, or kGivenUp
  MutableBytes into{};                     // GetItem::into
  std::uint32_t local_key = 0;             // the key of `into`
  bool uses_into = false;                  // READs under way may land there
  std::optional<Error> ends_with{};  // the GET's time is up: it ends so when its READs have landed
};

struct GetBuffers {
  explicit GetBuffers(Session& session) {
    const ClientOptions& options = session.options;
    batch.reserve(2 * std::size_t{options.reads_in_flight} + options.requests_in_flight);
    lanes.reserve(options.reads_in_flight);
    while (lanes.size() < options.reads_in_flight)
      lanes.emplace_back(session, lanes.size());
    free_lanes.reserve(options.reads_in_flight);
    for (GetLane& lane : lanes)
      free_lanes.push_back(&lane);
  }
  std::vector<rdma::Operation> batch;
  std::vector<GetLane> lanes;
  std::vector<GetLane*> free_lanes;
  // For GETs by read_at_once(): those that were taken from the feed last, and the indices of those
  // that need a lane.
  std::array<GetItem, Getter::kBatchKeys> taken;
  std::array<std::size_t, Getter::kBatchKeys> left;
};

// One of the writes of a request.
struct WriteOfRequest {
  std::uint64_t token = 0;  // of the feed, or kGivenUp
  Opcode opcode = Opcode::kPut;
};

// A request in flight, or to be sent: one write, or a pack of several.
struct WriteSlot {
  enum class State : std::uint8_t {
    kFree,
    kSent,
    kAgain,  // to be sent
    kLost,   // its answer was lost: the server must be asked
    kAsked,  // the server is being asked
  };
  std::uint32_t number = 0;  // its place among the slots
  State state = State::kFree;
  SentWrite sent{};  // valid unless the slot is free or to be sent
  std::array<WriteOfRequest, kMaxPacked> items;
  std::size_t count = 0;                  // number of writes; 1: not a pack
  LargeBuffers::Buffer* value = nullptr;  // the server READs a large value from here; free: null
};

// A write that was answered with "later".
struct WriteAgain {
  std::uint64_t token = 0;
  bool alone = false;  // not in a pack
};

struct WriteBuffers {
  explicit WriteBuffers(const ClientOptions& options) : slots(options.requests_in_flight) {
    batch.reserve(slots.size());
    batched.reserve(slots.size());
    again.reserve(slots.size() * kMaxPacked);
    std::uint32_t next = 0;
    for (WriteSlot& slot : slots)
      slot.number = next++;
  }
  std::vector<WriteSlot> slots;
  std::vector<rdma::Operation> batch;
  std::vector<WriteSlot*> batched;  // slots whose requests the batch holds
  std::vector<WriteAgain> again;    // writes that are in no slot
  std::array<std::byte, Arena::kRequestBytes - kRequestHeaderBytes> pack;  // the one being begun
};

// Lends an engine's buffers of one kind to one pipeline at a time (FLOW-3).
template <class Buffers>
class Lender {
 public:
  template <class From>
  explicit Lender(From& from) : buffers_(from) {}
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // While this lives, nothing else reaches the buffers. The lender must outlive it.
  class Loan {
   public:
    explicit Loan(Lender& lender) : lender_(&lender) {
      RKV_CHECK(!std::exchange(lender.is_lent_, true), "two pipelines of one kind on an engine");
    }
    Loan(Loan&& other) noexcept : lender_(std::exchange(other.lender_, nullptr)) {}
    Loan& operator=(Loan&&) = delete;
    ~Loan() {
      if (lender_ != nullptr) lender_->is_lent_ = false;
    }
    Buffers* operator->() const { return &lender_->buffers_; }

   private:
    Lender* lender_;  // nullptr: moved from
  };

 private:
  Buffers buffers_;
  bool is_lent_ = false;
};

}  // namespace rkv::client
