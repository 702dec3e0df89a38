// Completions read field by field, in place: of each only what the program looks at is read, and a
// field that the queue was not made for does not compile.
//
//   using Queue = ExtendedCompletionQueue<WcField::kByteLength | WcField::kTimestamp>;
//   RKV_ASSIGN_OR_RETURN(Queue queue, Queue::create(device, {.entries = 256}));
//   for (auto& c : queue.poll())                     // at most 64; poll(n) for another limit
//     if (c.ok()) use(c.wr_id(), c.byte_length(), c.timestamp());
//   c.immediate();                                   // does not compile: was not asked for
//
// A queue is also a CompletionQueue (conversion): queue pairs are made with it, and wait_event(),
// arm(), resize() are there. Its own poll() then goes through ibv_poll_cq(3).
//
// What poll() gives is a guard: the poll ends when it is destroyed. While it lives do not poll,
// resize or destroy the queue, nor destroy a queue pair on it (drivers lock the queue meanwhile);
// posting is fine. The device gets back the room of what was read when the guard ends: where work
// is posted inside the loop, give the queue `limit` entries more than work can be outstanding.
//
// An error of the poll itself ends the loop; it is in the guard's status(), and for_each() returns
// it. Thread safety: one thread at a time.
// Source: ibv_create_cq_ex(3); ibv_poll_cq(3) for devices without, and for what is valid when.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

// How a queue is read.
enum class CompletionReading : unsigned char {
  kBest,     // by the extended calls; by ibv_poll_cq(3) where the provider lacks them
  kClassic,  // by ibv_poll_cq(3): standard fields only
};

namespace detail {

// A queue that is read by ibv_poll_cq(3), behind the functions of an extended one. One completion
// at a time: what is taken out is gone from the queue, and a loop may be left at any time.
class RKV_EXPORT ClassicReader : public ibv_cq_ex {
 public:
  explicit ClassicReader(ibv_cq* from);
  ClassicReader(const ClassicReader&) = delete;
  ClassicReader& operator=(const ClassicReader&) = delete;

 private:
  static int fetch(ibv_cq_ex* self);
  static const ibv_wc& now(ibv_cq_ex* self);
  ibv_cq* from_;
  ibv_wc now_{};
};

// The poll that is going on. Inline and noexcept, so that the compiler keeps it in registers; what
// is called from here gets no pointer to it.
class RKV_EXPORT PollState {
 public:
  PollState(ibv_cq_ex* queue, bool one_by_one, std::size_t limit) noexcept
      : queue_(queue), left_(limit), one_by_one_(one_by_one) {}
  PollState(const PollState&) = delete;
  PollState& operator=(const PollState&) = delete;
  [[gnu::always_inline]] ~PollState() { end(); }

  // Goes to the first completion; false when there is none. Once.
  [[gnu::always_inline]] bool start() noexcept {
    if (left_ == 0) return false;
    --left_;
    ibv_poll_cq_attr none{};
    const int answer = ibv_start_poll(queue_, &none);
    open_ = answer == 0;
    if (!open_) stopped_by("ibv_start_poll", answer);
    return open_;
  }
  // To the next; false when there is none or enough.
  [[gnu::always_inline]] bool advance() noexcept {
    if (left_ == 0 || !open_) {
      end();
      return false;
    }
    --left_;
    const int answer = one_by_one_ ? start_again(queue_) : ibv_next_poll(queue_);
    if (answer == 0) [[likely]]
      return true;
    if (one_by_one_) open_ = false;
    end();
    stopped_by(one_by_one_ ? "ibv_start_poll" : "ibv_next_poll", answer);
    return false;
  }
  Status status() const {
    if (const Result<bool> found = from_poll(verb_, answer_); !found) {
      return std::unexpected(found.error());
    }
    return {};
  }
  ibv_cq_ex* queue() const noexcept { return queue_; }

 private:
  // Where each completion is a poll of its own, because the provider ends the poll itself when it
  // finds nothing and ibv_end_poll would step past what has not come yet.
  static int start_again(ibv_cq_ex* queue) noexcept;
  [[gnu::always_inline]] void end() noexcept {
    if (open_) ibv_end_poll(queue_);
    open_ = false;
  }
  void stopped_by(const char* verb, int answer) noexcept {
    verb_ = verb;
    answer_ = answer;
  }

  ibv_cq_ex* queue_;
  std::size_t left_;
  bool one_by_one_;
  bool open_ = false;      // ibv_end_poll is due
  const char* verb_ = "";  // that found no more, and what it answered
  int answer_ = 0;
};

}  // namespace detail

// A name of a field that the set has.
template <WcField set, WcField wanted>
concept HasField = has(set, wanted);

// The completion at which a poll is. What it says is gone when the poll goes on: copy what is
// needed. REQUIRES for all but wr_id(), status(), ok(), queue_pair(), vendor_error(): ok(), because
// of a failed request nothing else is valid.
template <WcField fields>
class CompletionCursor {
 public:
  explicit CompletionCursor(ibv_cq_ex* queue, bool soft_roce = false) noexcept
      : queue_(queue), invalidate_flag_(detail::invalidate_flag(soft_roce)) {}
  CompletionCursor(const CompletionCursor&) = delete;
  CompletionCursor& operator=(const CompletionCursor&) = delete;

  std::uint64_t wr_id() const noexcept { return queue_->wr_id; }
  ibv_wc_status status() const noexcept { return queue_->status; }
  bool ok() const noexcept { return status() == IBV_WC_SUCCESS; }
  std::uint32_t vendor_error() const noexcept { return ibv_wc_read_vendor_err(queue_); }
  WorkKind kind() const noexcept {
    need_ok();
    return detail::work_kind(ibv_wc_read_opcode(queue_));
  }
  bool has_immediate() const noexcept { return has_flag(IBV_WC_WITH_IMM); }
  // The peer sent with invalidate: invalidated_rkey() is the window's or region's.
  bool has_invalidated() const noexcept { return !has_immediate() && has_flag(invalidate_flag_); }
  // Of a datagram: 40 bytes precede the message. RoCE devices may say so of connections, too.
  bool has_grh() const noexcept { return has_flag(IBV_WC_GRH); }

  std::uint32_t queue_pair() const noexcept
    requires HasField<fields, WcField::kQueuePair>
  {
    return ibv_wc_read_qp_num(queue_);
  }
  std::uint32_t byte_length() const noexcept
    requires HasField<fields, WcField::kByteLength>
  {
    need_ok();
    return ibv_wc_read_byte_len(queue_);
  }
  // In host byte order. Means something only when has_immediate().
  std::uint32_t immediate() const noexcept
    requires HasField<fields, WcField::kImmediate>
  {
    need_ok();
    return ntohl(ibv_wc_read_imm_data(queue_));
  }
  // Means something only when has_invalidated(). It stands where the immediate data would.
  std::uint32_t invalidated_rkey() const noexcept
    requires HasField<fields, WcField::kImmediate>
  {
    need_ok();
    return ibv_wc_read_invalidated_rkey(queue_);
  }
  std::uint32_t source_queue_pair() const noexcept
    requires HasField<fields, WcField::kSourceQueuePair>
  {
    need_ok();
    return ibv_wc_read_src_qp(queue_);
  }
  std::uint32_t slid() const noexcept
    requires HasField<fields, WcField::kSlid>
  {
    need_ok();
    return ibv_wc_read_slid(queue_);
  }
  std::uint8_t service_level() const noexcept
    requires HasField<fields, WcField::kServiceLevel>
  {
    need_ok();
    return ibv_wc_read_sl(queue_);
  }
  std::uint8_t path_bits() const noexcept
    requires HasField<fields, WcField::kPathBits>
  {
    need_ok();
    return ibv_wc_read_dlid_path_bits(queue_);
  }
  // Ticks of the device's clock: device_clock.h makes times of them.
  std::uint64_t timestamp() const noexcept
    requires HasField<fields, WcField::kTimestamp>
  {
    need_ok();
    return ibv_wc_read_completion_ts(queue_);
  }
  std::uint64_t wallclock_ns() const noexcept
    requires HasField<fields, WcField::kWallclock>
  {
    need_ok();
    return ibv_wc_read_completion_wallclock_ns(queue_);
  }
  std::uint16_t vlan() const noexcept
    requires HasField<fields, WcField::kVlan>
  {
    need_ok();
    return ibv_wc_read_cvlan(queue_);
  }
  std::uint32_t flow_tag() const noexcept
    requires HasField<fields, WcField::kFlowTag>
  {
    need_ok();
    return ibv_wc_read_flow_tag(queue_);
  }
  ibv_wc_tm_info tag() const noexcept
    requires HasField<fields, WcField::kTag>
  {
    need_ok();
    ibv_wc_tm_info out{};
    ibv_wc_read_tm_info(queue_, &out);
    return out;
  }

 private:
  void need_ok() const noexcept { RKV_CHECK(ok(), "a field of a completion that failed"); }
  bool has_flag(unsigned flag) const noexcept {
    need_ok();
    return (ibv_wc_read_wc_flags(queue_) & flag) != 0;
  }
  ibv_cq_ex* queue_;
  unsigned invalidate_flag_;
};

// One pass over what is in the queue, once; ends the poll when destroyed. Not movable.
template <WcField fields>
class [[nodiscard]] CompletionPoll {
 public:
  class Iterator {
   public:
    using value_type = CompletionCursor<fields>;
    using difference_type = std::ptrdiff_t;
    const CompletionCursor<fields>& operator*() const noexcept { return poll_->cursor_; }
    [[gnu::always_inline]] Iterator& operator++() noexcept {
      poll_->more_ = poll_->state_.advance();
      return *this;
    }
    void operator++(int) noexcept { ++*this; }
    friend bool operator==(const Iterator& at, std::default_sentinel_t) noexcept {
      return at.at_end();
    }

   private:
    friend class CompletionPoll;
    bool at_end() const noexcept { return !poll_->more_; }
    explicit Iterator(CompletionPoll* poll) noexcept : poll_(poll) {}
    CompletionPoll* poll_;
  };

  [[gnu::always_inline]] ~CompletionPoll() = default;

  // Once per poll.
  [[gnu::always_inline]] Iterator begin() noexcept {
    RKV_CHECK(!begun_, "a poll of completions is gone through twice");
    begun_ = true;
    more_ = state_.start();
    return Iterator(this);
  }
  std::default_sentinel_t end() const noexcept { return {}; }
  // What went wrong with the queue itself: overrun, device gone.
  Status status() const { return state_.status(); }

 private:
  template <WcField>
  friend class ExtendedCompletionQueue;
  CompletionPoll(ibv_cq_ex* queue, bool one_by_one, std::size_t limit) noexcept
      : state_(queue, one_by_one, limit), cursor_(queue, one_by_one) {}
  detail::PollState state_;
  CompletionCursor<fields> cursor_;
  bool more_ = false;
  bool begun_ = false;
};

template <WcField fields>
class ExtendedCompletionQueue {
 public:
  static constexpr WcField kFields = fields;
  static constexpr std::size_t kDefaultLimit = 64;
  using Cursor = CompletionCursor<fields>;

  // kUnsupported where the device lacks a field; the text names it.
  static Result<ExtendedCompletionQueue> create(
      const Device& device, const CompletionQueueOptions& options,
      CompletionReading reading = CompletionReading::kBest) {
    const bool classic = reading == CompletionReading::kClassic;
    if (classic && options.domain != nullptr) {
      return fail_call(Code::kInvalidArgument, "ibv_create_cq", 0,
                       "CompletionReading::kClassic makes a queue without a domain: leave "
                       "CompletionQueueOptions::domain empty");
    }
    if (classic && !has(kStandardFields, fields)) {
      return fail_call(Code::kInvalidArgument, "ibv_poll_cq", 0,
                       "CompletionReading::kClassic has the standard fields only: no time stamps, "
                       "VLAN tags, flow tags or matched tags");
    }
    RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                         CompletionQueue::create(device, options, fields, classic));
    return ExtendedCompletionQueue(std::move(queue));
  }

  // Starts at begin(): `for (auto& c : queue.poll())`. No system call, does not block.
  CompletionPoll<fields> poll(std::size_t limit = kDefaultLimit) noexcept {
    return {reader_, queue_.one_by_one_, limit};
  }
  // Calls `take` with the cursor for at most `limit` completions; how many there were.
  template <class Take>
  Result<std::size_t> for_each(Take&& take, std::size_t limit = kDefaultLimit) {
    std::size_t count = 0;
    CompletionPoll<fields> now = poll(limit);
    for (auto& completion : now) {
      ++count;
      take(completion);
    }
    if (Status status = now.status(); !status && count == 0) {
      return std::unexpected(status.error());
    }
    return count;
  }
  // The same, but waits until there is something or the deadline has passed (then 0). Blocks.
  template <class Take>
  Result<std::size_t> wait_each(Take&& take, const Deadline& deadline,
                                std::size_t limit = kDefaultLimit) {
    RKV_CHECK(limit != 0, "waiting for completions of which none may be read");
    for (;;) {
      const Result<std::size_t> present = for_each(take, limit);
      if (!present || *present != 0) return present;
      const std::uint64_t seen = queue_.events();
      RKV_RETURN_IF_ERROR(queue_.arm());
      const Result<std::size_t> found = for_each(take, limit);
      if (!found || *found != 0) return found;
      RKV_ASSIGN_OR_RETURN(const bool woken, queue_.wait_event(seen, deadline));
      if (!woken) return for_each(take, limit);
    }
  }

  CompletionQueue& queue() { return queue_; }
  const CompletionQueue& queue() const { return queue_; }
  operator const CompletionQueue&() const { return queue_; }  // NOLINT(*-explicit-*)

 private:
  explicit ExtendedCompletionQueue(CompletionQueue queue)
      : queue_(std::move(queue)), reader_(queue_.raw_extended()) {
    if (reader_ != nullptr) return;
    classic_ = std::make_unique<detail::ClassicReader>(queue_.raw());
    reader_ = classic_.get();
  }
  CompletionQueue queue_;
  std::unique_ptr<detail::ClassicReader> classic_;  // where the provider has no extended queue
  ibv_cq_ex* reader_;
};

}  // namespace rkv::rdma
