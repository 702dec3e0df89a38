#include "common/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace rkv {
namespace {

std::vector<std::byte> encode_request(const Request& request) {
  std::vector<std::byte> out(kMaxMessageBytes);
  out.resize(encode(request, out));
  return out;
}

RC_GTEST_PROP(Request, RoundTrips,
              (const std::string& key, const std::string& value, std::uint64_t sequence,
               std::uint64_t version, std::uint64_t begin_by_us)) {
  RC_PRE(!key.empty());
  const auto bytes = encode_request({.opcode = Opcode::kPut,
                                     .sequence = sequence,
                                     .condition = Condition::kIfVersion,
                                     .expected = {version},
                                     .ttl_ms = version % (kMaxTtlMs + 1),
                                     .begin_by_us = begin_by_us,
                                     .key = as_bytes(key),
                                     .value = as_bytes(value)});
  std::uint64_t seen = 0;
  const auto back = decode_request(bytes, &seen);
  RC_ASSERT(back.has_value());
  RC_ASSERT(seen == sequence && back->sequence == sequence);
  RC_ASSERT(back->opcode == Opcode::kPut && back->expected.bits == version);
  RC_ASSERT(back->condition == Condition::kIfVersion);
  RC_ASSERT(back->ttl_ms == version % (kMaxTtlMs + 1));
  RC_ASSERT(back->begin_by_us == begin_by_us % kBeginByModulus);
  RC_ASSERT(as_text(back->key) == key && as_text(back->value) == value);
}

TEST(Request, EveryLengthButTheRightOneIsRefused) {
  const auto bytes = encode_request(
      {.opcode = Opcode::kPut, .sequence = 9, .key = as_bytes("key"), .value = as_bytes("value")});
  std::uint64_t sequence = 0;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_request(Bytes(bytes).first(n), &sequence)) << n;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_request(longer, &sequence));
  EXPECT_EQ(sequence, 9U);  // the header was readable: the answer can name the request
}

TEST(Request, LimitsAreEnforcedWithTheirCode) {
  std::uint64_t sequence = 0;
  const auto code_of = [&](Opcode opcode, std::size_t key, std::size_t value) {
    std::vector<std::byte> bytes(kRequestHeaderBytes + key + value);
    store_le(bytes.data(), static_cast<std::uint8_t>(opcode));
    store_le(bytes.data() + 2, static_cast<std::uint16_t>(key));
    store_le(bytes.data() + 4, static_cast<std::uint32_t>(value));
    const auto result = decode_request(bytes, &sequence);
    return result ? Code{} : result.error().code;
  };
  EXPECT_EQ(code_of(Opcode::kPut, kMaxKeyBytes, kMaxInlineBytes), Code{});
  EXPECT_EQ(code_of(Opcode::kPut, 0, 1), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kPut, kMaxKeyBytes + 1, 1), Code::kTooLarge);
  EXPECT_EQ(code_of(Opcode::kPut, 1, kMaxInlineBytes + 1), Code::kTooLarge);
  EXPECT_EQ(code_of(Opcode::kGet, 1, 1), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kPing, 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(static_cast<Opcode>(0), 0, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kAdd, 1, 8), Code{});
  EXPECT_EQ(code_of(Opcode::kAdd, 1, 7), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kAdd, 0, 8), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kSwap, 1, 16), Code{});
  EXPECT_EQ(code_of(Opcode::kSwap, 1, 8), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kOpenCounter, 1, 1), Code{});
  EXPECT_EQ(code_of(Opcode::kOpenCounter, 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kOpenCounter, 0, 1), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kBackup, 0, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kBackup, 1, 1), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kScan, 0, 16), Code{});
  EXPECT_EQ(code_of(Opcode::kScan, 0, 15), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kScan, 0, 17), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kScan, 1, 16), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kLong, 0, 15), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Opcode::kLong, 1, 16), Code::kInvalidArgument);
  EXPECT_EQ(code_of(static_cast<Opcode>(14), 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(static_cast<Opcode>(9), 0, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(static_cast<Opcode>(255), 0, 0), Code::kInvalidArgument);
}

TEST(Request, AGetTellsWholeHashes) {
  std::uint64_t sequence = 0;
  const std::vector<std::byte> hashes(8 * (kMaxUsedHashes + 1));
  const auto accepted = [&](std::size_t bytes) {
    const auto request = encode_request(
        {.opcode = Opcode::kGet, .key = as_bytes("k"), .value = Bytes(hashes).first(bytes)});
    return decode_request(request, &sequence).has_value();
  };
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, 8 * kMaxUsedHashes})
    EXPECT_TRUE(accepted(bytes)) << bytes;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{12}, 8 * (kMaxUsedHashes + 1)})
    EXPECT_FALSE(accepted(bytes)) << bytes;
}

TEST(Request, AnOpenedCounterIsMadeOrNot) {
  std::uint64_t sequence = 0;
  for (const unsigned creates : {0U, 1U, 2U, 255U}) {
    const std::byte value{static_cast<std::uint8_t>(creates)};
    const auto bytes = encode_request(
        {.opcode = Opcode::kOpenCounter, .key = as_bytes("k"), .value = {&value, 1}});
    EXPECT_EQ(decode_request(bytes, &sequence).has_value(), creates <= 1);
  }
  const std::vector<std::byte> cell(kCellAnswerBytes);
  std::vector<std::byte> answer(kResponseHeaderBytes + kCellAnswerBytes);
  encode(Response{.opcode = Opcode::kOpenCounter, .value = cell}, answer);
  EXPECT_TRUE(decode_response(answer));
  encode(Response{.opcode = Opcode::kOpenCounter, .value = Bytes(cell).first(7)}, answer);
  EXPECT_FALSE(decode_response(Bytes(answer).first(kResponseHeaderBytes + 7))) << "no cell";
}

// It becomes the name of a file on the server's host.
TEST(Request, ABackupsNameIsAPlainFileName) {
  std::uint64_t sequence = 0;
  const auto accepted = [&](std::string_view name) {
    return decode_request(encode_request({.opcode = Opcode::kBackup, .value = as_bytes(name)}),
                          &sequence)
        .has_value();
  };
  for (const std::string& good : {std::string("a"), std::string("2026-11-21_full.1"),
                                  std::string("_"), std::string(128, 'Z'), std::string("a..b")})
    EXPECT_TRUE(accepted(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("../a"), std::string("/a"),
        std::string("a/b"), std::string(".partial-a"), std::string("-rf"), std::string("a b"),
        std::string("a\n"), std::string("a\0b", 3), std::string("\xC3\xA4"), std::string(129, 'a')})
    EXPECT_FALSE(accepted(bad)) << bad;
  EXPECT_FALSE(decode_request(
      encode_request(
          {.opcode = Opcode::kBackup, .durability = Durability::kSync, .value = as_bytes("a")}),
      &sequence));
}

TEST(Request, ARevocationNamesAUser) {
  std::uint64_t sequence = 0;
  const auto accepted = [&](std::string_view name) {
    return decode_request(encode_request({.opcode = Opcode::kRevoke, .value = as_bytes(name)}),
                          &sequence)
        .has_value();
  };
  EXPECT_TRUE(accepted("billing"));
  EXPECT_TRUE(accepted(std::string(64, 'a')));
  for (const std::string& bad : {std::string(), std::string("an na"), std::string("-anna"),
                                 std::string("anna\n"), std::string(65, 'a')})
    EXPECT_FALSE(accepted(bad)) << bad;
  const std::vector<std::byte> sessions(kRevokeAnswerBytes);
  std::vector<std::byte> answer(kResponseHeaderBytes + kRevokeAnswerBytes);
  encode(Response{.opcode = Opcode::kRevoke, .value = sessions}, answer);
  EXPECT_TRUE(decode_response(answer));
  encode(Response{.opcode = Opcode::kRevoke, .value = Bytes(sessions).first(7)}, answer);
  EXPECT_FALSE(decode_response(Bytes(answer).first(kResponseHeaderBytes + 7))) << "no number";
}

TEST(Request, AChangeOfAGroupNamesAReplica) {
  std::uint64_t sequence = 0;
  for (const Opcode opcode : {Opcode::kMovePrimary, Opcode::kRemoveReplica, Opcode::kSetLogLevel}) {
    const auto accepted = [&](std::string_view name) {
      return decode_request(encode_request({.opcode = opcode, .value = as_bytes(name)}), &sequence)
          .has_value();
    };
    EXPECT_TRUE(accepted("n2"));
    for (const std::string& bad : {std::string(), std::string("n 2"), std::string(65, 'n')})
      EXPECT_FALSE(accepted(bad)) << bad;
  }
}

TEST(Request, ReservedBitsMustBeZero) {
  const auto good = encode_request({.opcode = Opcode::kPing, .sequence = 1});
  std::uint64_t sequence = 0;
  ASSERT_TRUE(decode_request(good, &sequence));
  for (const std::size_t at : {1U, 16U, 23U, 24U, 38U, 39U}) {
    auto bad = good;
    bad[at] = std::byte{1};
    EXPECT_FALSE(decode_request(bad, &sequence)) << at;
  }
}

TEST(Request, ConditionsBelongToTheirOperations) {
  std::uint64_t sequence = 0;
  const auto accepted = [&](const Request& request) {
    return decode_request(encode_request(request), &sequence).has_value();
  };
  Request request{.opcode = Opcode::kPut, .key = as_bytes("k")};
  for (const auto condition : {Condition::kNone, Condition::kIfAbsent, Condition::kIfVersion}) {
    request.condition = condition;
    request.opcode = Opcode::kPut;
    EXPECT_TRUE(accepted(request));
    request.opcode = Opcode::kTouch;
    EXPECT_EQ(accepted(request), condition != Condition::kIfAbsent);
    request.opcode = Opcode::kRemove;
    EXPECT_EQ(accepted(request), condition != Condition::kIfAbsent);
    request.opcode = Opcode::kGet;
    EXPECT_EQ(accepted(request), condition == Condition::kNone);
  }
  request = {.opcode = Opcode::kPut, .expected = {7}, .key = as_bytes("k")};
  EXPECT_FALSE(accepted(request)) << "a version without its condition";
  request = {.opcode = Opcode::kPut, .ttl_ms = kMaxTtlMs, .key = as_bytes("k")};
  EXPECT_TRUE(accepted(request));
  request.ttl_ms += 1;
  EXPECT_FALSE(accepted(request));
  request = {
      .opcode = Opcode::kPut, .ttl_ms = 1'700'000'000'000, .until = true, .key = as_bytes("k")};
  EXPECT_TRUE(accepted(request));
  EXPECT_TRUE(decode_request(encode_request(request), &sequence)->until);
  request.ttl_ms = 0;
  EXPECT_FALSE(accepted(request)) << "a time that is not said";
  request = {.opcode = Opcode::kRemove, .ttl_ms = 1, .key = as_bytes("k")};
  EXPECT_FALSE(accepted(request));
}

TEST(Request, DurabilityIsForWrites) {
  const std::vector<std::byte> numbers(2 * kCounterBytes);
  std::uint64_t sequence = 0;
  const auto accepted = [&](const Request& request) {
    return decode_request(encode_request(request), &sequence).has_value();
  };
  const auto value_for = [&](Opcode opcode) -> Bytes {
    return Bytes(numbers).first(opcode == Opcode::kAdd    ? kCounterBytes
                                : opcode == Opcode::kSwap ? 2 * kCounterBytes
                                                          : 0);
  };
  for (const Durability level : {Durability::kMemory, Durability::kWal, Durability::kSync}) {
    for (const Opcode opcode :
         {Opcode::kPut, Opcode::kTouch, Opcode::kRemove, Opcode::kAdd, Opcode::kSwap}) {
      const Request request{
          .opcode = opcode, .durability = level, .key = as_bytes("k"), .value = value_for(opcode)};
      const auto bytes = encode_request(request);
      const auto back = decode_request(bytes, &sequence);
      ASSERT_TRUE(back) << to_string(opcode);
      EXPECT_EQ(back->durability, level);
    }
    EXPECT_FALSE(accepted({.opcode = Opcode::kGet, .durability = level, .key = as_bytes("k")}));
    for (const Opcode opcode : {Opcode::kPing, Opcode::kFlush, Opcode::kStats})
      EXPECT_FALSE(accepted({.opcode = opcode, .durability = level}));
  }
  EXPECT_FALSE(accepted(
      {.opcode = Opcode::kPut, .durability = static_cast<Durability>(4), .key = as_bytes("k")}));
}

TEST(Response, CarriesTheMarks) {
  std::vector<std::byte> out(kResponseHeaderBytes);
  encode(Response{.wal_mark = Version::of(3, 9), .sync_mark = Version::of(3, 7)}, out);
  const auto back = decode_response(out);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->wal_mark, Version::of(3, 9));
  EXPECT_EQ(back->sync_mark, Version::of(3, 7));
  encode(Response{.wal_mark = Version::of(3, 7), .sync_mark = Version::of(3, 9)}, out);
  EXPECT_FALSE(decode_response(out)) << "synced before it was written";
}

TEST(Response, OnlyAnErrorCanBeInDoubt) {
  std::vector<std::byte> out(kResponseHeaderBytes);
  encode(Response{.code = 66, .flags = Response::kMayHaveHappened}, out);
  EXPECT_TRUE(decode_response(out));
  encode(Response{.flags = Response::kMayHaveHappened}, out);
  EXPECT_FALSE(decode_response(out));
}

TEST(Response, ARefusalHasATimeToWaitAndNoSlot) {
  std::vector<std::byte> out(kResponseHeaderBytes);
  encode(Response{.code = 21, .slot = {88}, .retry_after_ms = 5}, out);
  const auto back = decode_response(out);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->retry_after_ms, 5U);
  EXPECT_TRUE(back->slot.empty());
}

TEST(Response, CarriesNumbersAndExpiry) {
  std::vector<std::byte> out(kResponseHeaderBytes + 8);
  const std::vector<std::byte> number(8);
  encode(Response{.opcode = Opcode::kGet,
                  .flags = Response::kCounter,
                  .slot = {88},
                  .expiry_ms = 77,
                  .value = number},
         out);
  auto back = decode_response(out);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->expiry_ms, 77U);
  EXPECT_EQ(back->slot.bits, 88U);
  EXPECT_EQ(back->retry_after_ms, 0U);
  encode(Response{.opcode = Opcode::kAdd, .value = Bytes(number).first(7)}, out);
  EXPECT_FALSE(decode_response(Bytes(out).first(kResponseHeaderBytes + 7))) << "no number";
}

RC_GTEST_PROP(Request, RandomBytesAreDecodedOrRefusedNeverMore,
              (const std::vector<std::uint8_t>& bytes)) {
  std::uint64_t sequence = 0;
  const auto request = decode_request(std::as_bytes(std::span(bytes)), &sequence);
  if (request) {
    RC_ASSERT(kRequestHeaderBytes + request->key.size() + request->value.size() == bytes.size());
  }
}

RC_GTEST_PROP(Response, RoundTrips,
              (const std::string& value, std::uint64_t version, std::uint64_t slot,
               std::uint8_t code)) {
  std::vector<std::byte> out(kResponseHeaderBytes + value.size());
  encode(Response{.opcode = Opcode::kPut,
                  .code = code,
                  .flags = Response::kInNeighbour,
                  .sequence = 5,
                  .version = {version},
                  .slot = {slot},
                  .retry_after_ms = 3,
                  .value = as_bytes(value)},
         out);
  const auto back = decode_response(out);
  RC_ASSERT(back.has_value());
  RC_ASSERT(back->code == code && back->version.bits == version);
  RC_ASSERT(back->flags == Response::kInNeighbour);
  RC_ASSERT(back->slot.bits == (code == 0 ? slot : 0));
  RC_ASSERT(back->retry_after_ms == (code == 0 ? 0U : 3U));
  RC_ASSERT(as_text(back->value) == value);
  out.push_back(std::byte{0});
  RC_ASSERT(!decode_response(out));
}

// WIRE-1: what has no meaning yet is refused, so that it can be given one.
TEST(Reserved, BytesAreRefusedEverywhere) {
  std::vector<std::byte> request(kConnectRequestBytes);
  encode(ConnectRequest{.credits_wanted = 1}, request);
  std::vector<std::byte> accept(kConnectAcceptBytes);
  encode(ConnectAccept{.epoch = 1,
                       .session = 1,
                       .credits = 1,
                       .max_message_bytes = 4096,
                       .max_sent_bytes = 1024,
                       .root = {.address = 8, .remote_key = 1, .length = kRootPageBytes}},
         accept);
  std::vector<std::byte> reject(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kBusy, .text = "full"}, reject);
  std::vector<std::byte> response(kResponseHeaderBytes);
  encode(Response{.opcode = Opcode::kPing}, response);
  std::vector<std::byte> message(kRequestHeaderBytes);
  encode(Request{.opcode = Opcode::kPing}, message);
  std::uint64_t sequence = 0;
  ASSERT_TRUE(decode_request(message, &sequence));
  ASSERT_TRUE(decode_connect_request(request) && decode_connect_accept(accept) &&
              decode_connect_reject(reject) && decode_response(response));
  const auto with = [](std::vector<std::byte> bytes, std::size_t at) {
    bytes[at] = std::byte{0x80};
    return bytes;
  };
  for (const std::size_t at : {10U, 15U})
    EXPECT_FALSE(decode_connect_request(with(request, at)));
  EXPECT_FALSE(decode_connect_reject(with(reject, 9)));
  for (const std::size_t at : {2U, 3U})
    EXPECT_FALSE(decode_response(with(response, at)));
  std::vector<std::byte> refusal(kResponseHeaderBytes);
  encode(Response{.opcode = Opcode::kPing, .code = 21}, refusal);
  ASSERT_TRUE(decode_response(refusal));
  for (const std::size_t at : {36U, 39U})
    EXPECT_FALSE(decode_response(with(refusal, at)));
  for (const std::size_t at : {38U, 39U})
    EXPECT_FALSE(decode_request(with(message, at), &sequence));
}

TEST(ConnectData, AcceptRoundTripsThroughPadding) {
  std::vector<std::byte> bytes(196);
  encode(ConnectAccept{.epoch = 1,
                       .session = 2,
                       .credits = 3,
                       .max_message_bytes = 4096,
                       .max_sent_bytes = 1024,
                       .root = {.address = 4, .remote_key = 5, .length = kRootPageBytes}},
         bytes);
  const auto accept = decode_connect_accept(bytes);
  ASSERT_TRUE(accept);
  EXPECT_EQ(accept->epoch, 1U);
  EXPECT_EQ(accept->session, 2U);
  EXPECT_EQ(accept->credits, 3);
  EXPECT_EQ(accept->root.remote_key, 5U);
  EXPECT_EQ(accept->hints.length, 0U);
}

TEST(ConnectData, AnAcceptWithPartOfWhatPacksAddIsRefused) {
  std::vector<std::byte> bytes(196);
  encode(ConnectAccept{.epoch = 1,
                       .session = 2,
                       .credits = 3,
                       .max_message_bytes = 4096,
                       .max_sent_bytes = 1024,
                       .root = {.address = 4, .remote_key = 5, .length = kRootPageBytes},
                       .max_packed = 32},
         bytes);
  for (std::uint16_t length = 80; length <= 100; ++length) {
    store_le(bytes.data() + 6, length);
    const auto accept = decode_connect_accept(bytes);
    EXPECT_EQ(accept.has_value(), length == 88 || length >= 96) << length;
    EXPECT_EQ(accept ? accept->max_packed : 0, length < 96 ? 0 : 32) << length;
  }
}

TEST(ConnectData, WhatMayBeSentHoldsALongAndIsNoLongerThanAnyMessage) {
  std::vector<std::byte> bytes(kConnectAcceptBytes);
  const auto limit_of = [&](std::uint32_t max_sent_bytes) {
    encode(ConnectAccept{.epoch = 1,
                         .session = 2,
                         .credits = 3,
                         .max_message_bytes = kMaxMessageBytes,
                         .max_sent_bytes = max_sent_bytes,
                         .root = {.address = 4, .remote_key = 5, .length = kRootPageBytes}},
           bytes);
    const auto accept = decode_connect_accept(bytes);
    return accept ? accept->max_sent_bytes : 0;
  };
  for (const std::uint32_t limit : {64U, 8192U, std::uint32_t{kMaxMessageBytes}})
    EXPECT_EQ(limit_of(limit), limit);
  EXPECT_EQ(limit_of(0), 0U);
  EXPECT_EQ(limit_of(kMaxMessageBytes + 64), 0U);
}

TEST(Request, ALongNamesAMessageOfALengthThatIsOne) {
  std::uint64_t sequence = 0;
  for (const std::size_t length : {std::size_t{0}, kRequestHeaderBytes - 1, kRequestHeaderBytes,
                                   kMaxMessageBytes, kMaxMessageBytes + 1}) {
    std::vector<std::byte> source(kMessageSourceBytes);
    encode(MessageSource{.length = static_cast<std::uint32_t>(length)}, source);
    const auto bytes = encode_request({.opcode = Opcode::kLong, .value = source});
    EXPECT_EQ(decode_request(bytes, &sequence).has_value(),
              length >= kRequestHeaderBytes && length <= kMaxMessageBytes)
        << length;
  }
}

TEST(ConnectData, StrangersAndOtherVersionsAreToldApart) {
  std::vector<std::byte> bytes(kConnectRequestBytes);
  EXPECT_EQ(decode_connect_request(bytes).error().code, Code::kCorrupt);
  encode(ConnectRequest{.credits_wanted = 4, .name = "a name longer than twenty-four bytes"},
         bytes);
  ASSERT_TRUE(decode_connect_request(bytes));
  EXPECT_EQ(decode_connect_request(bytes)->name, "a name longer than twent");
  bytes[4] = std::byte{99};
  EXPECT_EQ(decode_connect_request(bytes).error().code, Code::kVersionMismatch);
  EXPECT_EQ(decode_connect_request(Bytes(bytes).first(7)).error().code, Code::kCorrupt);
}

// Each side names both versions, whichever side is the newer one.
TEST(ConnectData, BothVersionsAreNamed) {
  const auto said_by_server = [](std::uint16_t version) -> std::string {
    std::vector<std::byte> bytes(kConnectRequestBytes);
    encode(ConnectRequest{.name = "a"}, bytes);
    store_le(bytes.data() + 4, version);
    return decode_connect_request(bytes).error().text;
  };
  const std::string ours = std::to_string(kWireVersion);
  const std::string rest = " of the wire format, and this server version " + ours +
                           ": install the same rkv on both sides";
  EXPECT_EQ(said_by_server(kWireVersion - 1),
            "the client speaks version " + std::to_string(kWireVersion - 1) + rest);
  EXPECT_EQ(said_by_server(kWireVersion + 1),
            "the client speaks version " + std::to_string(kWireVersion + 1) + rest);
  EXPECT_EQ(said_by_server(98), "the client speaks version 98" + rest);
  EXPECT_EQ(said_by_server(99), "the client speaks an unknown version" + rest);
  EXPECT_EQ(said_by_server(0xFFFF), "the client speaks an unknown version" + rest);
  EXPECT_LE(said_by_server(0xFFFF).size(), kConnectRejectMaxBytes - 12) << "it is not cut";

  std::vector<std::byte> accept(kConnectAcceptMaxBytes);
  encode(ConnectAccept{.epoch = 1, .session = 2, .credits = 3}, accept);
  std::vector<std::byte> reject(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kBusy, .text = "full"}, reject);
  for (const std::uint16_t version :
       {std::uint16_t{kWireVersion - 1}, std::uint16_t{kWireVersion + 1}}) {
    store_le(accept.data() + 4, version);
    store_le(reject.data() + 4, version);
    const std::string sentence = "the server speaks version " + std::to_string(version) +
                                 " of the wire format, and this client version " + ours +
                                 ": install the same rkv on both sides";
    EXPECT_EQ(decode_connect_accept(accept).error().text, sentence);
    EXPECT_EQ(decode_connect_reject(reject).error().text, sentence);
  }
}

TEST(ConnectData, RejectCarriesASentenceCutToFit) {
  std::vector<std::byte> bytes(kConnectRejectMaxBytes);
  const std::string text(300, 'x');
  const std::size_t used = encode(ConnectReject{.code = Code::kBusy, .text = text}, bytes);
  EXPECT_EQ(used, kConnectRejectMaxBytes);
  const auto reject = decode_connect_reject(bytes);
  ASSERT_TRUE(reject);
  EXPECT_EQ(reject->code, Code::kBusy);
  EXPECT_EQ(reject->text, std::string(136, 'x'));
}

TEST(ConnectData, ARejectMayNameThePrimary) {
  std::vector<std::byte> bytes(kConnectRejectMaxBytes);
  const std::string longest = std::string(kMaxServerAddressBytes - 6, 'h') + ":65535";
  for (const std::string& primary :
       {std::string("10.0.0.2:7471"), std::string("[fe80::1%ib0]:1"), longest}) {
    for (const std::string& text :
         {std::string(), std::string("a backup of"), std::string(300, 'x')}) {
      bytes.assign(bytes.size(), {});
      const std::size_t used =
          encode(ConnectReject{.code = Code::kNotPrimary, .text = text, .primary = primary}, bytes);
      ASSERT_LE(used, kConnectRejectMaxBytes);
      const auto reject = decode_connect_reject(bytes);  // padded, as it arrives
      ASSERT_TRUE(reject);
      EXPECT_EQ(reject->code, Code::kNotPrimary);
      EXPECT_EQ(reject->primary, primary);
      EXPECT_TRUE(text.starts_with(reject->text));
      EXPECT_FALSE(decode_connect_reject(Bytes(bytes).first(used - 1)));
    }
  }
  // Nothing that is not an address is sent, or taken from a peer.
  for (const std::string& primary :
       {std::string(), std::string("x"), std::string(":7471"), std::string("host:"),
        std::string("host:0"), std::string("host:65536"), std::string("host:x"),
        std::string("fe80::1:7471"), std::string("[]:1"), std::string("ho st:1"),
        std::string("a,b:1"), std::string("host\n:1"), longest + "0"}) {
    bytes.assign(bytes.size(), {});
    encode(ConnectReject{.code = Code::kNotPrimary, .text = "t", .primary = primary}, bytes);
    const auto sent = decode_connect_reject(bytes);
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->primary, "");
    encode(ConnectReject{.code = Code::kNotPrimary, .text = "t", .primary = longest}, bytes);
    bytes[13] = static_cast<std::byte>(primary.size());
    std::ranges::copy(as_bytes(primary), bytes.begin() + 14);
    EXPECT_FALSE(decode_connect_reject(bytes)) << primary;
  }
}

// A client that knows of groups says so in a bit that other servers take for credits.
TEST(ConnectData, TheBitOfGroups) {
  std::vector<std::byte> bytes(kConnectRequestBytes);
  const ConnectRequest plain{.credits_wanted = 4};
  encode(plain, bytes);
  EXPECT_EQ(load_le<std::uint16_t>(bytes.data() + 8), 4);
  EXPECT_FALSE(decode_connect_request(bytes)->checks_group);
  const ConnectRequest checks{.credits_wanted = 4, .checks_group = true};
  encode(checks, bytes);
  EXPECT_EQ(load_le<std::uint16_t>(bytes.data() + 8), 0x8004);
  EXPECT_EQ(checks.credits_field(), 0x8004);
  EXPECT_TRUE(decode_connect_request(bytes)->checks_group);
  EXPECT_EQ(decode_connect_request(bytes)->credits_wanted, 4);

  ConnectAccept accept{.epoch = 1,
                       .session = 2,
                       .credits = 3,
                       .max_message_bytes = 4096,
                       .max_sent_bytes = 1024,
                       .root = {.address = 4, .remote_key = 5, .length = kRootPageBytes}};
  bytes.resize(kConnectAcceptBytes);
  encode(accept, bytes);
  EXPECT_FALSE(decode_connect_accept(bytes)->in_group);
  accept.in_group = true;
  encode(accept, bytes);
  EXPECT_TRUE(decode_connect_accept(bytes)->in_group);
  accept.store = 0x12345678;
  encode(accept, bytes);
  EXPECT_EQ(decode_connect_accept(bytes)->store, 0x12345678U);
  accept.in_group = false;
  encode(accept, bytes);
  EXPECT_EQ(decode_connect_accept(bytes)->store, 0x12345678U) << "of a data directory";
  bytes[90] = std::byte{2};
  EXPECT_FALSE(decode_connect_accept(bytes));
}

constexpr Proof kSomeProof = {std::byte{1}, std::byte{2}, std::byte{3}};

TEST(ConnectData, AUserAndAProofTakeThePlaceOfTheName) {
  std::vector<std::byte> bytes(kConnectRequestBytes);
  encode(ConnectRequest{.credits_wanted = 4,
                        .session_to_resume = 6,
                        .client_nonce = 7,
                        .name = "not sent",
                        .user = 77,
                        .stamp = 5,
                        .proof = kSomeProof},
         bytes);
  const auto request = decode_connect_request(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->credits_wanted, 4);
  EXPECT_EQ(request->session_to_resume, 6U);
  EXPECT_EQ(request->client_nonce, 7U);
  EXPECT_EQ(request->name, "");
  EXPECT_EQ(request->user, 77U);
  EXPECT_EQ(request->stamp, 5U);
  EXPECT_EQ(request->proof, kSomeProof);
  const auto with = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::byte> changed = bytes;
    changed[at] = std::byte{value};
    return decode_connect_request(changed);
  };
  EXPECT_FALSE(with(10, 2)) << "a kind that there is not";
  EXPECT_FALSE(with(11, 1));
  EXPECT_FALSE(with(10, 0)) << "a name with a user's number";
  EXPECT_FALSE(with(12, 0)) << "no user";
  EXPECT_FALSE(with(32, 0)) << "a proof without a stamp";
}

TEST(ConnectData, ARequestWithoutAStampHasNoProof) {
  std::vector<std::byte> bytes(kConnectRequestBytes);
  encode(ConnectRequest{.user = 77, .proof = kSomeProof}, bytes);
  const auto request = decode_connect_request(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->user, 77U);
  EXPECT_EQ(request->proof, Proof{});
}

TEST(ConnectData, AChallengeFollowsTheSentence) {
  std::vector<std::byte> bytes(kConnectRejectMaxBytes);
  for (const std::string& text : {std::string(), std::string("who?"), std::string(300, 'x')}) {
    bytes.assign(bytes.size(), {});
    const std::size_t used =
        encode(ConnectReject{.code = Code::kUnauthenticated,
                             .text = text,
                             .challenge = Challenge{.stamp = 5, .cookie = kSomeProof}},
               bytes);
    const auto reject = decode_connect_reject(Bytes(bytes).first(used));
    ASSERT_TRUE(reject);
    EXPECT_EQ(reject->code, Code::kUnauthenticated);
    EXPECT_EQ(reject->text, text.substr(0, kConnectRejectMaxBytes - 12 - 24));
    ASSERT_TRUE(reject->challenge);
    EXPECT_EQ(reject->challenge->stamp, 5U);
    EXPECT_EQ(reject->challenge->cookie, kSomeProof);
    EXPECT_FALSE(decode_connect_reject(Bytes(bytes).first(used - 1)));
    bytes[9] = std::byte{2};
    EXPECT_FALSE(decode_connect_reject(bytes));
  }
}

TEST(ConnectData, AnAcceptMayCarryTheServersAnswer) {
  ConnectAccept accept{.epoch = 1,
                       .session = 2,
                       .credits = 3,
                       .max_message_bytes = 4096,
                       .max_sent_bytes = 1024,
                       .root = {.address = 4, .remote_key = 5, .length = kRootPageBytes}};
  std::vector<std::byte> bytes(196);
  EXPECT_EQ(encode(accept, bytes), kConnectAcceptBytes);
  EXPECT_FALSE(decode_connect_accept(bytes)->answer);
  accept.answer = kSomeProof;
  EXPECT_EQ(encode(accept, bytes), kConnectAcceptMaxBytes);
  EXPECT_EQ(decode_connect_accept(bytes)->answer, kSomeProof);
  store_le(bytes.data() + 6, std::uint16_t{kConnectAcceptMaxBytes - 1});
  EXPECT_FALSE(decode_connect_accept(bytes)->answer) << "a part of an answer is none";
}

// Each operation by name, so that no new one gets a role by accident.
TEST(Opcodes, NeedTheRolesThatTheWirePageSays) {
  const std::map<std::string, Role> roles = {
      {"get", Role::kRead},     {"put", Role::kWrite},          {"remove", Role::kWrite},
      {"ping", Role::kRead},    {"flush", Role::kWrite},        {"stats", Role::kAdmin},
      {"add", Role::kWrite},    {"swap", Role::kWrite},         {"put_large", Role::kWrite},
      {"scan", Role::kRead},    {"open_counter", Role::kWrite}, {"backup", Role::kAdmin},
      {"long", Role::kRead},    {"pack", Role::kRead},          {"outcome", Role::kWrite},
      {"revoke", Role::kAdmin}, {"move_primary", Role::kAdmin}, {"remove_replica", Role::kAdmin},
      {"touch", Role::kWrite},  {"set_log_level", Role::kAdmin}};
  EXPECT_EQ(roles.size() + 1, wire_detail::kOpcodes);
  for (std::uint8_t number = 1; number <= static_cast<std::uint8_t>(kLastOpcode); ++number) {
    const OpcodeTraits& traits = traits_of(static_cast<Opcode>(number));
    ASSERT_TRUE(roles.contains(traits.name)) << traits.name;
    EXPECT_EQ(traits.role, roles.at(traits.name)) << traits.name;
  }
  EXPECT_EQ(traits_of(static_cast<Opcode>(200)).role, Role::kAdmin);
}

// An opcode that only carries other requests leaves the decision to them.
TEST(Opcodes, WhatChangesOrSavesIsNotForReaders) {
  for (std::uint8_t number = 1; number <= static_cast<std::uint8_t>(kLastOpcode); ++number) {
    const auto opcode = static_cast<Opcode>(number);
    const OpcodeTraits& traits = traits_of(opcode);
    if (opcode == Opcode::kPack) continue;
    EXPECT_TRUE(traits.role > Role::kRead || (!traits.may_change && !traits.saves)) << traits.name;
  }
}

// A client asks about a write that may have happened, and about nothing that the server does not
// keep: it would be told that it was not applied.
TEST(Opcodes, WhatIsKeptMayChangeSomething) {
  for (std::uint8_t number = 1; number <= static_cast<std::uint8_t>(kLastOpcode); ++number) {
    const OpcodeTraits& traits = traits_of(static_cast<Opcode>(number));
    EXPECT_TRUE(!traits.kept || traits.may_change) << traits.name;
    EXPECT_TRUE(traits.kept || !traits.acknowledges) << traits.name;
  }
}

TEST(Wire, AnOutcomeNamesASessionAndASequence) {
  const auto decoded = [](std::uint64_t session, std::uint64_t number) {
    std::array<std::byte, kWriteIdBytes> value{};
    encode(WriteId{.session = session, .sequence = number}, value);
    std::array<std::byte, kRequestHeaderBytes + kWriteIdBytes> bytes{};
    encode(Request{.opcode = Opcode::kOutcome, .sequence = 16, .value = value}, bytes);
    std::uint64_t sequence = 0;
    const auto request = decode_request(bytes, &sequence);
    EXPECT_EQ(sequence, 16U);
    return request ? Code{} : request.error().code;
  };
  EXPECT_EQ(decoded(9, 32), Code{});
  EXPECT_EQ(decoded(0, 32), Code::kInvalidArgument);
  EXPECT_EQ(decoded(9, 0), Code::kInvalidArgument);
  const auto write = decode_write_id(std::array<std::byte, kWriteIdBytes>{
      std::byte{9}, {}, {}, {}, {}, {}, {}, {}, std::byte{32}});
  ASSERT_TRUE(write);
  EXPECT_EQ(write->session, 9U);
  EXPECT_EQ(write->sequence, 32U);
}

RC_GTEST_PROP(ConnectData, RandomBytesAreRefused, (const std::vector<std::uint8_t>& bytes)) {
  const Bytes view = std::as_bytes(std::span(bytes));
  RC_ASSERT(!decode_connect_request(view));
  RC_ASSERT(!decode_connect_accept(view));
  RC_ASSERT(!decode_connect_reject(view));
}

std::vector<std::byte> put_large(const ValueSource& source) {
  std::vector<std::byte> value(kValueSourceBytes);
  encode(source, value);
  std::vector<std::byte> bytes(kRequestHeaderBytes + 3 + value.size());
  encode(
      Request{.opcode = Opcode::kPutLarge, .sequence = 5, .key = as_bytes("key"), .value = value},
      bytes);
  return bytes;
}

TEST(Wire, APutLargeSaysWhereTheValueIs) {
  std::uint64_t sequence = 0;
  const auto bytes =
      put_large({.address = 1ULL << 50, .remote_key = 7, .length = 200'000, .digest = 9});
  const auto request = decode_request(bytes, &sequence);  // views into `bytes`
  ASSERT_TRUE(request);
  const auto source = decode_value_source(request->value);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->address, 1ULL << 50);
  EXPECT_EQ(source->remote_key, 7U);
  EXPECT_EQ(source->length, 200'000U);
  EXPECT_EQ(source->digest, 9U);
}

TEST(Wire, APutLargeOfAWrongLengthIsRefused) {
  std::uint64_t sequence = 0;
  const auto code_for = [&](std::uint32_t length) {
    const auto request = decode_request(put_large({.length = length}), &sequence);
    return request ? Code{} : request.error().code;
  };
  EXPECT_EQ(code_for(0), Code::kInvalidArgument);
  EXPECT_EQ(code_for(kMaxInlineBytes), Code::kInvalidArgument);
  EXPECT_EQ(code_for(kMaxInlineBytes + 1), Code{});
  EXPECT_EQ(code_for(kMaxValueBytes), Code{});
  EXPECT_EQ(code_for(kMaxValueBytes + 1), Code::kTooLarge);
  EXPECT_EQ(code_for(~0U), Code::kTooLarge);
  auto bytes = put_large({.length = 200'000});
  bytes.pop_back();
  store_le<std::uint32_t>(bytes.data() + 4, kValueSourceBytes - 1);
  EXPECT_EQ(decode_request(bytes, &sequence).error().code, Code::kInvalidArgument);
}

TEST(Wire, AnAnswerByReadHasASlotAndIsAGets) {
  for (const std::uint64_t slot : {std::uint64_t{88}, std::uint64_t{0}}) {
    for (const Opcode opcode : {Opcode::kGet, Opcode::kPut}) {
      std::vector<std::byte> bytes(kResponseHeaderBytes);
      encode(Response{.opcode = opcode, .flags = Response::kByRead, .slot = {slot}}, bytes);
      EXPECT_EQ(decode_response(bytes).has_value(), slot != 0 && opcode == Opcode::kGet);
    }
  }
}

}  // namespace
}  // namespace rkv
