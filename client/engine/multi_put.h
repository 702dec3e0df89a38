// Many PUTs in flight on one connection: as many requests as there are credits, each a pack of
// several PUTs if the server knows packs. A PUT that is too long for a pack goes by itself.
//
// A PUT that was posted and not answered when the connection ends is asked about over the next one
// (ENG-1, ASK-1). When the deadline passes, it may have happened and is reported so. A PUT that was
// not sent is sent over the next connection.
//
// Thread safety: as the engine, which no other operation uses meanwhile.
#pragma once

#include "client/engine/pipelined_op.h"

namespace rkv::client {

class MultiPut final : public PipelinedOp {
 public:
  MultiPut(Engine& engine, std::span<const KeyValue> items, Durability durability,
           const Deadline& deadline, PutVisitor visit, void* target)
      : PipelinedOp(engine, deadline),
        items_(items),
        durability_(durability),
        visit_(visit),
        target_(target) {}
  // Runs the whole operation, alone on its thread.
  void run();

  void begin() override;
  bool over() const override { return finished_ == items_.size(); }
  bool advance() override;
  Nanos sleep_until() const override;
  void lost() override;
  void mended() override {}
  void fail_rest(const Error& error) override;
  void time_out() override;

 private:
  using Slot = PutSlot;
  using State = PutSlot::State;

  void fill();
  bool stage(Slot& slot);
  bool begin(Slot& slot);
  bool begin_question(Slot& slot);
  bool begin_pack(Slot& slot);
  bool begin_single(Slot& slot);
  bool send(Slot& slot, Request request);
  bool batch(Slot& slot, const Request& request);
  bool take_items(Slot& slot);
  std::optional<PutAgain> next_item();
  Status check(const KeyValue& item) const;
  Request request_for(const KeyValue& item) const;
  std::size_t most_in_pack() const;
  bool post();
  std::size_t poll();
  void on_reply(const Event& event);
  void on_outcome(Slot& slot, const Response& response);
  void on_answer(Slot& slot, const Response& response);
  void on_pack(Slot& slot, const Response& response);
  bool on_result(std::size_t index, const Response& response);
  void wait_busy(const Response& response);
  void unpack(Slot& slot);
  void report(std::size_t index, const Result<std::uint64_t>& version);
  void free(Slot& slot);
  void finish(Slot& slot, const Result<std::uint64_t>& version);
  void fail_sent(Code code, const char* text);
  void put_back(Slot& slot, State state);
  void break_off(Slot& slot, const char* why);

  std::span<const KeyValue> items_;
  const Durability durability_;
  PutVisitor visit_;
  void* target_;
  std::size_t next_item_ = 0;
  std::optional<PutAgain> held_;  // taken by take_items(), for the next slot
  std::size_t finished_ = 0;
  // Slots to be sent again or to be asked about. While there are any, no new item is started.
  std::size_t again_ = 0;
  Nanos send_at_ = 0;  // the server was busy: nothing is sent before this time
};

}  // namespace rkv::client
