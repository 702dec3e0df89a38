// GetPipeline: many GETs in flight on one connection, posted in batches with one doorbell. Each GET
// is a GetOp on its own lane.
//
// Some GETs wait for a step that blocks: the map READ again, or a look at the marks or at the group
// line. wanted_step() says which. A blocking call performs the step at once; the asynchronous
// client performs it on a separate thread. One step serves all GETs that wait for it.
//
// Thread safety: as the engine.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "client/engine/pipeline.h"

namespace rkv::client {

// Gives GETs to a pipeline, and takes their results.
class GetFeed {
 public:
  virtual ~GetFeed() = default;
  virtual bool empty() const = 0;
  // Takes the next GETs, at most as many as `out` holds, and returns their number. Each key stays
  // valid until done() or give_up().
  virtual std::size_t take(std::span<GetItem> out) = 0;
  // `result` is valid during the call. The call must not use the engine.
  virtual void done(std::uint64_t token, const Result<ValueView>& result) = 0;
};

// The GETs of a span of keys, for a visitor. The token is the key's index.
class KeysFeed final : public GetFeed {
 public:
  KeysFeed(std::span<const std::string_view> keys, Durability at_least, GetVisitor visit,
           void* target)
      : keys_(keys), at_least_(at_least), visit_(visit), target_(target) {}
  bool empty() const override { return next_ == keys_.size(); }
  std::size_t take(std::span<GetItem> out) override;
  void done(std::uint64_t token, const Result<ValueView>& result) override {
    visit_(target_, token, result);
  }

 private:
  std::span<const std::string_view> keys_;
  Durability at_least_;
  GetVisitor visit_;
  void* target_;
  std::size_t next_ = 0;
};

// A step that blocks.
struct BlockingStep {
  enum class Kind : std::uint8_t { kNone, kExtents, kDirectory, kMarks, kReplicated };
  Kind kind = Kind::kNone;
  Version version{};       // kReplicated
  std::size_t lane = 0;    // kReplicated: the lane that waits for `version`
  Nanos patience_end = 0;  // kReplicated: the wait ends then, with kBusy
};

class GetPipeline final : public Pipeline {
 public:
  // kCall: the pipeline ends when the feed is empty, and new GETs start before waiting ones.
  // kStream: the feed may get more GETs at any time, and the caller performs the steps.
  enum class Kind : std::uint8_t { kCall, kStream };
  GetPipeline(Engine& engine, GetFeed& feed, const Deadline& deadline, Kind kind = Kind::kCall)
      : Pipeline(engine, deadline),
        buffers_(engine.get_buffers),
        feed_(&feed),
        is_stream_(kind == Kind::kStream) {}
  // Runs the whole of a call, alone on its thread.
  void run();

  void begin() override;
  bool over() const override {
    // A request for the marks may be under way that no GET waits for any more.
    return at(Need::kNothing) == lanes().size() && next_left_ == left_count_ && feed_->empty() &&
           (is_stream_ || under_way_ == 0);
  }
  bool advance() override;
  Nanos sleep_until() const override;
  void lost() override { engine_.session.link.close(); }  // LINK-1
  void mended() override;
  void fail_rest(const Error& error) override;
  void time_out() override;

  // ---- for a driver that also has another pipeline.

  // Starts GETs and posts their operations. Returns true if anything happened.
  bool start();
  void on_event(const Event& event);
  // Returns the step that GETs wait for and that is due. During perform() nothing else may use the
  // engine; it uses no pipeline. on_step() REQUIRES: the connection is alive.
  BlockingStep wanted_step() const;
  static Status perform(Engine& engine, const BlockingStep& step, const Deadline& deadline);
  void on_step(const BlockingStep& step, const Status& status);

  // Calls `error_of(token, waits_for_mark)` for each GET that was taken from the feed and not given
  // up. If it returns an error, the GET ends with it. Its key is not read again, and the client's
  // memory for the GET is free when its READs have landed. A GET whose READs may land in the
  // caller's memory ends when they have landed, or by end_lost(). The engine is not used.
  template <class ErrorOf>
  void give_up(ErrorOf error_of) {
    for (GetLane& lane : lanes()) {
      if (lane.at == Need::kNothing || lane.token == kGivenUp || lane.ends_with) continue;
      const std::optional<Error> error = error_of(lane.token, lane.at == Need::kMark);
      if (!error) continue;
      if (lane.uses_into && lane.at == Need::kReads) {
        lane.ends_with = error;
      } else {
        leave_lane(lane, *error);
      }
    }
    for (std::size_t i = next_left_; i < left_count_; ++i) {
      GetItem& item = buffers_->taken[buffers_->left[i]];
      if (item.token == kGivenUp) continue;
      const std::optional<Error> error = error_of(item.token, false);
      if (error) feed_->done(std::exchange(item.token, kGivenUp), std::unexpected(*error));
    }
  }
  // The connection was lost. Ends the GETs that waited only for their READs. REQUIRES: the link is
  // closed, so nothing lands any more (LINK-1).
  void end_lost();
  // Whether READs or requests of GETs that were given up are under way.
  bool awaits_given_up() const;
  // Whether READs into the caller's memory may be under way.
  bool uses_memory() const {
    return std::ranges::any_of(
        lanes(), [](const GetLane& l) { return l.uses_into && l.at == Need::kReads; });
  }
  // Whether a GET would have ended but for its READs into the caller's memory.
  bool awaits_landing() const {
    return std::ranges::any_of(lanes(), [](const GetLane& l) { return l.ends_with.has_value(); });
  }

 private:
  using Need = GetOp::Need;
  // Tag of a request that is sent to learn the marks. GET requests use the numbers of their lanes.
  static constexpr std::uint64_t kMarksTag = 1U << 20;

  std::vector<GetLane>& lanes() const { return buffers_->lanes; }
  std::size_t at(Need need) const { return lanes_at_[std::to_underlying(need)]; }
  bool may_start() const {
    return (next_left_ < left_count_ || !feed_->empty()) && at(Need::kMap) == 0 &&
           at(Need::kNothing) != 0;
  }
  // Returns true if lanes wait for something that no event announces.
  bool serves() const {
    return at(Need::kNothing) + at(Need::kReads) + at(Need::kReply) != lanes().size();
  }
  // Whether a look that serves all lanes is due: a call first starts as many GETs as it can.
  bool may_look() const { return is_stream_ || (under_way_ == 0 && !may_start()); }
  void try_get_sync();
  void start_lanes();
  void start_lane(const GetItem& item);
  void follow(GetLane& lane);
  // Calls `step(op)` for each lane that needs this.
  template <class Step>
  void for_each_at(Need need, Step step);
  void queue_reads(GetLane& lane);
  void serve_waiting();
  void perform_step();
  void on_map(const BlockingStep& step, const Status& refreshed);
  void on_replicated(const BlockingStep& step, const Status& replicated);
  void on_look(const Status& looked);
  // Ends a GET. Its lane stays taken until no READ or request of it is under way.
  void leave_lane(GetLane& lane, const Error& error) {
    feed_->done(std::exchange(lane.token, kGivenUp), std::unexpected(error));
    has_given_up_ = true;
  }
  void drop_given_up();
  void give_value_buffer(GetLane& lane);
  void check_marks(bool seen);
  void ask_for_marks();
  void ask_server(GetLane& lane, std::size_t replies_kept);
  bool may_keep_another() const;
  bool post();
  std::size_t poll();
  void on_reply(Reply reply, std::uint64_t tag);
  void finish(GetLane& lane);

  Lender<GetBuffers>::Loan buffers_;
  GetFeed* feed_;
  const bool is_stream_;
  bool has_given_up_ = false;   // a lane was given up, and may be able to end
  std::size_t left_count_ = 0;  // number of GetBuffers::left
  std::size_t next_left_ = 0;   // the first of them that has not got its lane
  std::array<std::size_t, GetOp::kNeeds> lanes_at_{};  // number of lanes by what they need
  std::size_t under_way_ = 0;    // READs and requests queued or posted, not completed
  Nanos ask_at_ = 0;             // the server was busy: no request before this time
  Nanos look_at_ = 0;            // the marks were too low: no look before this time
  Nanos replicated_at_ = 0;      // likewise for the group line
  bool asks_for_marks_ = false;  // request the marks instead of looking
};

}  // namespace rkv::client
