#include "client/engine/get_op.h"

#include "client/engine/requester.h"

namespace rkv::client {

using Next = GetMachine::Next;

void GetOp::begin(Bytes key, Durability at_least) {
  key_ = key;
  at_least_ = at_least;
  asked_ = 0;
  need_ = Need::kConnection;
  ++session_->stats.gets;
  if (const Status valid = check_key(key); !valid) [[unlikely]]
    return end_with(valid.error());
  if (const Status valid = check_durability(at_least); !valid) [[unlikely]]
    end_with(valid.error());
}

void GetOp::start() {
  release();
  const Next next = machine_.start(key_, *memory_);
  if (session_->reports.claim()) [[unlikely]] {
    (void)machine_.take_counts();  // counts of READs that will not be posted
    return ask_server();
  }
  follow(next);
}

void GetOp::follow(Next next) {
  switch (next) {
    case Next::kRead:
      need_ = Need::kReads;
      return;
    case Next::kFound: {
      const RecordFields& record = machine_.fields();
      result_ = ValueView{.value = as_text(record.value),
                          .version = record.version.bits,
                          .expires_at_ms = record.expiry_ms,
                          .is_counter = record.counter,
                          .durability = session_->durability_of(record.version)};
      return found();
    }
    case Next::kMissing:
      if (session_->trust.in_group()) {  // the removal may not be replicated
        need_ = Need::kRequest;
        ++asked_;
        return;
      }
      ++session_->stats.cache_misses;
      return on_refused({.code = Code::kNotFound});
    case Next::kTwoSided:
      if (++asked_ > kMaxAsked) {
        return end_with(
            {.code = Code::kBusy, .text = "the value is rewritten faster than it can be read"});
      }
      need_ = Need::kRequest;
      return;
    case Next::kRefreshExtents:
    case Next::kRefreshDirectory:
      stale_map_ = next;
      need_ = Need::kMap;
      return;
    case Next::kLargeBuffer:
      need_ = Need::kLargeBuffer;
      return;
    case Next::kValueBuffer:
      need_ = Need::kValueBuffer;
      return;
  }
}

// The version found stays the answer while the GET waits for a mark: it was the key's value within
// this call. Reading the key again might never end if the key is written all the time.
void GetOp::found() {
  // The server holds its answers until they are replicated.
  if (session_->trust.in_group() && !reply_ && !session_->trust.is_replicated(version())) {
    need_ = Need::kReplicated;
    return;
  }
  if (result_->durability < at_least_) [[unlikely]] {
    need_ = Need::kMark;
    return;
  }
  ClientStats& stats = session_->stats;
  ++(asked_ != 0 ? stats.two_sided_gets : stats.one_sided_gets);
  if (!reply_) {
    session_->reports.note(machine_.hash());
    ++(machine_.used_cache() ? stats.cache_hits : stats.cache_misses);
  }
  count_reads();
  need_ = Need::kNothing;
}

void GetOp::end_with(const Error& error) {
  count_reads();
  result_ = std::unexpected(error);
  need_ = Need::kNothing;
}

void GetOp::count_reads() {
  const GetMachine::Counts counts = machine_.take_counts();
  session_->stats.rdma_reads += counts.reads;
  session_->stats.retries += counts.retries;
  session_->stats.pins += counts.pins;
  session_->stats.tears_detected += counts.tears;
}

void GetOp::give_back() {
  reply_.reset();
  session_->arena.give_back_large(large_);
  large_ = {};
  session_->large.give_back(value_);
  value_ = nullptr;
}

// --------------------------------------------------------------------- outcomes of actions

bool GetOp::take_large_buffer() {
  large_ = session_->arena.take_large();
  if (large_.empty()) return false;
  machine_.give_buffer(large_);
  follow(machine_.step());
  return true;
}

void GetOp::give_value_buffer(MutableBytes buffer, std::uint32_t local_key) {
  machine_.give_value_buffer(buffer, local_key);
  follow(machine_.step());
}

Status GetOp::take_value_buffer() {
  session_->large.give_back(value_);  // the buffer of a shorter value, which was overwritten since
  value_ = nullptr;
  RKV_ASSIGN_OR_RETURN(value_, session_->large.take(value_bytes()));
  give_value_buffer(value_->bytes(), value_->region->local_key());
  return {};
}

void GetOp::on_map(const Status& refreshed) {
  if (refreshed) return follow(machine_.step());
  if (refreshed.error().code == Code::kBusy) return ask_server();
  on_error(refreshed.error());
}

void GetOp::on_reply(Reply reply) {
  const Response& response = reply.response();
  if ((response.flags & Response::kByRead) != 0) {
    count_reads();
    release();
    return follow(machine_.start_at(key_, *memory_, response.slot, response.version));
  }
  const Durability durability = session_->durability_of(response);
  if (durability < at_least_ && (response.flags & Response::kInCell) != 0) {
    return end_with({.code = Code::kUnsupported,
                     .text = "the durability of a one-sided counter's number is unknown"});
  }
  session_->learn_slot(machine_.hash(), response);
  result_ = ValueView{.value = as_text(response.value),
                      .version = response.version.bits,
                      .expires_at_ms = response.expiry_ms,
                      .is_counter = (response.flags & Response::kCounter) != 0,
                      .durability = durability};
  reply_.emplace(std::move(reply));
  found();
}

void GetOp::on_refused(const Error& error) {
  if (error.code == Code::kNotFound) {
    ++(asked_ != 0 ? session_->stats.two_sided_gets : session_->stats.one_sided_gets);
    ++session_->stats.missing;
  }
  end_with(error);
}

void GetOp::on_marks(bool seen) {
  result_->durability = session_->durability_of(Version{result_->version});
  if (result_->durability < at_least_ && seen && session_->map.marks().none()) {
    return end_with(
        {.code = Code::kUnsupported, .text = "the server keeps its data in memory only"});
  }
  found();
}

void GetOp::on_no_mark() {
  end_with(
      {.code = Code::kTimeout, .text = "the value did not reach the requested durability in time"});
}

void GetOp::on_error(const Error& error) {
  if (error.code == Code::kDisconnected) return on_lost();
  end_with(error);
}

}  // namespace rkv::client
