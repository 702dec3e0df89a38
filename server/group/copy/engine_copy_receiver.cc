#include "server/group/copy/engine_copy_receiver.h"

#include <fmt/format.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <thread>
#include <utility>

#include "server/group/connection/replica_connection.h"
#include "server/group/connection/replica_connector.h"
#include "server/group/copy/copy_writer.h"
#include "server/group/rules/encoding.h"

namespace rkv::server {

class EngineCopyReceiver::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, std::string directory, Done done, std::chrono::milliseconds silence)
      : callers_(io),
        directory_(std::move(directory)),
        silence_(silence),
        done_(std::move(done)),
        timer_(own_) {}

  void start(const std::string& address, const GroupSecret& secret, CopyRequest request) {
    thread_ = std::thread([this, address, secret, request = std::move(request)] {
      pthread_setname_np(pthread_self(), "rkv-copy-in");
      receive(address, secret, request);
    });
  }
  void stop() {
    done_ = nullptr;
    own_.stop();
    thread_.join();
  }
  Progress progress() const { return {.bytes = bytes_.load(), .total_bytes = total_.load()}; }

 private:
  // All functions below run on the receiver's own thread.
  void receive(const std::string& address, const GroupSecret& secret, const CopyRequest& request) {
    std::string problem;
    bool is_whole = false;
    {
      CopyWriter writer(directory_);
      if (const Status started = writer.start(&problem); !started) return report(problem);
      const auto end = [&](std::string why) {
        problem = std::move(why);
        own_.stop();
      };
      std::unique_ptr<ReplicaConnection> connection;
      const auto on_message = [&](const std::vector<std::byte>& bytes) {
        if (own_.stopped()) return;  // the message came together with the end
        const auto message = decode_replication(bytes);
        if (!message) return end(fmt::format("{}: {}", address, message.error().text));
        const auto taken = writer.take(*message, &problem);
        bytes_ = writer.bytes();
        total_ = writer.total_bytes();
        is_whole = taken && *taken;
        if (!taken || is_whole) return own_.stop();
        wait_at_most(end, address);
      };
      const auto on_connected = [&](ReplicaConnector::Outcome outcome) {
        if (!outcome) return end(std::move(outcome.error().why));
        connection = std::move(*outcome);
        connection->start({.on_message = on_message, .on_end = end});
        connection->send(std::make_shared<const std::vector<std::byte>>(encode(request)));
      };
      const auto connector =
          ReplicaConnector::connect(own_, address, secret, silence_, on_connected);
      wait_at_most(end, address);
      own_.run();
    }
    report(is_whole ? std::string() : problem);
  }
  template <class End>
  void wait_at_most(const End& end, const std::string& address) {
    timer_.expires_after(silence_);
    timer_.async_wait([end, address](const asio::error_code& canceled) {
      if (!canceled) end(fmt::format("{} sent nothing of the copy in time", address));
    });
  }
  void report(std::string problem) {
    asio::post(callers_, [self = shared_from_this(), problem = std::move(problem)] {
      if (const Done done = std::exchange(self->done_, nullptr)) done(problem);
    });
  }

  asio::io_context& callers_;
  const std::string directory_;
  const std::chrono::milliseconds silence_;
  Done done_;  // of the thread of callers_
  asio::io_context own_{1};
  asio::steady_timer timer_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> total_{0};
  std::thread thread_;
};

EngineCopyReceiver::EngineCopyReceiver(asio::io_context& io, std::string directory,
                                       const std::string& address, const GroupSecret& secret,
                                       CopyRequest request, Done done,
                                       std::chrono::milliseconds silence)
    : impl_(std::make_shared<Impl>(io, std::move(directory), std::move(done), silence)) {
  impl_->start(address, secret, std::move(request));
}

EngineCopyReceiver::~EngineCopyReceiver() {
  impl_->stop();
}

EngineCopyReceiver::Progress EngineCopyReceiver::progress() const {
  return impl_->progress();
}

}  // namespace rkv::server
