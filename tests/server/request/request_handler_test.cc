#include "server/request/request_handler.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "common/pack.h"
#include "common/scan.h"
#include "tests/server/persistence/support.h"
#include "tests/support/plain_memory.h"

namespace rkv::server {
namespace {

using test::patterned;

constexpr std::uint16_t kBoot = 9;

class HandlerTest : public ::testing::Test {
 protected:
  explicit HandlerTest(bool persistent = true, Durability durability = Durability::kMemory) {
    memory_ = testing_memory();
    if (persistent) {
      log_ = std::move(*CommitLog::create(CommitLog::kMinCapacityBytes));
    } else {
      log_ = CommitLog::create_volatile();
    }
    store_ = std::make_unique<Store>(*memory_, *log_, clock_, kBoot);
    handler_ = std::make_unique<RequestHandler>(parts(durability));
  }
  RequestHandler::Parts parts(Durability durability) {
    return {.store = *store_, .log = *log_, .boot = kBoot, .durability = durability, .stats = [] {
              return "{}";
            }};
  }
  static std::unique_ptr<StoreMemory> testing_memory() {
    return rkv::testing::make_plain_memory(
        {.memory_bytes = kMinMemoryBytes, .epoch = 77, .hash_seed = 5});
  }
  RequestHandler::Answer ask(const Request& request) { return ask_as(Role::kAdmin, request); }
  RequestHandler::Answer ask_as(Role role, const Request& request) {
    message_.resize(kRequestHeaderBytes + request.key.size() + request.value.size());
    message_.resize(encode(request, message_));
    return handler_->handle(message_, role);
  }
  RequestHandler::Answer put(std::string_view key, std::string_view value) {
    return ask(
        {.opcode = Opcode::kPut, .sequence = 3, .key = as_bytes(key), .value = as_bytes(value)});
  }
  // As if the applier were there.
  void apply_all() {
    CommitLog::Entry entry;
    while (log_->consume(&entry)) {
    }
    log_->set_wal_mark(log_->consumed());
    log_->set_sync_mark(log_->consumed());
    log_->advance();
  }

  SteadyClock clock_;
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<CommitLog> log_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RequestHandler> handler_;
  std::vector<std::byte> message_;
};

// --min-copies
TEST_F(HandlerTest, WithTooFewCopiesWritesAreRefusedAndReadsAreNot) {
  std::atomic<bool> lacks_copies{false};
  RequestHandler::Parts with_copies = parts(Durability::kMemory);
  with_copies.lacks_copies = &lacks_copies;
  handler_ = std::make_unique<RequestHandler>(with_copies);
  EXPECT_EQ(put("key", "before").response.code, 0);
  lacks_copies.store(true);
  const Response refused = put("key", "after").response;
  EXPECT_EQ(refused.code, static_cast<std::uint8_t>(Code::kBusy));
  EXPECT_NE(as_text(refused.value).find("--min-copies"), std::string_view::npos);
  EXPECT_EQ(ask({.opcode = Opcode::kRemove, .sequence = 3, .key = as_bytes("key")}).response.code,
            static_cast<std::uint8_t>(Code::kBusy));
  const Response got =
      ask({.opcode = Opcode::kGet, .sequence = 3, .key = as_bytes("key")}).response;
  EXPECT_EQ(as_text(got.value), "before");
  std::vector<std::byte> bytes(256);
  PackWriter writer(bytes);
  writer.add({.opcode = Opcode::kGet, .key = as_bytes("key")});
  writer.add({.opcode = Opcode::kPut, .key = as_bytes("key"), .value = as_bytes("after")});
  const Response packed =
      ask({.opcode = Opcode::kPack, .sequence = 3, .value = writer.finish()}).response;
  ResultReader results(packed.value);
  EXPECT_EQ(results.next(Opcode::kGet)->code, 0);
  EXPECT_EQ(results.next(Opcode::kPut)->code, static_cast<std::uint8_t>(Code::kBusy));
  lacks_copies.store(false);
  EXPECT_EQ(put("key", "after").response.code, 0);
}

// A request of this opcode that the decoder accepts. Without `default`: the compiler demands the
// case of a new opcode.
struct Sample {
  explicit Sample(Opcode opcode) : request{.opcode = opcode, .sequence = 3} {
    if (traits_of(opcode).takes_key) request.key = as_bytes("key");
    switch (opcode) {
      case Opcode::kGet:
      case Opcode::kPut:
      case Opcode::kRemove:
      case Opcode::kTouch:
      case Opcode::kPing:
      case Opcode::kFlush:
      case Opcode::kStats:
        return;
      case Opcode::kAdd:
        value.resize(kCounterBytes);
        break;
      case Opcode::kSwap:
        value.resize(2 * kCounterBytes);
        break;
      case Opcode::kOpenCounter:
        value.resize(1);
        break;
      case Opcode::kPutLarge:
        value.resize(kValueSourceBytes);
        encode(ValueSource{.address = 64, .remote_key = 1, .length = kMaxInlineBytes + 1}, value);
        break;
      case Opcode::kBackup:
        request.value = as_bytes("monday");
        return;
      case Opcode::kRevoke:
        request.value = as_bytes("billing");
        return;
      case Opcode::kMovePrimary:
      case Opcode::kRemoveReplica:
        request.value = as_bytes("n2");
        return;
      case Opcode::kSetLogLevel:
        request.value = as_bytes("debug");
        return;
      case Opcode::kScan:
        value.resize(kMaxScanQueryBytes);
        value.resize(encode(ScanQuery{}, value));
        break;
      case Opcode::kLong:
        value.resize(kMessageSourceBytes);
        encode(MessageSource{.address = 64, .remote_key = 1, .length = kRequestHeaderBytes}, value);
        break;
      case Opcode::kPack: {
        value.resize(256);
        PackWriter writer(value);
        writer.add({.opcode = Opcode::kGet, .key = as_bytes("key")});
        value.resize(writer.finish().size());
        break;
      }
      case Opcode::kOutcome:
        value.resize(kWriteIdBytes);
        encode(WriteId{.session = 7, .sequence = kLanes}, value);
        break;
    }
    request.value = value;
  }
  Request request;
  std::vector<std::byte> value;
};

std::uint8_t code(Code code) {
  return static_cast<std::uint8_t>(code);
}

bool is_reply(const RequestHandler::Answer& answer) {
  return std::holds_alternative<RequestHandler::Reply>(answer.next);
}
bool is_disconnect(const RequestHandler::Answer& answer) {
  return std::holds_alternative<RequestHandler::Disconnect>(answer.next);
}
// Returns the mark that the answer awaits; fails the test if it awaits none.
RequestHandler::AwaitMark mark_of(const RequestHandler::Answer& answer) {
  const auto* const mark = std::get_if<RequestHandler::AwaitMark>(&answer.next);
  EXPECT_NE(mark, nullptr) << "it awaits no mark";
  return mark == nullptr ? RequestHandler::AwaitMark{} : *mark;
}

TEST_F(HandlerTest, PutGetRemove) {
  const auto stored = put("key", "value");
  EXPECT_TRUE(is_reply(stored));
  EXPECT_EQ(stored.response.code, 0);
  EXPECT_EQ(stored.response.opcode, Opcode::kPut);
  EXPECT_EQ(stored.response.sequence, 3U);
  EXPECT_EQ(stored.response.version.boot(), kBoot);
  EXPECT_FALSE(stored.response.slot.empty());

  const auto found = ask({.opcode = Opcode::kGet, .sequence = 4, .key = as_bytes("key")});
  EXPECT_EQ(found.response.code, 0);
  EXPECT_EQ(found.response.sequence, 4U);
  EXPECT_EQ(found.response.version, stored.response.version);
  EXPECT_EQ(as_text(found.response.value), "value");

  const auto removed = ask({.opcode = Opcode::kRemove, .sequence = 5, .key = as_bytes("key")});
  EXPECT_EQ(removed.response.code, 0);
  EXPECT_GT(removed.response.version, stored.response.version);
  for (const Opcode opcode : {Opcode::kGet, Opcode::kRemove}) {
    const auto missing = ask({.opcode = opcode, .sequence = 6, .key = as_bytes("key")});
    EXPECT_EQ(missing.response.code, code(Code::kNotFound));
    EXPECT_EQ(missing.response.opcode, opcode);
    EXPECT_TRUE(missing.response.value.empty());
  }
}

TEST_F(HandlerTest, LargestKeyAndValue) {
  const auto key = patterned(1, kMaxKeyBytes);
  const auto value = patterned(2, kMaxInlineBytes);
  EXPECT_EQ(ask({.opcode = Opcode::kPut, .key = key, .value = value}).response.code, 0);
  const auto found = ask({.opcode = Opcode::kGet, .key = key});
  EXPECT_TRUE(test::equal(found.response.value, value));
}

TEST_F(HandlerTest, PingAndStats) {
  EXPECT_EQ(ask({.opcode = Opcode::kPing, .sequence = 11}).response.sequence, 11U);
  const auto stats = ask({.opcode = Opcode::kStats, .sequence = 12});
  EXPECT_EQ(as_text(stats.response.value), "{}");
}

TEST_F(HandlerTest, AFullQueueIsBusyWithAPause) {
  const std::string value(100'000, 'v');
  RequestHandler::Answer last;
  for (int i = 0; i < 100 && last.response.code == 0; ++i)
    last = put(std::to_string(i), value);
  EXPECT_EQ(last.response.code, code(Code::kBusy));
  EXPECT_GT(last.response.retry_after_ms, 0U);
  EXPECT_FALSE(last.response.value.empty());
  apply_all();
  EXPECT_EQ(put("again", value).response.code, 0);
}

TEST_F(HandlerTest, FlushWaitsForTheSyncMark) {
  EXPECT_TRUE(is_reply(ask({.opcode = Opcode::kFlush}))) << "nothing was written";
  const auto stored = put("key", "value");
  const auto waiting = ask({.opcode = Opcode::kFlush, .sequence = 8});
  const auto mark = mark_of(waiting);
  EXPECT_EQ(mark.level, Durability::kSync);
  EXPECT_GE(waiting.response.version, stored.response.version);
  EXPECT_EQ(mark.through, waiting.response.version.sequence());
  apply_all();
  EXPECT_TRUE(handler_->is_reached(mark.level, mark.through));
  EXPECT_TRUE(is_reply(ask({.opcode = Opcode::kFlush})));
}

TEST_F(HandlerTest, AFailedDiskRefusesWritesAndFlushesButNotReads) {
  ASSERT_EQ(put("key", "value").response.code, 0);
  log_->set_disk_state(DiskState::kFailing);
  EXPECT_EQ(put("key", "other").response.code, code(Code::kIo));
  EXPECT_EQ(ask({.opcode = Opcode::kFlush}).response.code, code(Code::kIo));
  const auto found = ask({.opcode = Opcode::kGet, .key = as_bytes("key")});
  EXPECT_EQ(as_text(found.response.value), "value");
}

// Each write, at each level: what it awaits is its own version, and the mark of the level.
TEST_F(HandlerTest, WritesAwaitTheMarkOfTheirLevel) {
  std::array<std::byte, 2 * kCounterBytes> numbers{};
  const Bytes one = Bytes(numbers).first(kCounterBytes);
  for (const Durability level : {Durability::kWal, Durability::kSync}) {
    for (const Request& request :
         {Request{.opcode = Opcode::kPut, .key = as_bytes("key"), .value = as_bytes("value")},
          Request{.opcode = Opcode::kTouch, .ttl_ms = 60'000, .key = as_bytes("key")},
          Request{.opcode = Opcode::kRemove, .key = as_bytes("key")},
          Request{.opcode = Opcode::kAdd, .key = as_bytes("counter"), .value = one},
          Request{.opcode = Opcode::kSwap, .key = as_bytes("counter"), .value = numbers}}) {
      Request durable = request;
      durable.durability = level;
      const auto answer = ask(durable);
      ASSERT_EQ(answer.response.code, 0) << to_string(request.opcode);
      const auto mark = mark_of(answer);
      EXPECT_EQ(mark.level, level) << to_string(request.opcode);
      EXPECT_EQ(mark.through, answer.response.version.sequence());
      EXPECT_FALSE(handler_->is_reached(mark.level, mark.through));
      log_->set_wal_mark(mark.through);
      EXPECT_EQ(handler_->is_reached(mark.level, mark.through), level == Durability::kWal);
      durable.durability = Durability::kMemory;
      EXPECT_TRUE(is_reply(ask(durable)));
    }
  }
}

// A pack would copy up to 32 of them before another client is served.
TEST_F(HandlerTest, TouchesOfLargeValuesAreNotForPacks) {
  const auto large = patterned(1, kMaxInlineBytes + 1);
  ASSERT_TRUE(store_->put(as_bytes("large"), large));
  ASSERT_EQ(put("small", "value").response.code, 0);
  std::vector<std::byte> bytes(256);
  PackWriter writer(bytes);
  for (const char* key : {"large", "small"})
    writer.add({.opcode = Opcode::kTouch, .ttl_ms = 60'000, .key = as_bytes(key)});
  const auto packed = ask({.opcode = Opcode::kPack, .sequence = 3, .value = writer.finish()});
  ResultReader results(packed.response.value);
  EXPECT_EQ(results.next(Opcode::kTouch)->flags, Response::kAlone);
  EXPECT_EQ(results.next(Opcode::kTouch)->code, 0);
  EXPECT_EQ(
      ask({.opcode = Opcode::kTouch, .ttl_ms = 60'000, .key = as_bytes("large")}).response.code, 0);
}

// Nothing was written, so there is nothing to wait for; and the version in the answer to a swap
// that was not done may be of an earlier start of the server, with a sequence that this one will
// not reach for long.
TEST_F(HandlerTest, WhatWroteNothingAwaitsNothing) {
  std::array<std::byte, 2 * kCounterBytes> numbers{};
  ASSERT_EQ(ask({.opcode = Opcode::kAdd,
                 .key = as_bytes("counter"),
                 .value = Bytes(numbers).first(kCounterBytes)})
                .response.code,
            0);
  numbers[0] = std::byte{7};
  const auto swap = ask({.opcode = Opcode::kSwap,
                         .durability = Durability::kSync,
                         .key = as_bytes("counter"),
                         .value = numbers});
  EXPECT_EQ(swap.response.code, 0);
  EXPECT_EQ(swap.response.flags & Response::kSwapped, 0);
  EXPECT_TRUE(is_reply(swap));
  for (const Request& request :
       {Request{.opcode = Opcode::kRemove, .key = as_bytes("none")},
        Request{.opcode = Opcode::kTouch, .key = as_bytes("none")},
        Request{
            .opcode = Opcode::kPut, .condition = Condition::kIfVersion, .key = as_bytes("a")}}) {
    Request durable = request;
    durable.durability = Durability::kSync;
    const auto answer = ask(durable);
    EXPECT_EQ(answer.response.code, code(Code::kNotFound));
    EXPECT_TRUE(is_reply(answer));
  }
}

TEST_F(HandlerTest, AnswersCarryTheMarks) {
  const auto stored = put("key", "value");
  Response marked = handler_->marked(stored.response);
  EXPECT_EQ(marked.wal_mark, Version::of(kBoot, 0));
  EXPECT_EQ(marked.sync_mark, Version::of(kBoot, 0));
  EXPECT_EQ(marked.version, stored.response.version);
  apply_all();
  marked = handler_->marked(stored.response);
  EXPECT_GE(marked.wal_mark, stored.response.version);
  EXPECT_EQ(marked.sync_mark, marked.wal_mark);
}

// The sweep before it found the disk as it is. One that ended otherwise says what it was.
TEST_F(HandlerTest, ABackupIsRefusedByTheStateOfTheDisk) {
  const Response awaited{.opcode = Opcode::kBackup, .sequence = 12};
  const Status swept = fail(Code::kIo, "the sweep's own");
  const auto said = [&] {
    return std::string(
        as_text(handler_->after_sweep(awaited, as_bytes("b"), swept).response.value));
  };
  EXPECT_EQ(said(), "the sweep's own");
  log_->set_disk_state(DiskState::kReadOnly);
  EXPECT_EQ(said(), refusal_of(Refused::kBackup, DiskState::kReadOnly).text);
}

TEST_F(HandlerTest, AWriteThatTheDiskFailedUnderIsInDoubt) {
  log_->set_disk_state(DiskState::kFull);
  const auto answer = handler_->disk_failed({.opcode = Opcode::kPut, .sequence = 12});
  EXPECT_EQ(answer.code, code(Code::kIo));
  EXPECT_EQ(answer.flags, Response::kMayHaveHappened);
  EXPECT_EQ(answer.sequence, 12U);
  EXPECT_EQ(as_text(answer.value), refusal_of(Refused::kMadeWrite, DiskState::kFull).text);
  const auto flush = handler_->disk_failed({.opcode = Opcode::kFlush});
  EXPECT_EQ(flush.flags, 0);
  EXPECT_EQ(as_text(flush.value), refusal_of(Refused::kFlush, DiskState::kFull).text);
}

class SyncingHandlerTest : public HandlerTest {
 protected:
  SyncingHandlerTest() : HandlerTest(true, Durability::kSync) {}
};

TEST_F(SyncingHandlerTest, TheServersLevelIsForWritesThatNameNone) {
  EXPECT_EQ(mark_of(put("key", "value")).level, Durability::kSync);
  Request request{.opcode = Opcode::kPut, .durability = Durability::kWal, .key = as_bytes("key")};
  EXPECT_EQ(mark_of(ask(request)).level, Durability::kWal);
  request.durability = Durability::kMemory;
  EXPECT_TRUE(is_reply(ask(request)));
  EXPECT_TRUE(is_reply(ask({.opcode = Opcode::kGet, .key = as_bytes("key")})));
}

class VolatileHandlerTest : public HandlerTest {
 protected:
  VolatileHandlerTest() : HandlerTest(false) {}
};

// Zero says that there is none, whatever number versions begin with.
TEST_F(VolatileHandlerTest, AnswersCarryNoMark) {
  const Response marked = handler_->marked(put("key", "value").response);
  EXPECT_EQ(marked.wal_mark, Version{});
  EXPECT_EQ(marked.sync_mark, Version{});
}

TEST_F(VolatileHandlerTest, FlushSaysThatThereIsNoDisk) {
  EXPECT_EQ(put("key", "value").response.code, 0);
  const auto flushed = ask({.opcode = Opcode::kFlush});
  EXPECT_TRUE(is_reply(flushed));
  EXPECT_EQ(flushed.response.code, code(Code::kUnsupported));
}

TEST_F(VolatileHandlerTest, DurableWritesAreRefusedBeforeTheyAreMade) {
  for (const Durability level : {Durability::kWal, Durability::kSync}) {
    const auto answer = ask({.opcode = Opcode::kPut,
                             .durability = level,
                             .key = as_bytes("key"),
                             .value = as_bytes("value")});
    EXPECT_TRUE(is_reply(answer));
    EXPECT_EQ(answer.response.code, code(Code::kUnsupported));
    EXPECT_EQ(answer.response.flags, 0);
    EXPECT_NE(as_text(answer.response.value).find("--data-dir"), std::string_view::npos);
    EXPECT_EQ(ask({.opcode = Opcode::kGet, .key = as_bytes("key")}).response.code,
              code(Code::kNotFound));
  }
  EXPECT_EQ(ask({.opcode = Opcode::kPut, .durability = Durability::kMemory, .key = as_bytes("key")})
                .response.code,
            0);
}

TEST_F(HandlerTest, AMessageShorterThanAHeaderEndsTheConnection) {
  const auto bytes = patterned(3, kRequestHeaderBytes - 1);
  for (std::size_t length = 0; length < kRequestHeaderBytes; ++length)
    EXPECT_TRUE(is_disconnect(handler_->handle(Bytes(bytes).first(length), Role::kAdmin)));
}

TEST_F(HandlerTest, ABadRequestIsAnsweredUnderItsSequence) {
  (void)put("key", "value");
  std::vector<std::byte> bad = message_;
  bad.pop_back();
  const auto answer = handler_->handle(bad, Role::kAdmin);
  EXPECT_TRUE(is_reply(answer));
  EXPECT_TRUE(answer.malformed);
  EXPECT_EQ(answer.response.sequence, 3U);
  EXPECT_EQ(answer.response.code, code(Code::kInvalidArgument));
  EXPECT_FALSE(answer.response.value.empty());
}

// ---- packs

class PackTest : public HandlerTest {
 protected:
  using HandlerTest::HandlerTest;
  RequestHandler::Answer pack(const std::vector<Request>& operations,
                              Durability durability = Durability::kDefault) {
    bytes_.resize(kMaxInlineBytes);
    PackWriter writer(bytes_);
    for (const Request& operation : operations)
      writer.add(operation);
    return ask({.opcode = Opcode::kPack,
                .sequence = 12,
                .durability = durability,
                .value = writer.finish()});
  }
  static Request put_of(std::string_view key, std::string_view value) {
    return {.opcode = Opcode::kPut, .key = as_bytes(key), .value = as_bytes(value)};
  }
  static Request get_of(std::string_view key) {
    return {.opcode = Opcode::kGet, .key = as_bytes(key)};
  }
  // The results of an answer to operations of these opcodes.
  static std::vector<Response> results(const RequestHandler::Answer& answer,
                                       const std::vector<Opcode>& opcodes) {
    std::vector<Response> all;
    ResultReader reader(answer.response.value);
    for (const Opcode opcode : opcodes) {
      const auto result = reader.next(opcode);
      EXPECT_TRUE(result);
      if (result) all.push_back(*result);
    }
    EXPECT_TRUE(reader.at_end());
    return all;
  }

  std::vector<std::byte> bytes_;
};

TEST_F(PackTest, OperationsAreDoneInTheirOrder) {
  const std::array<std::byte, kCounterBytes> summand{std::byte{5}};
  const auto answer = pack({put_of("key", "first"),
                            get_of("key"),
                            put_of("key", "second"),
                            {.opcode = Opcode::kAdd, .key = as_bytes("n"), .value = summand},
                            {.opcode = Opcode::kRemove, .key = as_bytes("none")},
                            {.opcode = Opcode::kRemove, .key = as_bytes("key")},
                            get_of("key")});
  EXPECT_TRUE(is_reply(answer));
  EXPECT_EQ(answer.response.code, 0);
  EXPECT_EQ(answer.response.sequence, 12U);
  const auto all = results(answer, {Opcode::kPut, Opcode::kGet, Opcode::kPut, Opcode::kAdd,
                                    Opcode::kRemove, Opcode::kRemove, Opcode::kGet});
  ASSERT_EQ(all.size(), 7U);
  EXPECT_EQ(as_text(all[1].value), "first");
  EXPECT_EQ(all[1].version, all[0].version);
  EXPECT_GT(all[2].version, all[0].version);
  EXPECT_EQ(load_le<std::int64_t>(all[3].value.data()), 5);
  EXPECT_EQ(all[4].code, code(Code::kNotFound));
  EXPECT_EQ(all[5].code, 0);
  EXPECT_EQ(all[6].code, code(Code::kNotFound));
}

// Each has its own result, and the others are done.
TEST_F(PackTest, AnOperationThatFailsStopsNoOther) {
  const std::string long_key(kMaxKeyBytes + 1, 'k');
  Request if_absent = put_of("a", "again");
  if_absent.condition = Condition::kIfAbsent;
  const auto answer = pack({put_of("a", "value"), if_absent, put_of(long_key, "value"),
                            put_of("", "value"), put_of("b", "value")});
  const auto all = results(answer, std::vector<Opcode>(5, Opcode::kPut));
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0].code, 0);
  EXPECT_EQ(all[1].code, code(Code::kConflict));
  EXPECT_EQ(all[2].code, code(Code::kTooLarge));
  EXPECT_EQ(all[3].code, code(Code::kInvalidArgument));
  EXPECT_EQ(all[4].code, 0);
  EXPECT_EQ(as_text(ask(get_of("b")).response.value), "value");
}

// A pack that lies about its lengths is refused before anything of it is done.
TEST_F(PackTest, ThatLiesIsRefusedAsAWhole) {
  (void)pack({put_of("a", "value"), put_of("b", "value")});
  const auto whole = message_;
  for (std::size_t cut = 1; cut < whole.size() - kRequestHeaderBytes; ++cut) {
    auto shorter = whole;
    shorter.resize(whole.size() - cut);
    store_le(shorter.data() + 4, static_cast<std::uint32_t>(shorter.size() - kRequestHeaderBytes));
    (void)ask({.opcode = Opcode::kRemove, .key = as_bytes("a")});
    const auto answer = handler_->handle(shorter, Role::kAdmin);
    EXPECT_EQ(answer.response.code, code(Code::kInvalidArgument)) << cut;
    EXPECT_EQ(ask(get_of("a")).response.code, code(Code::kNotFound)) << cut;
  }
}

TEST_F(PackTest, OtherOperationsAreRefusedInIt) {
  for (std::uint8_t opcode = 0; opcode < 40; ++opcode) {
    if (is_packable(static_cast<Opcode>(opcode))) continue;
    (void)pack({put_of("a", "value"), put_of("b", "value")});
    message_[kRequestHeaderBytes + kPackHeaderBytes] = static_cast<std::byte>(opcode);
    const auto all =
        results(handler_->handle(message_, Role::kAdmin), {Opcode::kPut, Opcode::kPut});
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].code, code(Code::kInvalidArgument)) << int{opcode};
    EXPECT_EQ(all[1].code, 0);
  }
}

// A request's worth of reported hashes for each of them would be too much work.
TEST_F(PackTest, GetsReportNoReads) {
  const std::array<std::byte, 8> hash{};
  Request get = get_of("a");
  get.value = hash;
  const auto all = results(pack({put_of("a", "value"), get}), {Opcode::kPut, Opcode::kGet});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].code, code(Code::kInvalidArgument));
  EXPECT_EQ(handler_->reported_reads(), 0U);
}

// The answer to a pack of at most 8 puts fits into a small buffer, whatever becomes of them.
TEST_F(PackTest, TheAnswerFitsWhatWasReserved) {
  const std::string value(1000, 'v');
  (void)put("there", value);
  Request refused = put_of("there", value);
  refused.condition = Condition::kIfAbsent;
  for (std::size_t count = 1; count <= kMaxPacked; ++count) {
    const auto answer = pack(std::vector<Request>(count, refused));
    const std::size_t room = pack_reply_bytes(message_);
    EXPECT_EQ(room, count * kPackedResultBytes);
    const bool small = kResponseHeaderBytes + room <= 256;
    EXPECT_LE(kResponseHeaderBytes + answer.response.value.size(), small ? 256U : kMaxMessageBytes);
    EXPECT_EQ(results(answer, std::vector<Opcode>(count, Opcode::kPut)).size(), count);
  }
}

TEST_F(PackTest, ValuesThatDoNotFitAreForAnotherRequest) {
  const std::string longest(kLongestPackedValue, 'v');
  const std::string longer(kLongestPackedValue + 1, 'v');
  (void)put("longest", longest);
  (void)put("longer", longer);
  std::vector<Request> gets(kMaxPacked, get_of("longest"));
  gets[1] = get_of("longer");
  gets[kMaxPacked - 1] = get_of("none");
  const auto all = results(pack(gets), std::vector<Opcode>(kMaxPacked, Opcode::kGet));
  ASSERT_EQ(all.size(), kMaxPacked);
  EXPECT_EQ(as_text(all[0].value), longest);
  EXPECT_EQ(all[1].flags, Response::kAlone);
  EXPECT_EQ(all[kMaxPacked - 2].value.size(), longest.size());
  EXPECT_EQ(all[kMaxPacked - 1].code, code(Code::kNotFound));
}

// As many of the longest values as a pack may ask for: the last has no room left.
TEST_F(PackTest, AnAnswerHasNoMoreThanItsRoom) {
  (void)put("longest", std::string(kLongestPackedValue, 'v'));
  const auto answer = pack(std::vector<Request>(kMaxPacked, get_of("longest")));
  EXPECT_LE(answer.response.value.size(), kMaxInlineBytes);
  const auto all = results(answer, std::vector<Opcode>(kMaxPacked, Opcode::kGet));
  ASSERT_EQ(all.size(), kMaxPacked);
  EXPECT_EQ(all[kMaxPacked - 2].code, 0);
  EXPECT_EQ(all[kMaxPacked - 1].flags, Response::kAlone);
}

TEST_F(PackTest, OutcomesAreThoseOfTheResults) {
  Request refused = put_of("a", "again");
  refused.condition = Condition::kIfAbsent;
  const auto outcomes = pack({put_of("a", "value"), refused, get_of("none")}).packed;
  ASSERT_EQ(outcomes.size(), 3U);
  EXPECT_EQ(outcomes[0].opcode, Opcode::kPut);
  EXPECT_EQ(outcomes[0].code, 0);
  EXPECT_EQ(outcomes[1].code, code(Code::kConflict));
  EXPECT_EQ(outcomes[2].opcode, Opcode::kGet);
  EXPECT_EQ(outcomes[2].code, code(Code::kNotFound));
}

// The mark of its last write covers all of them.
TEST_F(PackTest, DurableWritesAwaitOneMark) {
  const auto answer =
      pack({put_of("a", "value"), get_of("a"), put_of("b", "value")}, Durability::kSync);
  const auto mark = mark_of(answer);
  EXPECT_EQ(mark.level, Durability::kSync);
  EXPECT_EQ(mark.writes, 2U);
  const auto all = results(answer, {Opcode::kPut, Opcode::kGet, Opcode::kPut});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(mark.through, all[2].version.sequence_since(kBoot));
  EXPECT_FALSE(handler_->is_reached(mark.level, mark.through));
  apply_all();
  EXPECT_TRUE(handler_->is_reached(mark.level, mark.through));
  const Response failed = handler_->disk_failed(answer.response);
  EXPECT_EQ(failed.opcode, Opcode::kPack);
  EXPECT_EQ(failed.flags, Response::kMayHaveHappened);
}

TEST_F(PackTest, NothingIsBegunAfterItsTime) {
  handler_->set_time(clock_.now());
  bytes_.resize(4096);
  PackWriter writer(bytes_);
  writer.add(put_of("a", "value"));
  writer.add(get_of("a"));
  const auto past = static_cast<std::uint64_t>(clock_.now() / kNanosPerUs) - 1;
  const auto answer = ask({.opcode = Opcode::kPack, .begin_by_us = past, .value = writer.finish()});
  const auto all = results(answer, {Opcode::kPut, Opcode::kGet});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].code, code(Code::kTimeout));
  EXPECT_EQ(all[1].code, code(Code::kNotFound));
}

class VolatilePackTest : public PackTest {
 protected:
  VolatilePackTest() : PackTest(false) {}
};

TEST_F(VolatilePackTest, DurableWritesAreRefusedBeforeTheyAreMade) {
  const auto answer = pack({put_of("a", "value"), put_of("b", "value")}, Durability::kWal);
  EXPECT_TRUE(is_reply(answer));
  EXPECT_EQ(answer.response.code, code(Code::kUnsupported));
  EXPECT_EQ(ask(get_of("a")).response.code, code(Code::kNotFound));
}

// Whatever a pack holds: every answer can be read, and is as long as was reserved at most.
TEST_F(PackTest, RandomPacksAreAnswered) {
  Random random(test::test_seed());
  std::vector<std::byte> reply(kMaxMessageBytes);
  const std::string keys = "abcdefgh";
  int done = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<Request> operations;
    for (std::uint64_t left = 1 + random.below(12); left > 0; --left) {
      const std::string_view key = std::string_view(keys).substr(random.below(8), 1);
      operations.push_back(random.below(3) == 0 ? get_of(key) : put_of(key, keys));
    }
    (void)pack(operations);
    for (std::uint64_t changes = random.below(4); changes > 0; --changes)
      message_[kRequestHeaderBytes + random.below(message_.size() - kRequestHeaderBytes)] =
          static_cast<std::byte>(random());
    const auto answer = handler_->handle(message_, Role::kAdmin);
    if (i % 16 == 0) apply_all();
    const std::size_t length = encode(answer.response, reply);
    ASSERT_TRUE(decode_response(Bytes(reply).first(length)));
    if (answer.response.code != 0) continue;
    ++done;
    const std::size_t room = kResponseHeaderBytes + pack_reply_bytes(message_);
    ASSERT_LE(length, room <= 256 ? 256 : kMaxMessageBytes);
  }
  EXPECT_GT(done, 1000);
}

// Whatever arrives: an answer that a client can decode and that fits, and a store that still works.
TEST_F(HandlerTest, RandomAndTruncatedMessagesAreAnswered) {
  Random random(test::test_seed());
  std::map<std::uint8_t, int> codes;
  std::vector<std::byte> reply(kMaxMessageBytes);
  for (int i = 0; i < 100'000; ++i) {
    const auto key = patterned(random.below(50), 1 + random.below(20));
    const auto value = patterned(random(), random.below(200));
    const auto opcode = static_cast<Opcode>(1 + random.below(6));
    (void)ask({.opcode = opcode == Opcode::kStats ? Opcode::kPut : opcode,
               .sequence = random(),
               .key = opcode <= Opcode::kRemove ? Bytes(key) : Bytes(),
               .value = opcode == Opcode::kPut ? Bytes(value) : Bytes()});
    for (std::uint64_t changes = random.below(4); changes > 0; --changes)
      message_[random.below(std::min<std::size_t>(message_.size(), 60))] =
          static_cast<std::byte>(random());
    if (random.below(4) == 0) message_.resize(random.below(message_.size() + 1));
    if (random.below(4) == 0) message_.resize(message_.size() + random.below(9));
    const auto answer = handler_->handle(message_, Role::kAdmin);
    if (i % 64 == 0) apply_all();
    if (is_disconnect(answer)) {
      ASSERT_LT(message_.size(), kRequestHeaderBytes);
      continue;
    }
    ++codes[answer.response.code];
    const std::size_t length = encode(answer.response, reply);
    ASSERT_TRUE(decode_response(Bytes(reply).first(length)));
  }
  EXPECT_GT(codes[0], 1000);
  EXPECT_GT(codes[code(Code::kInvalidArgument)], 1000);
  EXPECT_EQ(codes[code(Code::kInternal)], 0);
  apply_all();
  EXPECT_EQ(put("key", "value").response.code, 0);
  EXPECT_EQ(as_text(ask({.opcode = Opcode::kGet, .key = as_bytes("key")}).response.value), "value");
}

TEST_F(HandlerTest, EachRoleMayDoWhatItsOpcodesSay) {
  for (std::uint8_t number = 1; number <= static_cast<std::uint8_t>(kLastOpcode); ++number) {
    const auto opcode = static_cast<Opcode>(number);
    const Sample sample(opcode);
    for (const Role role : kRoles) {
      SCOPED_TRACE(std::string(to_string(opcode)) + " by " + to_string(role));
      auto answer = ask_as(role, sample.request);
      const bool forbidden = traits_of(opcode).role > role;
      EXPECT_EQ(answer.response.code == code(Code::kPermission), forbidden);
      EXPECT_FALSE(answer.malformed);
      if (auto* const fetch = std::get_if<RequestHandler::FetchValue>(&answer.next)) {
        handler_->cancel(std::move(fetch->large));
      }
      if (!forbidden) continue;
      EXPECT_TRUE(is_reply(answer));
      EXPECT_EQ(answer.response.sequence, 3U);
      const std::string text(as_text(answer.response.value));
      EXPECT_EQ(text, std::string(to_string(opcode)) + " needs the role " +
                          to_string(traits_of(opcode).role) + ", and this user has the role " +
                          to_string(role) + ": connect as another user");
    }
  }
}

TEST_F(HandlerTest, WhatARoleForbidsIsNotDone) {
  ASSERT_EQ(put("key", "value").response.code, 0);
  for (const Opcode opcode : {Opcode::kPut, Opcode::kRemove}) {
    const Sample sample(opcode);
    EXPECT_EQ(ask_as(Role::kRead, sample.request).response.code, code(Code::kPermission));
  }
  const auto got = ask_as(Role::kRead, {.opcode = Opcode::kGet, .key = as_bytes("key")});
  EXPECT_EQ(as_text(got.response.value), "value");
}

TEST_F(HandlerTest, TheRoleDecidesOnEachOperationOfAPack) {
  ASSERT_EQ(put("there", "value").response.code, 0);
  const std::array<Opcode, 5> opcodes = {Opcode::kGet, Opcode::kPut, Opcode::kAdd, Opcode::kSwap,
                                         Opcode::kRemove};
  std::vector<std::byte> pack(512);
  PackWriter writer(pack);
  const std::array<std::byte, 2 * kCounterBytes> numbers{};
  for (const Opcode opcode : opcodes) {
    Request one{.opcode = opcode};
    one.key = as_bytes(opcode == Opcode::kGet ? "there" : "new");
    if (opcode != Opcode::kPut)
      one.value = Bytes(numbers).first(traits_of(opcode).value_bytes % 99);
    if (opcode == Opcode::kGet) one.value = {};
    writer.add(one);
  }
  const Request request{.opcode = Opcode::kPack, .sequence = 4, .value = writer.finish()};
  const auto codes_as = [&](Role role) {
    std::vector<std::uint8_t> codes;
    const auto answer = ask_as(role, request);
    EXPECT_EQ(answer.response.code, 0);
    ResultReader reader(answer.response.value);
    for (const Opcode opcode : opcodes)
      codes.push_back(reader.next(opcode)->code);
    return codes;
  };
  const std::uint8_t no = code(Code::kPermission);
  EXPECT_EQ(codes_as(Role::kRead), (std::vector<std::uint8_t>{0, no, no, no, no}));
  EXPECT_EQ(ask({.opcode = Opcode::kGet, .key = as_bytes("new")}).response.code,
            code(Code::kNotFound));
  for (const std::uint8_t result : codes_as(Role::kWrite))
    EXPECT_NE(result, no);
}

}  // namespace
}  // namespace rkv::server
