#include "server/group/copy/engine_copy_sender.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "server/group/copy/copy_digest.h"
#include "server/group/copy/copy_directory.h"
#include "server/group/rules/encoding.h"
#include "server/persistence/files.h"

namespace rkv::server {

namespace {

namespace fs = std::filesystem;

struct File {
  std::string name;
  std::uint64_t bytes = 0;
};

// A request and its progress. Members without a mutex belong to the thread of the io_context.
struct Job {
  std::shared_ptr<ReplicaConnection> connection;
  std::string replica;
  std::uint64_t queued = 0;  // bytes of messages that were given to the connection
  std::uint64_t total = 0;
  std::uint64_t moved = 0;  // `sent` at the last look
  std::chrono::steady_clock::time_point moved_at;
  bool has_begun = false;
  bool is_read = false;  // all of it was given to the connection

  Mutex mutex;
  ConditionVariable changed;
  bool is_over RKV_GUARDED_BY(mutex) = false;
  std::uint64_t read RKV_GUARDED_BY(mutex) = 0;  // bytes of messages made by the thread
  std::uint64_t sent RKV_GUARDED_BY(mutex) = 0;  // of these, taken from the connection
};

std::unexpected<std::string> cannot_read(const std::string& path, int error) {
  return std::unexpected(fmt::format("cannot read {}: {}", path, std::strerror(error)));
}

}  // namespace

class EngineCopySender::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, std::string directory, Checkpoint checkpoint, Done done,
       std::chrono::milliseconds silence)
      : io_(io),
        target_(std::move(directory) + kSendingCopy),
        checkpoint_(std::move(checkpoint)),
        done_(std::move(done)),
        silence_(silence),
        timer_(io) {}

  void start() {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "rkv-copy-out");
      work();
    });
    look_later();
  }
  void stop() {
    done_ = nullptr;
    timer_.cancel();
    end_all("this replica ends");
    {
      const MutexLock lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void send(std::shared_ptr<ReplicaConnection> connection, const CopyRequest& request) {
    auto job = std::make_shared<Job>();
    job->connection = std::move(connection);
    job->replica = request.replica.name;
    job->moved_at = std::chrono::steady_clock::now();
    jobs_.push_back(job);
    // The handlers do not hold the job: it holds the connection, which holds them.
    const std::weak_ptr<Job> weak = job;
    job->connection->hand_over(
        {.on_message =
             [self = weak_from_this(), weak](auto) {
               on_job(self, weak, [](Impl& impl, const auto& which) {
                 impl.end(which, "it sent a message behind its request");
               });
             },
         .on_end =
             [self = weak_from_this(), weak](const std::string& why) {
               on_job(self, weak, [&](Impl& impl, const auto& which) { impl.end(which, why); });
             },
         .on_sent =
             [self = weak_from_this(), weak] {
               on_job(self, weak, [](Impl& impl, const auto& which) { impl.count_sent(which); });
             }});
    give(job, encode(CopyWait{}));
    begin_next();
  }
  void end_all(const std::string& why) {
    while (!jobs_.empty())
      end(std::shared_ptr<Job>(jobs_.front()), why);
  }
  bool sends_to(const std::string& replica) const {
    return std::ranges::any_of(jobs_, [&](const auto& job) { return job->replica == replica; });
  }
  Progress progress() const {
    Progress progress;
    if (jobs_.empty()) return progress;
    Job& job = *jobs_.front();
    progress.replica = job.replica;
    progress.total_bytes = job.total;
    progress.waiting = jobs_.size() - 1;
    const MutexLock lock(job.mutex);
    progress.bytes = std::min(job.sent, job.total);
    return progress;
  }

 private:
  using JobPointer = std::shared_ptr<Job>;

  // ---- the thread of the io_context ----

  template <class Then>
  static void on_job(const std::weak_ptr<Impl>& self, const std::weak_ptr<Job>& weak, Then then) {
    const auto impl = self.lock();
    const auto job = weak.lock();
    if (impl && job) then(*impl, job);
  }
  void give(const JobPointer& job, std::vector<std::byte> message) {
    job->queued += message.size();
    job->connection->send(std::make_shared<const std::vector<std::byte>>(std::move(message)));
  }
  void count_sent(const JobPointer& job) {
    const std::uint64_t sent = job->queued - job->connection->queued_bytes();
    {
      const MutexLock lock(job->mutex);
      job->sent = sent;
    }
    job->changed.notify_all();
    if (job->is_read && job->connection->queued_bytes() == 0) end(job, {});
  }
  // Gives the first request to the thread, if it has none.
  void begin_next() {
    if (jobs_.empty() || jobs_.front()->has_begun) return;
    jobs_.front()->has_begun = true;
    jobs_.front()->moved_at = std::chrono::steady_clock::now();
    {
      const MutexLock lock(mutex_);
      next_ = jobs_.front();
    }
    changed_.notify_all();
  }
  // Ends a request. `why` is empty if everything was sent.
  void end(JobPointer job, const std::string& why) {
    const auto at = std::find(jobs_.begin(), jobs_.end(), job);
    if (at == jobs_.end()) return;
    jobs_.erase(at);
    {
      const MutexLock lock(job->mutex);
      job->is_over = true;
    }
    job->changed.notify_all();
    job->connection->close();  // the kernel still sends the bytes it has
    job->connection.reset();
    begin_next();
    const Done done = done_;
    if (done) done(job->replica, why);
  }
  void look_later() {
    timer_.expires_after(std::min<std::chrono::milliseconds>(kWaitInterval, silence_ / 4));
    timer_.async_wait([self = weak_from_this()](const asio::error_code& canceled) {
      const auto impl = self.lock();
      if (canceled || !impl || !impl->done_) return;
      impl->look();
      impl->look_later();
    });
  }
  // Sends CopyWait to receivers whose copy has not begun, and gives up receivers that take nothing.
  void look() {
    const auto now = std::chrono::steady_clock::now();
    const std::vector<JobPointer> all(jobs_.begin(), jobs_.end());
    for (const JobPointer& job : all) {
      if (job->connection == nullptr) continue;
      if (job->total == 0) give(job, encode(CopyWait{}));
      const std::uint64_t moved = job->queued - job->connection->queued_bytes();
      if (std::exchange(job->moved, moved) != moved || job->connection->queued_bytes() == 0) {
        job->moved_at = now;
      } else if (now - job->moved_at >= silence_) {
        end(job, fmt::format("{} took nothing of the copy for too long", job->connection->peer()));
      }
    }
  }

  // ---- the thread that reads ----

  void work() {
    for (;;) {
      JobPointer job;
      {
        const MutexLock lock(mutex_);
        while (!is_stopping_ && next_ == nullptr)
          changed_.wait(mutex_);
        if (is_stopping_) return;
        job = std::exchange(next_, nullptr);
      }
      const auto sent = copy(job);
      std::error_code ignored;
      fs::remove_all(target_, ignored);
      asio::post(io_, [self = weak_from_this(), job, sent] {
        const auto impl = self.lock();
        if (!impl || !job->connection) return;
        if (!sent) return impl->end(job, sent.error());
        job->is_read = true;
        impl->count_sent(job);
      });
    }
  }
  std::expected<void, std::string> copy(const JobPointer& job) {
    {
      const MutexLock lock(job->mutex);
      if (job->is_over) return {};
    }
    std::error_code error;
    fs::remove_all(target_, error);  // left by an earlier process
    if (const Status made = checkpoint_(target_); !made) {
      return std::unexpected(
          fmt::format("no copy of the database can be made: {}", to_string(made.error())));
    }
    std::vector<File> files;
    CopyBegin begin;
    for (fs::directory_iterator at(target_, error), end; !error && at != end; at.increment(error)) {
      File file{.name = at->path().filename(), .bytes = at->file_size(error)};
      if (error) break;
      if (!is_database_file(file.name)) {
        return std::unexpected(
            fmt::format("the database has a file {}, which this version does not know", file.name));
      }
      begin.bytes += file.bytes;
      files.push_back(std::move(file));
    }
    if (error) return cannot_read(target_, error.value());
    begin.files = files.size();
    asio::post(io_, [job, bytes = begin.bytes] { job->total = bytes; });
    CopyDigest digest;
    bool goes_on = hand_on(job, encode(begin));
    for (const File& file : files) {
      if (!goes_on) break;
      auto sent = copy_file(job, file, digest);
      if (!sent) return std::unexpected(std::move(sent.error()));
      goes_on = *sent;
    }
    if (goes_on) {
      (void)hand_on(
          job,
          encode(CopyEnd{.files = begin.files, .bytes = begin.bytes, .digest = digest.digest()}));
    }
    return {};
  }
  // Returns false if the request is over.
  std::expected<bool, std::string> copy_file(const JobPointer& job, const File& file,
                                             CopyDigest& digest) {
    const std::string path = fmt::format("{}/{}", target_, file.name);
    const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (descriptor.get() < 0) return cannot_read(path, errno);
    digest.file(file.name, file.bytes);
    if (!hand_on(job, encode(CopyFile{.name = file.name, .bytes = file.bytes}))) return false;
    for (std::uint64_t left = file.bytes; left != 0;) {
      CopyPiece piece;
      piece.bytes.resize(std::min<std::uint64_t>(left, kMaxPieceBytes));
      const ssize_t got = read(descriptor.get(), piece.bytes.data(), piece.bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return cannot_read(path, errno);
      if (got == 0) return std::unexpected(fmt::format("{} became shorter", path));
      piece.bytes.resize(static_cast<std::size_t>(got));
      left -= piece.bytes.size();
      digest.piece(piece.bytes);
      if (!hand_on(job, encode(piece))) return false;
    }
    return true;
  }
  // Waits until the connection has taken enough. Returns false if the request is over.
  bool hand_on(const JobPointer& job, std::vector<std::byte> message) {
    {
      const MutexLock lock(job->mutex);
      while (!job->is_over && job->read > job->sent + kWindowBytes)
        job->changed.wait(job->mutex);
      if (job->is_over) return false;
      job->read += message.size();
    }
    asio::post(io_, [self = weak_from_this(), job, message = std::move(message)]() mutable {
      const auto impl = self.lock();
      if (impl && job->connection) impl->give(job, std::move(message));
    });
    return true;
  }

  asio::io_context& io_;
  const std::string target_;
  const Checkpoint checkpoint_;
  Done done_;
  const std::chrono::milliseconds silence_;
  asio::steady_timer timer_;
  std::list<JobPointer> jobs_;  // the first one is under way

  Mutex mutex_;
  ConditionVariable changed_;
  bool is_stopping_ RKV_GUARDED_BY(mutex_) = false;
  JobPointer next_ RKV_GUARDED_BY(mutex_);
  std::thread thread_;
};

EngineCopySender::EngineCopySender(asio::io_context& io, std::string directory,
                                   Checkpoint checkpoint, Done done,
                                   std::chrono::milliseconds silence)
    : impl_(std::make_shared<Impl>(io, std::move(directory), std::move(checkpoint), std::move(done),
                                   silence)) {
  impl_->start();
}

EngineCopySender::~EngineCopySender() {
  impl_->stop();
}

void EngineCopySender::send(std::shared_ptr<ReplicaConnection> connection,
                            const CopyRequest& request) {
  impl_->send(std::move(connection), request);
}

void EngineCopySender::end_all(const std::string& why) {
  impl_->end_all(why);
}

bool EngineCopySender::sends_to(const std::string& replica) const {
  return impl_->sends_to(replica);
}

EngineCopySender::Progress EngineCopySender::progress() const {
  return impl_->progress();
}

}  // namespace rkv::server
