#include "server/group/connection/replica_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <deque>
#include <utility>

#include "common/check.h"
#include "server/group/connection/message_assembler.h"
#include "server/group/connection/replica_tls.h"
#include "server/group/lane/replica_lane.h"
#include "server/group/rules/encoding.h"

namespace rkv::server {

namespace {
// Small messages are written together: in fewer packets, by fewer system calls.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;
constexpr std::size_t kBatchMessages = 64;
// The longest record of TLS: a read returns one at most.
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
}  // namespace

class ReplicaConnection::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(std::unique_ptr<EncryptedStream> stream) : stream_(std::move(stream)) {}

  void start(Callbacks callbacks) {
    RKV_CHECK(!started_, "a connection is started once");
    started_ = true;
    callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
    if (!ended_) return read();
    tell_end_later();
  }
  void hand_over(Callbacks callbacks) {
    RKV_CHECK(started_, "a connection is started before it is handed over");
    if (has_told_) return;
    has_delivered_ = false;  // on_delivered was due to the earlier owner, not to this one
    callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
  }
  void send(std::span<const SharedBytes> messages) {
    if (ended_) return;
    for (const SharedBytes& message : messages) {
      queued_bytes_ += message->size();
      queue_.push_back(message);
    }
    write();
  }
  bool has_lane() const { return lane_ != nullptr || lane_ends_; }
  std::uint64_t received_bytes() const { return received_bytes_; }
  void use(std::unique_ptr<ReplicaLane> lane, Change change) {
    RKV_CHECK(started_, "a connection is started before it gets a lane");
    if (ended_ || has_lane()) return;
    lane_ = std::move(lane);
    // The lane is this object's, and a callback may end both.
    const std::weak_ptr<Impl> weak = weak_from_this();
    lane_->start({.on_bytes =
                      [weak](Bytes bytes) {
                        if (const auto self = weak.lock()) self->take(self->lane_message_, bytes);
                      },
                  .on_delivered =
                      [weak] {
                        if (const auto self = weak.lock()) self->tell_delivered();
                      },
                  .on_end =
                      [weak](const std::string& why) {
                        const auto self = weak.lock();
                        if (self && !self->ended_) self->on_lane_end(why);
                      },
                  .on_room =
                      [weak] {
                        const auto self = weak.lock();
                        if (self && !self->ended_) self->on_lane_room();
                      }});
    if (peer_has_switched_) lane_->receive();
    if (change == Change::kNow || peer_has_switched_) change_over();
  }
  void change_over() {
    switch_ = std::make_shared<const std::vector<std::byte>>(encode(LaneSwitch{}));
    send({&switch_, 1});
  }
  void drop_lane() {
    if (ended_ || !lane_) return;
    if (!switch_ && !peer_has_switched_) return lane_.reset();
    leave_lane();
  }
  std::size_t queued_bytes() const { return queued_bytes_; }
  void close(bool silently) {
    silent_ = silent_ || silently;
    if (ended_ && !silently) return;
    if (!ended_) end();
    tell_end_later();
  }
  const std::string& peer() const { return stream_->peer; }
  const std::string& local() const { return stream_->local; }

 private:
  // The way that queued messages take.
  enum class Way : std::uint8_t {
    kTcp,
    kLane,
    kNone,  // the lane has ended, and the other end has not said yet what it lacks
  };
  struct SentByLane {
    SharedBytes message;
    std::uint64_t end = 0;  // of the bytes that went by the lane
  };

  // ---- what comes

  // A long message is read into its final place. Short messages are read many at a time.
  void read() {
    const MutableBytes room = message_.room();
    const bool is_long = room.size() >= read_buffer_.size();
    const MutableBytes to = is_long ? room : MutableBytes(read_buffer_);
    stream_->stream.async_read_some(
        asio::buffer(to.data(), to.size()),
        [self = shared_from_this(), is_long](const asio::error_code& error, std::size_t read) {
          self->on_read(error, read, is_long);
        });
  }
  void on_read(const asio::error_code& error, std::size_t read, bool is_in_place) {
    if (ended_) return;
    if (error) {
      if (peer_has_switched_ && lane_) lane_->drain();  // it was sent before the end
      if (!ended_) fail(error, message_.is_begun());
      return;
    }
    if (is_in_place) {
      arrived(message_, read);
    } else {
      take(message_, Bytes(read_buffer_).first(read));
    }
    tell_delivered();
    if (!ended_) this->read();
  }
  // This call may end the connection.
  void arrived(MessageAssembler& assembler, std::size_t bytes) {
    received_bytes_ += bytes;
    if (const Status good = assembler.arrived(bytes); !good)
      return fail(fmt::format("{}: {}", peer(), good.error().text));
    if (assembler.is_whole()) deliver(assembler.take(), &assembler == &lane_message_);
  }
  void deliver(std::vector<std::byte> message, bool by_lane) {
    if (const auto end = lane_end_of(message)) {
      if (by_lane) return fail_of_order();
      return lane_has_ended_there(*end);
    }
    if (is_lane_switch(message)) {
      if (by_lane || std::exchange(peer_has_switched_, true)) return fail_of_order();
      if (!lane_) return;  // it comes soon, or has ended
      lane_->receive();
      if (!switch_) change_over();
      return;
    }
    if (!by_lane && peer_has_switched_) return fail_of_order();
    if (by_lane) ++got_by_lane_;
    has_delivered_ = true;
    const auto callbacks = callbacks_;  // kept alive: a callback may hand the connection over
    callbacks->on_message(std::move(message));
  }
  void take(MessageAssembler& assembler, Bytes bytes) {
    while (!bytes.empty() && !ended_) {
      const MutableBytes room = assembler.room();
      const std::size_t part = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), part);
      bytes = bytes.subspan(part);
      arrived(assembler, part);
    }
  }
  void tell_delivered() {
    if (ended_ || !std::exchange(has_delivered_, false)) return;
    const auto callbacks = callbacks_;  // as in deliver()
    if (callbacks->on_delivered) callbacks->on_delivered();
  }

  // ---- what goes

  void write() {
    if (way_ == Way::kLane) return write_by_lane();
    if (!in_flight_.empty()) return;
    std::size_t bytes = 0;
    std::vector<asio::const_buffer> buffers;
    while (bytes < kBatchBytes && in_flight_.size() < kBatchMessages && is_next_over_tcp()) {
      if (queue_.front() == switch_) way_ = Way::kLane;
      bytes += queue_.front()->size();
      buffers.emplace_back(asio::buffer(*queue_.front()));
      in_flight_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    if (in_flight_.empty()) return;
    asio::async_write(
        stream_->stream, buffers,
        [self = shared_from_this(), bytes](const asio::error_code& error, std::size_t) {
          self->in_flight_.clear();
          if (self->ended_) return;
          if (error) return self->fail(error, false);
          self->queued_bytes_ -= bytes;
          self->write();
          self->tell_sent();
        });
    // At the other end these bytes wait until the batch has been read.
    if (way_ == Way::kLane) write_by_lane();
  }
  bool is_next_over_tcp() const {
    return !queue_.empty() &&
           (way_ == Way::kTcp || (way_ == Way::kNone && queue_.front() == lane_end_));
  }
  void write_by_lane() {
    while (!queue_.empty()) {
      SharedBytes& message = queue_.front();
      const std::size_t taken = lane_->send(Bytes(*message).subspan(sent_of_first_));
      sent_of_first_ += taken;
      lane_bytes_ += taken;
      if (sent_of_first_ < message->size()) break;
      queued_bytes_ -= message->size();
      sent_of_first_ = 0;
      sent_by_lane_.push_back({.message = std::move(message), .end = lane_bytes_});
      queue_.pop_front();
    }
    lane_->flush();
    const std::uint64_t taken = lane_->taken_bytes();
    for (; !sent_by_lane_.empty() && sent_by_lane_.front().end <= taken; ++taken_by_lane_)
      sent_by_lane_.pop_front();
  }
  void on_lane_room() {
    const std::size_t before = queued_bytes_;
    if (way_ == Way::kLane) write_by_lane();
    if (queued_bytes_ < before) tell_sent();
  }
  void tell_sent() {
    const auto callbacks = callbacks_;
    if (callbacks && callbacks->on_sent) callbacks->on_sent();
  }

  // ---- the end of a lane

  void on_lane_end(const std::string& why) {
    const bool is_used = switch_ || peer_has_switched_;
    drop_lane();
    if (is_used) tell_lane_end(fmt::format("{}: {}", peer(), why));
  }
  // Sends how many messages have come by the lane. A LaneSwitch that is still queued need not be
  // sent: it is removed.
  void leave_lane() {
    lane_.reset();
    lane_message_ = {};
    lane_ends_ = true;
    lane_end_ =
        std::make_shared<const std::vector<std::byte>>(encode(LaneEnd{.messages = got_by_lane_}));
    queued_bytes_ += lane_end_->size();
    if (way_ == Way::kTcp) {
      if (switch_ && std::erase(queue_, switch_) != 0) queued_bytes_ -= switch_->size();
      queue_.push_back(lane_end_);
    } else {
      way_ = Way::kNone;
      sent_of_first_ = 0;
      queue_.push_front(lane_end_);
    }
    write();
  }
  // The messages that the other end lacks go first. Then all is as before the lane.
  void lane_has_ended_there(const LaneEnd& end) {
    const bool is_news = !lane_ends_;
    if (is_news) leave_lane();
    const std::uint64_t sent = taken_by_lane_ + sent_by_lane_.size();
    if (end.messages < taken_by_lane_ || end.messages > sent) return fail_of_order();
    const bool is_end_queued = !queue_.empty() && queue_.front() == lane_end_;
    if (is_end_queued) queue_.pop_front();
    for (; taken_by_lane_ + sent_by_lane_.size() > end.messages; sent_by_lane_.pop_back()) {
      queued_bytes_ += sent_by_lane_.back().message->size();
      queue_.push_front(std::move(sent_by_lane_.back().message));
    }
    if (is_end_queued) queue_.push_front(lane_end_);
    forget_lane();
    write();
    if (is_news) tell_lane_end(fmt::format("{} has ended its lane", peer()));
  }
  void forget_lane() {
    way_ = Way::kTcp;
    lane_ends_ = peer_has_switched_ = false;
    switch_.reset();
    sent_by_lane_.clear();
    got_by_lane_ = taken_by_lane_ = lane_bytes_ = 0;
  }
  void tell_lane_end(std::string why) {
    const auto callbacks = callbacks_;
    if (callbacks && callbacks->on_lane_end) callbacks->on_lane_end(std::move(why));
  }

  // ---- the end

  void fail(const asio::error_code& error, bool within_message) {
    const bool is_over = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
    if (is_over && !within_message) return fail(fmt::format("{} ended the connection", peer()));
    fail(fmt::format("the connection to {} ended{}: {}", peer(),
                     within_message ? " in the middle of a message" : "", error.message()));
  }
  void fail_of_order() { fail(fmt::format("{} sent what does not follow", peer())); }
  void fail(std::string why) {
    end();
    tell_end(std::move(why));
  }
  // Handlers that are under way still come, with an error, and use what is in flight.
  void end() {
    ended_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    lane_.reset();
    sent_by_lane_.clear();
    stream_->close();
  }
  void tell_end_later() {
    asio::post(stream_->stream.get_executor(), [self = shared_from_this()] {
      self->tell_end(fmt::format("this replica ended the connection to {}", self->peer()));
    });
  }
  // Releases the callbacks, which may hold an owner of this object. Not called from within a
  // callback.
  void tell_end(std::string why) {
    const auto callbacks = std::exchange(callbacks_, nullptr);
    has_told_ = has_told_ || callbacks;
    if (!silent_ && callbacks) callbacks->on_end(std::move(why));
  }

  std::unique_ptr<EncryptedStream> stream_;
  std::shared_ptr<const Callbacks> callbacks_;
  bool started_ = false;
  bool has_told_ = false;  // the end was reported
  bool ended_ = false;
  bool silent_ = false;  // no callback any more

  std::vector<std::byte> read_buffer_ = std::vector<std::byte>(kReadBytes);
  MessageAssembler message_;
  bool has_delivered_ = false;  // on_delivered is due
  std::uint64_t received_bytes_ = 0;
  bool peer_has_switched_ = false;  // the peer's messages come by the lane

  std::unique_ptr<ReplicaLane> lane_;
  MessageAssembler lane_message_;
  std::uint64_t got_by_lane_ = 0;  // messages
  SharedBytes switch_;             // the last message that goes over TCP; nullptr: none
  SharedBytes lane_end_;           // the first that goes over TCP again
  bool lane_ends_ = false;         // this end has sent its LaneEnd, the other one has not
  Way way_ = Way::kTcp;
  std::size_t sent_of_first_ = 0;        // bytes of the first queued message that went by the lane
  std::uint64_t lane_bytes_ = 0;         // sent by the lane
  std::uint64_t taken_by_lane_ = 0;      // messages that the other end has certainly received
  std::deque<SentByLane> sent_by_lane_;  // the messages behind taken_by_lane_

  std::deque<SharedBytes> queue_;
  std::vector<SharedBytes> in_flight_;
  std::size_t queued_bytes_ = 0;  // of both
};

ReplicaConnection::ReplicaConnection(std::unique_ptr<EncryptedStream> stream)
    : impl_(std::make_shared<Impl>(std::move(stream))) {}

ReplicaConnection::~ReplicaConnection() {
  impl_->close(true);
}

void ReplicaConnection::start(Callbacks callbacks) {
  impl_->start(std::move(callbacks));
}

void ReplicaConnection::hand_over(Callbacks callbacks) {
  impl_->hand_over(std::move(callbacks));
}

void ReplicaConnection::send(SharedBytes message) {
  impl_->send({&message, 1});
}

void ReplicaConnection::send(std::span<const SharedBytes> messages) {
  impl_->send(messages);
}

void ReplicaConnection::use(std::unique_ptr<ReplicaLane> lane, Change change) {
  impl_->use(std::move(lane), change);
}

void ReplicaConnection::drop_lane() {
  impl_->drop_lane();
}

std::uint64_t ReplicaConnection::received_bytes() const {
  return impl_->received_bytes();
}

bool ReplicaConnection::has_lane() const {
  return impl_->has_lane();
}

std::size_t ReplicaConnection::queued_bytes() const {
  return impl_->queued_bytes();
}

void ReplicaConnection::close() {
  impl_->close(false);
}

const std::string& ReplicaConnection::peer() const {
  return impl_->peer();
}

const std::string& ReplicaConnection::local() const {
  return impl_->local();
}

}  // namespace rkv::server
