// Pages of scans: SCANS-1 to SCANS-5 of scans.h, and the worker that does not wait for them.
#include "server/background/scans.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <latch>
#include <map>

#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A map for a database, a log whose marks are moved by hand.
class ScansTest : public WorkerTest {
 protected:
  ScansTest() {
    worker_.reset();
    Worker::Parts parts = parts_of_worker();
    parts.scans = &scans_;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
    scans_.start();
  }
  ~ScansTest() override { scans_.stop(); }

  static std::vector<std::byte> bytes_of(const ScanQuery& query) {
    std::vector<std::byte> bytes(kMaxScanQueryBytes);
    bytes.resize(encode(query, bytes));
    return bytes;
  }
  void add(const std::string& key, const std::string& value, std::uint64_t expiry_ms = 0) {
    records_[key] = {value, expiry_ms};
  }
  std::shared_ptr<const ScanTask> asked(const ScanQuery& query = {}) {
    auto page = scans_.ask(bytes_of(query), log_->last_begun());
    EXPECT_TRUE(page);
    return *page;
  }
  static void wait_for(const ScanTask& page) {
    while (!page.done())
      std::this_thread::yield();
  }
  struct Shown {
    std::vector<std::string> keys;
    std::vector<std::byte> token;
  };
  Shown shown(const ScanQuery& query = {}) {
    const auto page = asked(query);
    wait_for(*page);
    EXPECT_FALSE(page->failure());
    return read(page->bytes());
  }
  static Shown read(Bytes page) {
    const auto view = decode_scan_page(page, false);
    EXPECT_TRUE(view);
    Shown shown;
    for (const ScanItem& item : view->items)
      shown.keys.emplace_back(as_text(item.key));
    shown.token.assign(view->token.begin(), view->token.end());
    return shown;
  }
  void scan(FakeConnection& from, std::uint64_t sequence = 0) {
    ask(from, {.opcode = Opcode::kScan, .sequence = sequence, .value = bytes_of({})});
  }

  std::map<std::string, std::pair<std::string, std::uint64_t>> records_;
  std::atomic<std::uint64_t> requested_{0};
  std::atomic<std::uint64_t> now_ms_{1000};
  std::atomic<int> reads_{0};
  std::atomic<int> sweeps_{0};
  Status swept_;
  std::latch* gate_ = nullptr;  // a read waits for it
  Scans scans_{{.log = *log_,
                .sweep =
                    [this] {
                      ++sweeps_;
                      return swept_;
                    },
                .request_write = [this](std::uint64_t through) { requested_ = through; },
                .read = [this](const KeyRange& range, const auto& visit) -> Status {
                  ++reads_;
                  if (gate_ != nullptr) gate_->wait();
                  for (const auto& [key, record] : records_) {
                    if (!range.holds(key)) continue;
                    if (!visit({.expiry_ms = record.second,
                                .key = as_bytes(key),
                                .value = as_bytes(record.first)}))
                      break;
                  }
                  return {};
                },
                .has_expired =
                    [this](const RecordFields& record) {
                      return record.expiry_ms != 0 && record.expiry_ms <= now_ms_.load();
                    },
                .finished = [this] { worker_->wake_for_answers(); }}};
};

TEST_F(ScansTest, AreReadWhenEverythingWithASequenceIsApplied) {
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value"), {}));
  const std::uint64_t through = log_->last_begun();
  const auto page = asked();
  while (requested_.load() != through)
    std::this_thread::yield();
  scans_.marks_changed();  // of something else
  EXPECT_FALSE(page->done());
  EXPECT_EQ(reads_, 0);
  EXPECT_EQ(sweeps_, 1);
  write_all();
  scans_.marks_changed();
  wait_for(*page);
  EXPECT_FALSE(page->failure());
  EXPECT_EQ(page->through(), through);
}

// (SCANS-4)
TEST_F(ScansTest, ShowNothingThatHasExpired) {
  add("a", "1", 1000);
  add("b", "2", 1001);
  add("c", "3");
  EXPECT_THAT(shown().keys, ElementsAre("b", "c"));
  now_ms_ = 1001;
  EXPECT_THAT(shown().keys, ElementsAre("c"));
}

// (SCANS-2)
TEST_F(ScansTest, LookAtABoundedNumberOfRecords) {
  for (std::uint32_t i = 0; i <= Scans::kMaxRecordsLookedAt; ++i)
    add(fmt::format("{:06}", i), "", i == Scans::kMaxRecordsLookedAt ? 0 : 1);
  Shown page = shown();
  EXPECT_TRUE(page.keys.empty());
  ASSERT_FALSE(page.token.empty());
  page = shown({.token = page.token});
  EXPECT_EQ(page.keys.size(), 1U);
  EXPECT_TRUE(page.token.empty());
}

TEST_F(ScansTest, LookAtABoundedNumberOfBytes) {
  for (const char* key : {"a", "b", "c", "d"})
    add(key, std::string(Scans::kMaxBytesLookedAt / 2, 'v'));
  const Shown page = shown({.keys_only = true});
  EXPECT_THAT(page.keys, ElementsAre("a", "b"));
  EXPECT_THAT(shown({.keys_only = true, .token = page.token}).keys, ElementsAre("c", "d"));
}

// (SCANS-3)
TEST_F(ScansTest, AreSoManyAtATime) {
  std::vector<std::shared_ptr<const ScanTask>> pages;
  for (std::uint32_t i = 0; i < Scans::kMaxPages; ++i)
    pages.push_back(asked());
  const auto another = scans_.ask(bytes_of({}), 0);
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().code, Code::kBusy);
  for (const auto& page : pages)
    wait_for(*page);
  EXPECT_FALSE(scans_.ask(bytes_of({}), 0)) << "they are held";
  pages.clear();
  EXPECT_TRUE(shown().keys.empty());
}

TEST_F(ScansTest, FailWithTheDiskAndWithTheServersEnd) {
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value"), {}));
  auto page = asked();
  log_->set_disk_state(DiskState::kFull);
  scans_.marks_changed();
  wait_for(*page);
  EXPECT_EQ(page->failure()->code, Code::kIo);
  EXPECT_STREQ(page->failure()->text, refusal_of(Refused::kScan, DiskState::kFull).text);
  write_all();
  EXPECT_TRUE(shown().keys.empty()) << "applied before: nothing is missing";
  swept_ = fail(Code::kIo, "writes are refused");
  page = asked();
  wait_for(*page);
  EXPECT_EQ(page->failure()->code, Code::kIo) << "a counter's number is missing";
  EXPECT_STREQ(page->failure()->text, refusal_of(Refused::kScan, DiskState::kFull).text);
  swept_ = {};
  log_->set_disk_state(DiskState::kOk);
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value"), {}));
  page = asked();
  scans_.stop();
  ASSERT_TRUE(page->done()) << "(SCANS-5)";
  EXPECT_EQ(page->failure()->code, Code::kIo);
  EXPECT_EQ(scans_.ask(bytes_of({}), 0).error().code, Code::kBusy);
}

TEST_F(ScansTest, HoldNobodyUp) {
  add("key", "value");
  std::latch gate(1);
  gate_ = &gate;
  FakeConnection* const asker = connect();
  FakeConnection* const other = connect();
  scan(*asker, 7);
  turn();
  while (reads_ == 0)
    std::this_thread::yield();
  ping(*other, 3);
  put(*other, as_bytes("other"), as_bytes("value"));
  turn();
  EXPECT_TRUE(asker->posted.empty());
  EXPECT_EQ(other->posted.size(), 2U);
  gate.count_down();
  while (asker->posted.empty())
    turn();
  const Response response = answer(*asker, 0);
  EXPECT_EQ(response.opcode, Opcode::kScan);
  EXPECT_EQ(response.code, 0);
  EXPECT_EQ(response.sequence, 7U);
  EXPECT_THAT(read(response.value).keys, ElementsAre("key"));
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kScanPages), 1U);
}

// Pages whose answers find none wait, and small answers do not.
TEST_F(ScansTest, WaitForALargeBuffer) {
  add("key", std::string(1000, 'v'));
  FakeConnection* const asker = connect();
  FakeConnection* const other = connect();
  for (std::size_t answered = 0; answered < kLargeRepliesPerClient; ++answered) {
    scan(*asker, answered);
    while (asker->posted.size() == answered)
      turn();
  }
  scan(*asker, kLargeRepliesPerClient);
  while (reads_ != kLargeRepliesPerClient + 1)
    turn();
  for (int i = 0; i < 100; ++i)
    turn();
  EXPECT_EQ(asker->posted.size(), kLargeRepliesPerClient);
  ping(*other);
  turn();
  EXPECT_EQ(other->posted.size(), 1U);
  queue().complete_sends(*asker);
  while (asker->posted.size() != kLargeRepliesPerClient + 1)
    turn();
  EXPECT_EQ(answer(*asker, kLargeRepliesPerClient).sequence, kLargeRepliesPerClient);
  // Nobody waits now, so the next answer that is large finds a buffer at once.
  ASSERT_TRUE(store_->put(as_bytes("key"), patterned(1, 1000), {}));
  ask(*other, {.opcode = Opcode::kGet, .key = as_bytes("key")});
  turn();
  ASSERT_EQ(other->posted.size(), 2U);
  EXPECT_EQ(answer(*other, 1).value.size(), 1000U);
}

// Nobody is left to be answered, and nothing is read for it.
TEST_F(ScansTest, EndWithTheirAsker) {
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value"), {}));
  std::latch gate(1);
  gate_ = &gate;
  const auto first = scans_.ask(bytes_of({}), 0);  // keeps the thread waiting for the mark
  FakeConnection* const asker = connect();
  scan(*asker);
  turn();
  queue().end(*asker);
  turn();
  gate.count_down();
  write_all();
  scans_.marks_changed();
  wait_for(**first);
  EXPECT_TRUE(shown().keys.empty());
  EXPECT_EQ(reads_, 2) << "the first and the last";
}

TEST_F(ScansTest, RefuseATokenOfAnotherScan) {
  FakeConnection* const client = connect();
  ScanPageWriter writer(ScanQuery{.prefix = as_bytes("a")});
  writer.pass(as_bytes("ab"));
  const auto page = std::move(writer).finish(true);
  const auto bytes = bytes_of({.token = decode_scan_page(page, false)->token});
  ask(*client, {.opcode = Opcode::kScan, .value = bytes});
  turn();
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kInvalidArgument));
  EXPECT_THAT(std::string(as_text(answer(*client, 0).value)), HasSubstr("continuation token"));
}

TEST_F(WorkerTest, WithoutADiskThereAreNoScans) {
  FakeConnection* const client = connect();
  std::vector<std::byte> query(kScanQueryHeaderBytes);
  ask(*client, {.opcode = Opcode::kScan, .value = query});
  turn();
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kUnsupported));
  EXPECT_THAT(std::string(as_text(answer(*client, 0).value)), HasSubstr("--data-dir"));
}

}  // namespace
}  // namespace rkv::server
