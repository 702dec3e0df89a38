// Many GETs in flight on one connection: posted in batches with one doorbell, each a GetOp on its
// own lane.
//
// A refresh of the map blocks and needs the link to itself. So no new GET starts until the GETs in
// flight have finished or wait for a refresh too. A look at the marks, for values that are not
// known to be as durable as requested, also needs the link to itself. While there are free lanes
// new GETs start first; one look serves all lanes that wait.
//
// Thread safety: as the engine, which no other operation uses meanwhile.
#pragma once

#include <array>
#include <utility>

#include "client/engine/pipelined_op.h"

namespace rkv::client {

class MultiGet final : public PipelinedOp {
 public:
  MultiGet(Engine& engine, std::span<const std::string_view> keys, Durability at_least,
           const Deadline& deadline, GetVisitor visit, void* target)
      : PipelinedOp(engine, deadline),
        keys_(keys),
        at_least_(at_least),
        visit_(visit),
        target_(target) {}
  // Runs the whole operation, alone on its thread.
  void run();

  void begin() override;
  bool over() const override { return finished_ == keys_.size(); }
  bool advance() override;
  Nanos sleep_until() const override;
  void lost() override { engine_.session.link.close(); }  // LINK-1
  void mended() override;
  void fail_rest(const Error& error) override;
  void time_out() override;

 private:
  using Lane = GetLane;
  using Need = GetOp::Need;
  // Tag of the request that is sent for its marks. GET requests use the numbers of their lanes.
  static constexpr std::uint64_t kMarksTag = 1U << 20;

  std::vector<Lane>& lanes() const { return engine_.multi_gets.lanes; }
  std::size_t at(Need need) const { return lanes_at_[std::to_underlying(need)]; }
  bool may_start() const {
    return (next_key_ < keys_.size() || next_left_ < left_count_) && at(Need::kMap) == 0 &&
           at(Need::kNothing) != 0;
  }
  // Returns true if lanes wait for what no event brings.
  bool serves() const {
    return at(Need::kNothing) + at(Need::kReads) + at(Need::kReply) != lanes().size();
  }
  void try_get_sync();
  void start_lanes();
  void follow(Lane& lane);
  // Calls `step(op)` for each lane that needs this.
  template <class Step>
  void for_each_at(Need need, Step step);
  void queue_reads(Lane& lane);
  void serve_waiting();
  void give_value_buffer(Lane& lane);
  void refresh_if_quiet();
  void await_replicated_if_quiet();
  void check_marks(bool seen);
  void look_at_marks_if_quiet();
  void ask_for_marks();
  void ask_server(Lane& lane, std::size_t replies_kept);
  bool post();
  std::size_t poll();
  void on_reply(Reply reply, std::uint64_t tag);
  void finish(Lane& lane);

  std::span<const std::string_view> keys_;
  const Durability at_least_;
  GetVisitor visit_;
  void* target_;
  std::size_t next_key_ = 0;
  std::size_t finished_ = 0;
  // Keys before next_key_ that need a lane: try_get_sync() left them over.
  std::array<std::size_t, Getter::kBatchKeys> left_;
  std::size_t left_count_ = 0;
  std::size_t next_left_ = 0;
  std::array<std::size_t, GetOp::kNeeds> lanes_at_{};  // number of lanes by what they need
  std::size_t under_way_ = 0;    // READs and requests queued or posted, not completed
  Nanos ask_at_ = 0;             // the server was busy: no request before this time
  Nanos look_at_ = 0;            // the marks were behind: no look before this time
  bool asks_for_marks_ = false;  // request the marks when the link is quiet, instead of a look
};

}  // namespace rkv::client
