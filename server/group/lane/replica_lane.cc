#include "server/group/lane/replica_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "common/check.h"

namespace rkv::server {

namespace {

// Frames without bytes that may be under way in one direction (LANE-2), and one to spare.
constexpr std::uint32_t kCreditFrames = 3;
constexpr std::uint32_t kReceives = ReplicaLane::kFrames + kCreditFrames;
constexpr std::uint32_t kReturnAt = ReplicaLane::kFrames / 2;
constexpr std::size_t kSpaceBytes = ReplicaLane::kFrameBytes - ReplicaLane::kHeadBytes;
// Polls in a row that may find something before the thread's other work gets its turn.
constexpr int kPollsAtOnce = 16;

}  // namespace

class ReplicaLane::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, LaneParts parts, std::shared_ptr<LaneReaper> reaper)
      : parts_(std::move(parts)), reaper_(std::move(reaper)), io_(io), descriptor_(io) {
    for (std::uint32_t slot = 0; slot < kFrames; ++slot)
      free_.push_back(slot);
    for (std::uint32_t slot = kFrames; slot < kReceives; ++slot)
      free_for_credits_.push_back(slot);
  }

  void start(Callbacks callbacks) {
    RKV_CHECK(!started_, "a lane is started once");
    started_ = true;
    callbacks_ = std::move(callbacks);
    turn_later();
  }
  void receive() {
    receiving_ = true;
    turn_later();
  }
  std::size_t send(Bytes bytes) {
    std::size_t taken = 0;
    while (taken < bytes.size() && !ended_ && open_frame()) {
      const std::size_t part = std::min(bytes.size() - taken, kSpaceBytes - filled_);
      std::memcpy(memory_of(filling_).data() + kHeadBytes + filled_, bytes.data() + taken, part);
      filled_ += part;
      taken += part;
      if (filled_ == kSpaceBytes) flush();
    }
    if (taken < bytes.size()) wants_room_ = true;
    return taken;
  }
  void flush() {
    if (filling_ == kNone || filled_ == 0 || ended_) return;
    posted_.push_back(filled_);
    post(filling_, filled_);
    filling_ = kNone;
    filled_ = 0;
  }
  // After close() no callback follows.
  void close() {
    silent_ = true;
    end();
    stop_watching();
    held_.clear();
    reaper_->take(std::exchange(parts_, LaneParts{.over = parts_.over}));
  }
  void drain() {
    const auto self = shared_from_this();
    if (ended_) return;
    wake();
    while (poll() != 0 && !ended_) {
    }
    if (!ended_) turn_later();
  }
  std::uint64_t taken_bytes() const { return taken_bytes_; }
  const std::string& over() const { return parts_.over; }

 private:
  static constexpr std::uint32_t kNone = ~0U;
  struct Held {
    Bytes bytes;  // of the frame, without its head
    std::uint32_t receive_buffer;
  };

  MutableBytes memory_of(std::uint32_t slot) const {
    return parts_.frames->bytes().subspan(slot * kFrameBytes, kFrameBytes);
  }
  bool open_frame() {
    if (filling_ != kNone) return true;
    if (credits_ == 0 || free_.empty()) return false;
    --credits_;
    filling_ = free_.back();
    free_.pop_back();
    filled_ = 0;
    return true;
  }
  void post(std::uint32_t slot, std::size_t bytes) {
    const MutableBytes frame = memory_of(slot).first(kHeadBytes + bytes);
    store_le(frame.data(), std::exchange(owed_, 0U));
    store_le(frame.data() + 4, static_cast<std::uint32_t>(bytes));
    auto operation = rdma::Operation::send(frame, parts_.frames->local_key(), slot);
    operation.inline_data = frame.size() <= parts_.connection->limits().inline_bytes;
    const auto posted = parts_.connection->post({&operation, 1});
    // There is room for all slots, so a post that fails means that the lane has failed. The next
    // turn reports that, with the queue's reason if it has one.
    if (!posted || *posted != 1) return fail_later();
    // The descriptor does not report a completion that the post produced at once.
    if (asleep_ && parts_.queue->is_ready()) turn_later();
  }
  void return_credits() {
    if (owed_ < kReturnAt || free_for_credits_.empty() || ended_) return;
    const std::uint32_t slot = free_for_credits_.back();
    free_for_credits_.pop_back();
    post(slot, 0);
  }

  // ---- what comes

  void turn_later() {
    if (std::exchange(is_turn_due_, true)) return;
    asio::post(io_, [self = shared_from_this()] {
      self->is_turn_due_ = false;
      self->turn();
    });
  }
  void fail_later() {
    has_failed_ = true;
    turn_later();
  }
  void turn() {
    if (ended_) return;
    wake();
    for (int polls = 0; polls < kPollsAtOnce; ++polls) {
      const std::size_t found = poll();
      if (ended_) return;
      // Frames that arrived before the failure have been delivered.
      if (has_failed_ && found == 0) return fail("it takes nothing more");
      return_credits();
      if (found != 0 || parts_.queue->is_ready()) continue;
      if (const auto descriptor = parts_.queue->begin_sleep()) return watch(*descriptor);
    }
    turn_later();
  }
  // The descriptor belongs to the queue: it is borrowed until stop_watching().
  void watch(int descriptor) {
    asleep_ = true;
    if (!descriptor_.is_open()) {
      asio::error_code error;
      descriptor_.assign(descriptor, error);
      if (error) return fail(fmt::format("it cannot be waited for: {}", error.message()));
    }
    if (std::exchange(is_watching_, true)) return;
    descriptor_.async_wait(asio::posix::descriptor_base::wait_read,
                           [self = shared_from_this()](const asio::error_code& canceled) {
                             if (canceled) return;
                             self->is_watching_ = false;
                             self->turn();
                           });
  }
  void wake() {
    if (std::exchange(asleep_, false)) parts_.queue->end_sleep();
  }
  void stop_watching() {
    wake();
    if (descriptor_.is_open()) (void)descriptor_.release();
  }
  // Returns the number of completions. A callback may close the lane.
  std::size_t poll() {
    deliver_held();
    if (ended_) return 0;
    std::array<rdma::Completion, 32> completions;
    const std::size_t count = parts_.queue->poll(completions);
    bool has_room = false;
    for (std::size_t i = 0; i < count && !ended_; ++i)
      has_room = take(completions[i]) || has_room;
    tell_delivered();
    if (ended_) return count;
    if (has_room && std::exchange(wants_room_, false)) callbacks_.on_room();
    return count;
  }
  // Returns whether there may be more room for send().
  bool take(const rdma::Completion& completion) {
    using Kind = rdma::Completion::Kind;
    if (completion.kind == Kind::kDisconnected) {
      tell_delivered();
      fail("the other end has ended it, or cannot be reached");
      return false;
    }
    if (completion.status != rdma::Completion::Status::kOk) {
      // kDisconnected follows.
      return false;
    }
    if (completion.kind == Kind::kSend) {
      const auto slot = static_cast<std::uint32_t>(completion.context);
      (slot < kFrames ? free_ : free_for_credits_).push_back(slot);
      return true;
    }
    return take_frame(completion.message, completion.receive_buffer);
  }
  bool take_frame(Bytes frame, std::uint32_t receive_buffer) {
    if (frame.size() < kHeadBytes) {
      fail("it sent what is not a frame");
      return false;
    }
    const auto returned = load_le<std::uint32_t>(frame.data());
    const auto length = load_le<std::uint32_t>(frame.data() + 4);
    if (length != frame.size() - kHeadBytes || returned > posted_.size()) {
      fail("it sent what is not a frame");
      return false;
    }
    take_credits(returned);
    const Bytes bytes = frame.subspan(kHeadBytes);
    if (bytes.empty()) {
      parts_.queue->release({&receive_buffer, 1});
    } else if (!receiving_ || !held_.empty()) {
      held_.push_back({.bytes = bytes, .receive_buffer = receive_buffer});
    } else {
      deliver({.bytes = bytes, .receive_buffer = receive_buffer});
    }
    return returned != 0;
  }
  void take_credits(std::uint32_t returned) {
    credits_ += returned;
    for (; returned != 0; --returned) {
      taken_bytes_ += posted_.front();
      posted_.pop_front();
    }
  }
  void deliver(const Held& frame) {
    has_delivered_ = true;
    callbacks_.on_bytes(frame.bytes);
    if (ended_) return;
    parts_.queue->release({&frame.receive_buffer, 1});
    ++owed_;
  }
  void tell_delivered() {
    if (!ended_ && std::exchange(has_delivered_, false)) callbacks_.on_delivered();
  }
  void deliver_held() {
    while (receiving_ && !held_.empty() && !ended_) {
      const Held frame = held_.front();
      held_.pop_front();
      deliver(frame);
    }
  }

  void end() {
    if (std::exchange(ended_, true)) return;
    parts_.connection->abort();
  }
  // Not called from within a call of the user, except drain().
  void fail(const std::string& why) {
    end();
    if (std::exchange(silent_, true)) return;
    const Callbacks callbacks = std::exchange(callbacks_, {});
    callbacks.on_end(fmt::format("the connection over {} has ended: {}", parts_.over, why));
  }

  LaneParts parts_;
  const std::shared_ptr<LaneReaper> reaper_;
  asio::io_context& io_;
  asio::posix::stream_descriptor descriptor_;
  Callbacks callbacks_;
  bool started_ = false;
  bool receiving_ = false;
  bool is_turn_due_ = false;
  bool asleep_ = false;       // between begin_sleep() and end_sleep() of the queue
  bool is_watching_ = false;  // a handler will come
  bool has_failed_ = false;   // and on_end is due
  bool ended_ = false;
  bool silent_ = false;  // no callback any more
  bool wants_room_ = false;
  bool has_delivered_ = false;  // on_delivered is due

  std::uint32_t credits_ = kFrames;  // frames with bytes that the other end has receives for
  std::uint32_t owed_ = 0;           // credits to give back
  std::vector<std::uint32_t> free_;  // slots of `frames`
  std::vector<std::uint32_t> free_for_credits_;
  std::uint32_t filling_ = kNone;  // not posted yet
  std::size_t filled_ = 0;
  std::deque<std::size_t> posted_;  // bytes of each frame whose credit has not come back
  std::uint64_t taken_bytes_ = 0;
  std::deque<Held> held_;  // arrived before receive()
};

Result<LaneParts> ReplicaLane::prepare(rdma::Transport& transport) {
  LaneParts parts{.over = transport.describe()};
  RKV_ASSIGN_OR_RETURN(parts.frames,
                       transport.allocate(kReceives * kFrameBytes, rdma::Access::kLocal));
  RKV_ASSIGN_OR_RETURN(
      parts.queue, transport.create_queue({.completions = 4 * kReceives,
                                           .receive_buffers = kReceives,
                                           .receive_bytes = static_cast<std::uint32_t>(kFrameBytes),
                                           .poll = rdma::PollMode::kEvent}));
  return parts;
}

rdma::ConnectionOptions ReplicaLane::connection_options() {
  return {.sends_in_flight = 2 * kReceives, .send_bytes = static_cast<std::uint32_t>(kFrameBytes)};
}

ReplicaLane::ReplicaLane(asio::io_context& io, LaneParts parts, std::shared_ptr<LaneReaper> reaper)
    : impl_(std::make_shared<Impl>(io, std::move(parts), std::move(reaper))) {}

ReplicaLane::~ReplicaLane() {
  impl_->close();
}

void ReplicaLane::start(Callbacks callbacks) {
  impl_->start(std::move(callbacks));
}

void ReplicaLane::receive() {
  impl_->receive();
}

void ReplicaLane::drain() {
  impl_->drain();
}

std::size_t ReplicaLane::send(Bytes bytes) {
  return impl_->send(bytes);
}

void ReplicaLane::flush() {
  impl_->flush();
}

std::uint64_t ReplicaLane::taken_bytes() const {
  return impl_->taken_bytes();
}

const std::string& ReplicaLane::over() const {
  return impl_->over();
}

}  // namespace rkv::server
