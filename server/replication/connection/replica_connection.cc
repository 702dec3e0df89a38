#include "server/replication/connection/replica_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <deque>
#include <utility>

#include "common/check.h"
#include "server/replication/connection/replica_tls.h"
#include "server/replication/encoding.h"

namespace rkv::server {

namespace {
constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
// Small messages are written together: in fewer packets, by fewer system calls.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;
constexpr std::size_t kBatchMessages = 64;
}  // namespace

class ReplicaConnection::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(std::unique_ptr<EncryptedStream> stream) : stream_(std::move(stream)) {}

  void start(Callbacks callbacks) {
    RKV_CHECK(!started_, "a connection is started once");
    started_ = true;
    callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
    if (!ended_) return read_head();
    tell_end_later();
  }
  void hand_over(Callbacks callbacks) {
    RKV_CHECK(started_, "a connection is started before it is handed over");
    if (has_told_) return;
    callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
  }
  void send(SharedBytes message) {
    if (ended_) return;
    queued_bytes_ += message->size();
    queue_.push_back(std::move(message));
    write();
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
  void read_head() {
    asio::async_read(stream_->stream, asio::buffer(head_),
                     [self = shared_from_this()](const asio::error_code& error, std::size_t read) {
                       self->on_head(error, read);
                     });
  }
  void on_head(const asio::error_code& error, std::size_t read) {
    if (ended_) return;
    if (error) return fail(error, read != 0);
    const auto length = replication_message_bytes(head_);
    if (!length) return fail(fmt::format("{}: {}", peer(), length.error().text));
    length_ = *length;
    received_ = head_.size();
    message_.assign(head_.begin(), head_.end());
    read_body();
  }
  void read_body() {
    if (received_ == length_) return deliver();
    message_.resize(std::min(length_, std::max(kFirstBytes, received_ * 2)));
    asio::async_read(stream_->stream, asio::buffer(message_) + received_,
                     [self = shared_from_this()](const asio::error_code& error, std::size_t read) {
                       if (self->ended_) return;
                       if (error) return self->fail(error, true);
                       self->received_ += read;
                       self->read_body();
                     });
  }
  void deliver() {
    const auto callbacks = callbacks_;  // held: it may hand the connection over
    callbacks->on_message(std::exchange(message_, {}));
    if (!ended_) read_head();
  }

  void write() {
    if (!in_flight_.empty() || queue_.empty()) return;
    std::size_t bytes = 0;
    std::vector<asio::const_buffer> buffers;
    while (!queue_.empty() && bytes < kBatchBytes && in_flight_.size() < kBatchMessages) {
      bytes += queue_.front()->size();
      buffers.emplace_back(asio::buffer(*queue_.front()));
      in_flight_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    asio::async_write(
        stream_->stream, buffers,
        [self = shared_from_this(), bytes](const asio::error_code& error, std::size_t) {
          self->in_flight_.clear();
          if (self->ended_) return;
          if (error) return self->fail(error, false);
          self->queued_bytes_ -= bytes;
          self->write();
          const auto callbacks = self->callbacks_;
          if (callbacks && callbacks->on_sent) callbacks->on_sent();
        });
  }

  void fail(const asio::error_code& error, bool within_message) {
    const bool is_over = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
    if (is_over && !within_message) return fail(fmt::format("{} ended the connection", peer()));
    fail(fmt::format("the connection to {} ended{}: {}", peer(),
                     within_message ? " in the middle of a message" : "", error.message()));
  }
  void fail(std::string why) {
    end();
    tell_end(std::move(why));
  }
  // Handlers that are under way still come, with an error, and use what is in flight.
  void end() {
    ended_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    stream_->close();
  }
  void tell_end_later() {
    asio::post(stream_->stream.get_executor(), [self = shared_from_this()] {
      self->tell_end(fmt::format("this replica ended the connection to {}", self->peer()));
    });
  }
  // The callbacks go: they may hold what holds this. Not from within one of them.
  void tell_end(std::string why) {
    const auto callbacks = std::exchange(callbacks_, nullptr);
    has_told_ = has_told_ || callbacks;
    if (!silent_ && callbacks) callbacks->on_end(std::move(why));
  }

  std::unique_ptr<EncryptedStream> stream_;
  std::shared_ptr<const Callbacks> callbacks_;
  bool started_ = false;
  bool has_told_ = false;  // of the end
  bool ended_ = false;
  bool silent_ = false;  // no callback any more

  std::array<std::byte, kReplicationHeadBytes> head_{};
  std::vector<std::byte> message_;
  std::size_t length_ = 0;    // of the message
  std::size_t received_ = 0;  // of it

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
  impl_->send(std::move(message));
}

void ReplicaConnection::send(std::span<const SharedBytes> messages) {
  for (const SharedBytes& message : messages)
    impl_->send(message);
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
