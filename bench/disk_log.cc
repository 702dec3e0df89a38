#include "bench/disk_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "server/persistence/database.h"

namespace rkv::bench {

namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kFileBytes = std::size_t{64} << 20;

[[noreturn]] void failed(const char* what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    if (fd_ < 0) failed("open");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void write(const std::vector<char>& bytes, std::uint64_t at) const {
    if (::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)) !=
        static_cast<ssize_t>(bytes.size()))
      failed("pwrite");
  }
  void sync() const {
    if (::fdatasync(fd_) != 0) failed("fdatasync");
  }

 private:
  const int fd_;
};

void make_zeroed(const std::string& path) {
  const File file(path, O_CREAT | O_RDWR);
  const std::vector<char> zeros(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < kFileBytes; at += zeros.size())
    file.write(zeros, at);
  file.sync();
}

// How often the device of a directory was flushed so far, by anyone.
std::uint64_t flushes_at(const std::string& directory) {
  struct stat status{};
  if (::stat(directory.c_str(), &status) != 0) failed("stat");
  std::string device =
      fmt::format("/sys/dev/block/{}:{}/", major(status.st_dev), minor(status.st_dev));
  if (std::filesystem::exists(device + "partition")) device += "../";
  std::ifstream file(device + "stat");
  std::vector<std::uint64_t> fields;
  for (std::uint64_t field = 0; file >> field;)
    fields.push_back(field);
  // Documentation/block/stat.rst: the sixteenth is "flush I/Os", from Linux 5.5 on.
  if (fields.size() < 16)
    throw std::runtime_error("the kernel does not count flushes of this file system's device");
  return fields[15];
}

// Takes a group of records to the disk. `which`: the number of the calling thread.
using Commit = std::function<void(unsigned which, std::size_t records)>;

class OwnLog {
 public:
  OwnLog(const std::string& path, bool grows, std::size_t record_bytes, unsigned under_way)
      : grows_(grows), record_bytes_(record_bytes) {
    if (!grows) make_zeroed(path);
    for (unsigned i = 0; i < under_way; ++i)
      files_.push_back(std::make_unique<File>(path, O_CREAT | O_WRONLY));
  }
  void commit(unsigned which, std::size_t records) {
    const std::size_t bytes = round_up(64 + records * record_bytes_, kBlock);
    std::uint64_t at = next_.fetch_add(bytes);
    if (!grows_) at %= kFileBytes - (kFileBytes >> 4);
    const std::vector<char> block(bytes, static_cast<char>('a' + at / kBlock % 26));
    files_[which]->write(block, at / kBlock * kBlock);
    files_[which]->sync();
  }

 private:
  const bool grows_;
  const std::size_t record_bytes_;
  std::atomic<std::uint64_t> next_{0};
  std::vector<std::unique_ptr<File>> files_;
};

class RocksLog {
 public:
  RocksLog(const std::string& path, std::size_t record_bytes) : value_(record_bytes, 'v') {
    rocksdb::Options options = server::database::options();
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    if (const auto opened = rocksdb::DB::Open(options, path, &db); !opened.ok())
      throw std::runtime_error(opened.ToString());
    db_.reset(db);
  }
  void commit(std::size_t records) {
    rocksdb::WriteBatch batch;
    for (std::size_t i = 0; i < records; ++i)
      (void)batch.Put(key_of(++key_), value_);
    rocksdb::WriteOptions synced;
    synced.sync = true;
    if (const auto wrote = db_->Write(synced, &batch); !wrote.ok())
      throw std::runtime_error(wrote.ToString());
  }

 private:
  const std::string value_;
  std::uint64_t key_ = 0;
  std::unique_ptr<rocksdb::DB> db_;
};

// Writers that wait for log threads. Each writer has a word of its own to sleep on.
class Group {
 public:
  Group(const Arguments& given, Commit commit)
      : gather_us_(given["gather-us"]), commit_(std::move(commit)) {
    for (std::uint64_t i = 0; i < given["writers"]; ++i)
      writers_.push_back(std::make_unique<Writer>());
    for (std::uint64_t i = 0; i < given["under-way"]; ++i)
      threads_.emplace_back([this, i] { keep_log(static_cast<unsigned>(i)); });
  }
  ~Group() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    work_.notify_all();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // All writers write one record after the other until the time is over.
  void write_for(std::chrono::milliseconds time, Histogram& nanoseconds) {
    const auto end = Clock::now() + time;
    std::vector<Histogram> each(writers_.size());
    {
      std::vector<std::jthread> clients;
      for (std::size_t i = 0; i < writers_.size(); ++i) {
        clients.emplace_back([&, i] {
          while (Clock::now() < end)
            timed(each[i], [&] { return write(*writers_[i]); });
        });
      }
    }
    for (const Histogram& one : each)
      nanoseconds.merge(one);
  }
  std::uint64_t groups() const { return groups_; }

 private:
  struct Writer {
    std::atomic<std::uint32_t> is_done{0};
  };

  bool write(Writer& writer) {
    writer.is_done = 0;
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&writer);
    }
    work_.notify_one();
    writer.is_done.wait(0);
    return true;
  }

  void keep_log(unsigned which) {
    std::vector<Writer*> group;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [this] { return over_ || !waiting_.empty(); });
        if (over_) return;
        if (gather_us_ > 1) {
          lock.unlock();
          std::this_thread::sleep_for(std::chrono::microseconds(gather_us_));
          lock.lock();
        }
        group.swap(waiting_);
      }
      if (group.empty()) continue;  // another log thread has taken them
      commit_(which, group.size());
      ++groups_;
      for (Writer* const writer : group) {
        writer->is_done = 1;
        writer->is_done.notify_one();
      }
      group.clear();
    }
  }

  const std::uint64_t gather_us_;
  const Commit commit_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Writer*> waiting_;
  bool over_ = false;
  std::atomic<std::uint64_t> groups_{0};
  std::vector<std::unique_ptr<Writer>> writers_;
  std::vector<std::jthread> threads_;  // last: they use the others
};

double median_us(const Histogram& nanoseconds) {
  return static_cast<double>(nanoseconds.percentile(50)) / 1e3;
}

}  // namespace

json log_groups(const Arguments& given) {
  const std::string directory = given.text("directory");
  const std::string& way = given.text("way");
  const std::size_t bytes = given["value-bytes"];
  if (way != "rocksdb" && way != "growing" && way != "zeroed")
    throw Misuse("--way is rocksdb, growing or zeroed");
  if (way == "rocksdb" && given["under-way"] != 1)
    throw Misuse("--way rocksdb has one sync under way");
  std::unique_ptr<RocksLog> rocks;
  std::unique_ptr<OwnLog> own;
  if (way == "rocksdb") {
    rocks = std::make_unique<RocksLog>(directory + "/rocksdb", bytes);
  } else {
    own = std::make_unique<OwnLog>(directory + "/log", way == "growing", bytes,
                                   static_cast<unsigned>(given["under-way"]));
  }
  OwnLog alone(directory + "/alone", false, bytes, 1);
  Group group(given, [&](unsigned which, std::size_t records) {
    rocks ? rocks->commit(records) : own->commit(which, records);
  });
  const std::chrono::milliseconds slice(given["slice-ms"]);
  Histogram puts;
  Histogram syncs;
  std::uint64_t flushes = 0;
  double seconds = 0;
  for (std::uint64_t i = 0; i < given["slices"]; ++i) {
    const std::uint64_t before = flushes_at(directory);
    const auto begin = Clock::now();
    group.write_for(slice, puts);
    seconds += seconds_since(begin);
    flushes += flushes_at(directory) - before;
    for (const auto end = Clock::now() + slice / 4; Clock::now() < end;)
      timed(syncs, [&] { return alone.commit(0, given["writers"]), true; });
  }
  const double group_us =
      seconds * 1e6 * static_cast<double>(given["writers"]) / static_cast<double>(puts.count());
  return {{"put_p50_us", median_us(puts)},
          {"put_p99_us", static_cast<double>(puts.percentile(99)) / 1e3},
          {"fdatasync_p50_us", median_us(syncs)},
          {"group_us", group_us},
          {"puts", puts.count()},
          {"groups", group.groups()},
          {"flushes_per_sync", static_cast<double>(flushes) / static_cast<double>(group.groups())}};
}

}  // namespace rkv::bench
