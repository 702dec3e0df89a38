// Counters: changed by requests, or by atomics on their cells.
//
// Invariants:
//  CTR-1  An atomic that was sent and not answered may have happened. It is reported, never
//      repeated. A change by a request is repeated only if it was not made (ENG-1). The additions
//      of a pack count as sent with the pack. They count as answered when each has its result in an
//      answer that fits the pack. An addition whose result says that it was not made is sent again.
//
// Thread safety: none. Every call blocks until its deadline at most.
#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "client/engine/connector.h"
#include "client/engine/getter.h"
#include "client/engine/packed_adds.h"
#include "client/engine/requester.h"
#include "client/engine/session.h"
#include "rkv/values.h"

namespace rkv::client {

class CounterOps {
 public:
  // The arguments must outlive the object.
  CounterOps(Session& session, Connector& connector, Requester& requester, Getter& getter);

  // ---- by requests
  Result<Counter> add(Bytes key, std::int64_t summand, const Deadline& deadline,
                      Durability durability);
  Result<CounterSwap> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                           const Deadline& deadline, Durability durability);

  // ---- in cells
  Result<OneSidedCounter> open(std::string_view key, bool create, const Deadline& deadline);
  Result<Counter> add(OneSidedCounter& counter, std::int64_t summand, const Deadline& deadline,
                      Durability durability);
  Result<CounterSwap> swap(OneSidedCounter& counter, std::int64_t expected, std::int64_t desired,
                           const Deadline& deadline, Durability durability);
  Result<Counter> number(OneSidedCounter& counter, const Deadline& deadline);
  void multi_add(std::span<const CounterAddition> additions, const Deadline& deadline,
                 std::span<Result<Counter>> results);

 private:
  static constexpr std::size_t kAtomicsAtOnce = 512;
  // Returns true if the counter's cell, or that it has none, is known and still valid.
  bool is_bound(const OneSidedCounter& counter) const;
  Result<Reply> ask_for_cell(Bytes key, bool create, const Deadline& deadline);
  // Makes is_bound() true; connects if necessary. Returns the counter's version if it asked the
  // server, else no version. kNotFound: only without `create`.
  Result<Version> bind(OneSidedCounter& counter, bool create, const Deadline& deadline);
  // Call it if the counter's cell is sealed: the counter in this cell has ended.
  static void unbind(OneSidedCounter& counter) { counter.epoch_ = 0; }
  rdma::Operation atomic_on(const OneSidedCounter& counter, std::size_t index) const;
  std::uint64_t told(std::size_t index) const;  // old value of the atomic of that index
  // Binds the counter, runs one atomic that `shape` completes, and returns the old word. nullopt:
  // the counter is changed by requests. An atomic that changes nothing is repeated when the
  // connection is lost.
  template <class Shape>
  Result<std::optional<std::uint64_t>> run_atomic(OneSidedCounter& counter, bool create,
                                                  bool changes, const Deadline& deadline,
                                                  Shape shape);
  using Settled = std::bitset<kAtomicsAtOnce>;  // additions that have their result
  void add_some(const PackedAdds::Call& call);
  void bind_all(const PackedAdds::Call& call, Settled& settled);
  void add_in_cells(const PackedAdds::Call& call, Settled& settled);
  void add_rest(const PackedAdds::Call& call, const Settled& settled);
  void add_collected(const PackedAdds::Call& call);
  bool goes_by_request(const CounterAddition& addition) const;

  Session& session_;
  Connector& connector_;
  Requester& requester_;
  Getter& getter_;
  PackedAdds packed_adds_;
  std::vector<rdma::Operation> atomics_;  // of multi_add()
  std::vector<std::size_t> collected_;    // additions of multi_add() that are sent by requests next
};

}  // namespace rkv::client
