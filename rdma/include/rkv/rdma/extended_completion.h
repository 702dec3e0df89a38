// Completions read field by field, in place. Only the fields that the program uses are read.
// Reading a field that the queue was not created for does not compile.
//
//   using Queue = ExtendedCompletionQueue<WcField::kByteLength | WcField::kTimestamp>;
//   RKV_ASSIGN_OR_RETURN(Queue queue, Queue::create(device, {.entries = 256}));
//   for (auto& c : queue.poll())                     // at most 64; poll(n) for another limit
//     if (c.ok()) use(c.wr_id(), c.byte_length(), c.timestamp());
//   c.immediate();                                   // does not compile: not requested
//
// A queue converts to CompletionQueue: create queue pairs with it, and use wait_event(), arm() and
// resize(). CompletionQueue::poll() on it then uses ibv_poll_cq(3).
//
// poll() returns a guard: the poll ends when the guard is destroyed. While the guard lives, do not
// poll, resize or destroy the queue or destroy a queue pair on it (drivers hold the queue's lock);
// posting is allowed. The device regains the entries that were read only when the guard ends. If
// the loop posts work, give the queue `limit` more entries than work can be outstanding.
//
// An error of the poll itself ends the loop. The guard's status() holds the error, and for_each()
// returns it if it found no completion.
//
// Thread safety: one thread at a time.
// Source: ibv_create_cq_ex(3); ibv_poll_cq(3) for devices without it, and for which fields are
// valid.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <expected>
#include <iterator>
#include <memory>
#include <utility>

#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

// The calls used to read a queue.
enum class CompletionReading : unsigned char {
  kBest,     // extended calls; ibv_poll_cq(3) if the provider lacks them
  kClassic,  // ibv_poll_cq(3): standard fields only
};

namespace detail {

// A queue read with ibv_poll_cq(3), behind the interface of an extended queue. It takes one
// completion at a time, so a loop may stop at any time without losing one.
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

// The poll in progress. Inline and noexcept, so that the compiler keeps it in registers; functions
// called from here get no pointer to it.
class RKV_EXPORT PollState {
 public:
  PollState(ibv_cq_ex* queue, bool one_by_one, std::size_t limit) noexcept
      : queue_(queue), left_(limit), one_by_one_(one_by_one) {}
  PollState(const PollState&) = delete;
  PollState& operator=(const PollState&) = delete;
  [[gnu::always_inline]] ~PollState() { end(); }

  // Advances to the first completion; false if there is none. Call once.
  [[gnu::always_inline]] bool start() noexcept {
    if (left_ == 0) return false;
    --left_;
    ibv_poll_cq_attr none{};
    const int answer = ibv_start_poll(queue_, &none);
    open_ = answer == 0;
    if (!open_) stopped_by("ibv_start_poll", answer);
    return open_;
  }
  // Advances to the next completion; false if there is none or the limit is reached.
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
  // Used where each completion needs its own poll: the provider ends the poll itself when it finds
  // nothing, and ibv_end_poll would then skip a completion that has not arrived yet.
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
  bool open_ = false;  // ibv_end_poll is due
  // The verb that found no further completion, and its return value.
  const char* verb_ = "";
  int answer_ = 0;
};

}  // namespace detail

// A field that is in the set.
template <WcField set, WcField wanted>
concept HasField = has(set, wanted);

// The completion at the poll's position. Its fields are valid until the poll advances: copy what is
// needed. REQUIRES for all but wr_id(), status(), ok(), queue_pair(), vendor_error(): ok(), because
// nothing else is valid for a failed request.
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
  // The peer sent with invalidate: invalidated_rkey() is the key of the window or region.
  bool has_invalidated() const noexcept { return !has_immediate() && has_flag(invalidate_flag_); }
  // For a datagram: 40 bytes precede the message. RoCE devices may also set it for connections.
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
  // In host byte order. Valid only if has_immediate().
  std::uint32_t immediate() const noexcept
    requires HasField<fields, WcField::kImmediate>
  {
    need_ok();
    return ntohl(ibv_wc_read_imm_data(queue_));
  }
  // Valid only if has_invalidated(). It shares its field with the immediate data.
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
  // Ticks of the device's clock.
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

 private:
  void need_ok() const noexcept { RKV_CHECK(ok(), "a field of a completion that failed"); }
  bool has_flag(unsigned flag) const noexcept {
    need_ok();
    return (ibv_wc_read_wc_flags(queue_) & flag) != 0;
  }
  ibv_cq_ex* queue_;
  unsigned invalidate_flag_;
};

// One pass over the completions in the queue; the destructor ends the poll. Not movable.
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

  // Call once per poll.
  [[gnu::always_inline]] Iterator begin() noexcept {
    RKV_CHECK(!begun_, "a poll of completions is gone through twice");
    begun_ = true;
    more_ = state_.start();
    return Iterator(this);
  }
  std::default_sentinel_t end() const noexcept { return {}; }
  // An error of the queue itself: overrun, device removed.
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
  static constexpr std::size_t kDefaultLimit = 64;
  using Cursor = CompletionCursor<fields>;

  // kUnsupported if the device lacks a field; the text names it.
  static Result<ExtendedCompletionQueue> create(
      const Device& device, const CompletionQueueOptions& options,
      CompletionReading reading = CompletionReading::kBest) {
    const bool classic = reading == CompletionReading::kClassic;
    if (classic && !has(kStandardFields, fields)) {
      return fail_call(Code::kInvalidArgument, "ibv_poll_cq", 0,
                       "CompletionReading::kClassic has the standard fields only: no time stamps");
    }
    RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                         CompletionQueue::create(device, options, fields, classic));
    return ExtendedCompletionQueue(std::move(queue));
  }

  // The poll starts at begin(): `for (auto& c : queue.poll())`. No system call, does not block.
  CompletionPoll<fields> poll(std::size_t limit = kDefaultLimit) noexcept {
    return {reader_, queue_.one_by_one_, limit};
  }
  // Calls `take` with the cursor for at most `limit` completions; returns their number.
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
  // The same, but blocks until there is a completion or the deadline has passed (then returns 0).
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
  std::unique_ptr<detail::ClassicReader> classic_;  // used if the provider has no extended queue
  ibv_cq_ex* reader_;
};

}  // namespace rkv::rdma
