// After SIGKILL at any moment a prefix of the commit order is left, and holds everything that the
// marks had promised.
//
// The writer is this program again, as a child of its own (exec, not only fork: RocksDB's threads
// do not survive a fork).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <thread>

#include "server/persistence/applier.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::TempDir;

// Operation number i of the one writer; the whole history follows from i.
struct Step {
  std::string key;
  bool remove;
  std::string value;
};
Step step_number(std::uint64_t i) {
  const std::uint64_t r = mix64(i);
  return {.key = "key-" + std::to_string(r % 61),
          .remove = (r >> 8) % 5 == 0,
          .value = std::to_string(i) + std::string((r >> 16) % 700, 'v')};
}

struct Progress {                  // in a file both processes map
  std::atomic<std::uint64_t> wal;  // operations covered by the marks
  std::atomic<std::uint64_t> sync;
};

class SharedProgress {
 public:
  explicit SharedProgress(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(ftruncate(fd, sizeof(Progress)), 0);
    at_ = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(at_, MAP_FAILED);
    close(fd);
  }
  ~SharedProgress() { munmap(at_, sizeof(Progress)); }
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;
  Progress* operator->() const { return static_cast<Progress*>(at_); }

 private:
  void* at_;
};

// The child: writes until it is killed.
TEST(CrashChild, DISABLED_Run) {
  const char* const dir = std::getenv("RKV_CRASH_DIR");
  if (dir == nullptr) GTEST_SKIP() << "started by Crash.* only";
  const SharedProgress progress(std::string(dir) + "/progress");
  auto engine = StorageEngine::open(dir);
  ASSERT_TRUE(engine);
  ASSERT_TRUE((*engine)->claim_boot());
  auto log = CommitLog::create(CommitLog::kMinCapacityBytes);
  ASSERT_TRUE(log);
  const SteadyClock clock;
  // Which operation ended at which sequence: the newest one at or below a mark is covered.
  std::atomic<std::uint64_t> ends[65536];
  std::atomic<std::uint64_t> begun{0};
  std::uint64_t wal = 0;
  std::uint64_t sync = 0;
  const auto covered = [&](std::uint64_t from, std::uint64_t mark) {
    while (from < begun.load() && ends[from % 65536].load() <= mark)
      ++from;
    return from;
  };
  Applier applier(**log, **engine, clock, {}, [&] {
    progress->wal.store(wal = covered(wal, (*log)->wal_mark()));
    progress->sync.store(sync = covered(sync, (*log)->sync_mark()));
  });
  applier.start();
  for (std::uint64_t i = 0;; ++i) {
    const Step step = step_number(i);
    auto room = (*log)->try_reserve(step.key.size(), step.value.size());
    for (; !room; room = (*log)->try_reserve(step.key.size(), step.value.size()))
      std::this_thread::yield();
    const auto ticket = (*log)->begin(*room);
    ends[i % 65536].store(ticket.sequence);
    begun.store(i + 1);
    (*log)->finish(ticket, step.remove ? CommitLog::Kind::kRemove : CommitLog::Kind::kPut,
                   {.version = Version::of(1, ticket.sequence),
                    .expiry_ms = i,
                    .key = as_bytes(step.key),
                    .value = step.remove ? Bytes{} : as_bytes(step.value)});
    if (i % 1000 == 0) applier.request_sync(ticket.sequence);
  }
}

class Writer {
 public:
  explicit Writer(const std::string& dir) {
    const std::string variable = "RKV_CRASH_DIR=" + dir;
    pid_ = fork();
    if (pid_ != 0) return;
    const int null = open("/dev/null", O_WRONLY);
    if (null < 0) _exit(126);
    dup2(null, 1);
    char program[] = "/proc/self/exe";
    char filter[] = "--gtest_filter=CrashChild.*";
    char disabled[] = "--gtest_also_run_disabled_tests";
    char* const argv[] = {program, filter, disabled, nullptr};
    char* const envp[] = {const_cast<char*>(variable.c_str()), nullptr};
    execve(program, argv, envp);
    _exit(127);
  }
  ~Writer() { kill_now(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void freeze() const {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  void thaw() const { kill(pid_, SIGCONT); }

 private:
  pid_t pid_ = -1;
};

using Contents = std::map<std::string, std::string>;

Contents read_all(const std::string& dir) {
  Contents found;
  const auto engine = StorageEngine::open(dir);
  EXPECT_TRUE(engine) << to_string(engine.error());
  if (!engine) return found;
  EXPECT_TRUE((*engine)->read_from({}, [&](const RecordFields& record) {
    found.emplace(as_text(record.key), as_text(record.value));
    return true;
  }));
  return found;
}

// How many operations make exactly these contents, at least `least`; nothing when none do.
std::optional<std::uint64_t> prefix_length(const Contents& found, std::uint64_t least) {
  std::uint64_t newest = 0;
  for (const auto& [key, value] : found)
    newest = std::max<std::uint64_t>(newest, std::stoull(value) + 1);
  Contents model;
  // Behind the newest put only removals can follow; 1000 of them in a row do not happen.
  for (std::uint64_t i = 0; i < newest + 1000; ++i) {
    if (i >= std::max(newest, least) && model == found) return i;
    const Step step = step_number(i);
    model[step.key] = step.value;
    if (step.remove) model.erase(step.key);
  }
  return std::nullopt;
}

void run_for(Random& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(120'000)));
}

TEST(Crash, AKilledWriterLeavesAPrefix) {
  Random random(test::test_seed());
  for (int round = 0; round < 12; ++round) {
    const TempDir dir;
    const SharedProgress progress(dir.file("progress"));
    Writer writer(dir.path());
    while (progress->wal.load() == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    run_for(random);
    writer.kill_now();
    const Contents found = read_all(dir.path());
    const auto length = prefix_length(found, progress->wal.load());
    ASSERT_TRUE(length) << "not a prefix that holds the first " << progress->wal.load();
  }
}

void copy_of(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

std::string newest_log(const std::string& dir) {
  std::string newest;
  for (const auto& file : std::filesystem::directory_iterator(dir + "/db")) {
    if (file.path().extension() == ".log") newest = std::max(newest, file.path().string());
  }
  return newest;
}

// The machine dies: of the newest log only the synced beginning is sure. How much of the rest has
// reached the disk is for chance to say.
TEST(Crash, ALostTailOfTheLogLeavesAPrefixToo) {
  Random random(test::test_seed());
  const TempDir dir;
  const SharedProgress progress(dir.file("progress"));
  Writer writer(dir.path());
  while (progress->wal.load() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int round = 0; round < 6; ++round) {
    run_for(random);
    writer.freeze();
    const TempDir copies;
    copy_of(dir.path(), copies.file("all"));
    copy_of(dir.path(), copies.file("cut"));
    const std::uint64_t wal = progress->wal.load();
    ASSERT_TRUE(prefix_length(read_all(copies.file("all")), wal));
    const std::string log = newest_log(copies.file("cut"));
    ASSERT_FALSE(log.empty());
    const auto size = std::filesystem::file_size(log);
    std::filesystem::resize_file(log, size - random.below(size / 4 + 1));
    ASSERT_TRUE(prefix_length(read_all(copies.file("cut")), 0)) << "of the cut log " << log;
    writer.thaw();  // only now: what it writes the next round must go through
  }
}

}  // namespace
}  // namespace rkv::server
