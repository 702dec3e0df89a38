// Many GETs in flight on one connection: posted in batches with one doorbell, each a GetMachine on
// its own lane.
//
// A refresh of the map blocks and needs the link to itself. So no new GET starts until the GETs in
// flight have finished or wait for a refresh too. A look at the marks, for values that are not
// known to be as durable as requested, also needs the link to itself. While there are free lanes
// new GETs start first; one look serves all lanes that wait.
//
// Thread safety: as the engine, which no other operation uses meanwhile.
#pragma once

#include <array>

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
  void lost() override { engine_.session.link.close(); }  // K1
  void mended() override;
  void fail_rest(const Error& error) override;
  void time_out() override;

 private:
  using Lane = GetLane;
  using Next = GetMachine::Next;
  using State = GetLane::State;
  // Tag of the request that is sent for its marks. GET requests use the numbers of their lanes.
  static constexpr std::uint64_t kMarksTag = 1U << 20;

  bool may_start() const {
    return (next_key_ < keys_.size() || next_left_ < left_count_) && map_waiting_ == 0 &&
           !engine_.multi_gets.free_lanes.empty();
  }
  void try_get_sync();
  void start_lanes();
  void restart(Lane& lane);
  std::size_t number_of(const Lane& lane) const {
    return static_cast<std::size_t>(&lane - engine_.getter.lanes().data());
  }
  void advance(Lane& lane, Next next);
  void queue_reads(Lane& lane);
  void serve_waiting();
  void give_value_buffer(Lane& lane);
  void refresh_if_quiet();
  void found(Lane& lane, const ValueView& value);
  void look_at_marks_if_quiet();
  void ask_for_marks();
  void on_marks(const Response& response);
  void fail_those_that_wait_for_marks(const Error& error);
  template <class Answer>
  void finish_those_that_wait_for_marks(Answer answer);
  void ask_server(Lane& lane);
  bool post();
  std::size_t poll();
  bool on_reply(const Event& event);
  void finish(Lane& lane, const Result<ValueView>& result);

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
  std::size_t waiting_ = 0;       // lanes that need a buffer, the map, a request slot or a mark
  std::size_t map_waiting_ = 0;   // of these, lanes that need the map
  std::size_t mark_waiting_ = 0;  // of these, lanes that need a mark
  std::size_t replies_kept_ = 0;  // replies whose value waits for a mark
  std::size_t under_way_ = 0;     // READs and requests queued or posted, not completed
  Nanos ask_at_ = 0;              // the server was busy: no request before this time
  Nanos look_at_ = 0;             // the marks were behind: no look before this time
  bool asks_for_marks_ = false;   // request the marks when the link is quiet, instead of a look
};

}  // namespace rkv::client
