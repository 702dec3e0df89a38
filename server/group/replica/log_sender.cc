#include "server/group/replica/log_sender.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/thread.h"
#include "server/group/replica/entry_block.h"

namespace rkv::server {

namespace {

// A block ends with the entry that reaches this size. Larger blocks save little, and delay their
// first entries.
constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxGivenBytes = std::size_t{4} << 20;
constexpr int kLookMs = 100;

}  // namespace

LogSender::LogSender(CommitLog& log, std::uint32_t term, Give give)
    : log_(log), reader_(log), term_(term), give_(std::move(give)) {}

LogSender::~LogSender() {
  stop();
}

void LogSender::start() {
  thread_ = std::thread([this] { run(); });
}

// After stop() the log may be destroyed.
void LogSender::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  room_made_.notify_all();
  reader_.interrupt();
  thread_.join();
}

void LogSender::run() {
  name_thread("rkv-log-sender");
  for (;;) {
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && given_bytes_ > kMaxGivenBytes)
        room_made_.wait(mutex_);
      if (stopping_) return;
    }
    Block block;
    if (!make_block(block)) {
      reader_.wait_for_entries(kLookMs);
      continue;
    }
    {
      const MutexLock lock(mutex_);
      given_bytes_ += block.bytes->size();
    }
    give_(block);
  }
}

// Returns false if no entry is ready.
bool LogSender::make_block(Block& block) {
  std::vector<std::byte> bytes;
  CommitLog::Entry entry;
  while (bytes.size() < kBlockBytes && reader_.next(&entry)) {
    append_entry(bytes, entry);
    block.last = {.term = term_, .version = entry.record.version.bits};
  }
  if (bytes.empty()) return false;
  block.sequence = reader_.position();
  block.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return true;
}

void LogSender::taken(const Block& block) {
  ends_.push_back({.version = block.last.version, .sequence = block.sequence});
  {
    const MutexLock lock(mutex_);
    given_bytes_ -= block.bytes->size();
  }
  room_made_.notify_one();
}

void LogSender::forget(std::uint64_t version) {
  while (ends_.size() > 1 && ends_[1].version <= version)
    ends_.pop_front();
}

// Between the ends of two blocks, the sequence follows from the version itself.
std::uint64_t LogSender::sequence_of(std::uint64_t version) {
  const Version at{version};
  const std::uint64_t sequence = at.is_since(term_) ? at.sequence_since(term_) : 0;
  const auto behind = std::ranges::upper_bound(ends_, version, {}, &End::version);
  return behind == ends_.begin() ? sequence : std::max(sequence, std::prev(behind)->sequence);
}

}  // namespace rkv::server
