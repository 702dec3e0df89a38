// WritePipeline: many writes in flight on one connection: as many requests as there are credits,
// each a pack of several writes if the server knows packs. A write that is too long for a pack is
// sent alone.
//
// If the connection ends before a posted write was answered, the server is asked about the write
// over the next connection (ENG-1, ASK-1). When the deadline passes first, the write may have
// happened and is reported so. A write that was not sent is sent over the next connection.
//
// Thread safety: as the engine.
#pragma once

#include "client/engine/pipeline.h"

namespace rkv::client {

// Gives writes to a pipeline, and takes their results.
class WriteFeed {
 public:
  virtual ~WriteFeed() = default;
  virtual bool empty() const = 0;
  // Takes the next write. REQUIRES: the feed is not empty.
  virtual std::uint64_t take() = 0;
  // How many writes were submitted together, as far as is known.
  virtual std::size_t burst() const = 0;
  // Returns the request of a write that was taken and has not ended, complete except for its
  // time-out. The key and value stay valid until the write ends.
  virtual Request request(std::uint64_t token) const = 0;
  virtual Nanos deadline(std::uint64_t token) const = 0;
  // The write ends. The answer, whose code is 0, is valid during the call. Neither of the two calls
  // may use the engine.
  virtual void done(std::uint64_t token, const Response& answer) = 0;
  virtual void failed(std::uint64_t token, const Error& error) = 0;
};

// The puts of a span of items, for a visitor. The token is the item's index.
class ItemsFeed final : public WriteFeed {
 public:
  ItemsFeed(std::span<const KeyValue> items, Durability durability, const Deadline& deadline,
            PutVisitor visit, void* target)
      : items_(items),
        durability_(durability),
        deadline_(deadline.at()),
        visit_(visit),
        target_(target) {}
  bool empty() const override { return next_ == items_.size(); }
  std::uint64_t take() override { return next_++; }
  std::size_t burst() const override { return items_.size(); }
  Request request(std::uint64_t token) const override;
  Nanos deadline(std::uint64_t /*token*/) const override { return deadline_; }
  void done(std::uint64_t token, const Response& answer) override {
    visit_(target_, token, answer.version.bits);
  }
  void failed(std::uint64_t token, const Error& error) override {
    visit_(target_, token, std::unexpected(error));
  }

 private:
  std::span<const KeyValue> items_;
  Durability durability_;
  Nanos deadline_;
  PutVisitor visit_;
  void* target_;
  std::size_t next_ = 0;
};

class WritePipeline final : public Pipeline {
 public:
  WritePipeline(Engine& engine, WriteFeed& feed, const Deadline& deadline)
      : Pipeline(engine, deadline), buffers_(engine.write_buffers), feed_(&feed) {}
  // Runs the whole of a call, alone on its thread.
  void run();

  void begin() override;
  bool over() const override { return unfinished_ == 0 && feed_->empty(); }
  bool advance() override;
  Nanos sleep_until() const override;
  void lost() override;
  void mended() override {}
  void fail_rest(const Error& error) override;
  void time_out() override;

  // ---- for a driver that also has another pipeline.

  // Sends all requests that may be sent. Returns true if anything was posted.
  bool start() {
    fill();
    return post();
  }
  static bool is_of_write(const Event& event) {
    return event.kind == Event::Kind::kReply && (event.context & kTag) != 0;
  }
  // REQUIRES is_of_write(event).
  void on_event(const Event& event);
  // Like lost(). Call it if the link is closed, or will be before anything is sent.
  void on_lost();

  // Calls `gives_up(token, may_have_happened)` for each write that was taken from the feed and not
  // given up. If it returns true, nobody awaits the write's result any more, and its key and value
  // are not read again. The engine is not used.
  template <class GivesUp>
  void give_up(GivesUp gives_up) {
    for (WriteSlot& slot : buffers_->slots) {
      if (slot.state == State::kFree) continue;
      for (WriteOfRequest& item : std::span(slot.items).first(slot.count))
        give_up_one(item.token, slot.state != State::kAgain, gives_up);
    }
    for (WriteAgain& item : buffers_->again)
      give_up_one(item.token, false, gives_up);
    if (held_) give_up_one(held_->token, false, gives_up);
  }
  // Whether a request with a write that was given up is under way.
  bool awaits_given_up() const;

 private:
  using Slot = WriteSlot;
  using State = WriteSlot::State;
  // The tags of this pipeline's requests consist of this bit and the number of the slot.
  static constexpr std::uint64_t kTag = 1U << 21;

  template <class GivesUp>
  static void give_up_one(std::uint64_t& token, bool may_have_happened, GivesUp& gives_up) {
    if (token != kGivenUp && gives_up(token, may_have_happened)) token = kGivenUp;
  }
  void fill();
  bool stage(Slot& slot, const Request& put);
  bool begin(Slot& slot);
  bool begin_question(Slot& slot);
  bool begin_pack(Slot& slot);
  bool begin_single(Slot& slot);
  bool drop_given_up(Slot& slot);
  bool send(Slot& slot, Request request, Nanos deadline);
  bool batch(Slot& slot, const Request& request);
  bool take_items(Slot& slot);
  std::optional<WriteAgain> next_item();
  Status check(const Request& request) const;
  std::size_t most_in_pack() const;
  bool post();
  std::size_t poll();
  void on_outcome(Slot& slot, const Response& response);
  void on_answer(Slot& slot, const Response& response);
  void on_pack(Slot& slot, const Response& response);
  bool on_result(const WriteOfRequest& item, const Response& response);
  bool is_put_off(const Error& error, const WriteOfRequest& item) const;
  bool is_put_off(const Error& error, const Slot& slot) const;
  void wait_busy(const Response& response);
  void send_again(std::uint64_t token, bool alone);
  void unpack(Slot& slot);
  void end(std::uint64_t token, const Error& error);
  void free(Slot& slot);
  void finish(Slot& slot, const Error& error);
  void fail_sent(Code code, const char* text);
  void put_back(Slot& slot, State state);
  void break_off(Slot& slot, const char* why);

  Lender<WriteBuffers>::Loan buffers_;
  WriteFeed* feed_;
  std::optional<WriteAgain> held_;  // was taken by take_items(), for the next slot
  std::size_t unfinished_ = 0;      // writes taken from the feed, and neither ended nor dropped
  // Slots to be sent again or to be asked about. While there are any, no new write is started.
  std::size_t again_ = 0;
  Nanos send_at_ = 0;  // the server was busy: nothing is sent before this time
};

}  // namespace rkv::client
