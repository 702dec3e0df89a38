// Messages between replicas as bytes: there and back, and what is refused.
#include "server/group/rules/encoding.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

Hello a_hello() {
  Hello hello{.replica = {.name = "n1", .address = "h:7471", .epoch = 9},
              .group = 7,
              .term = 4,
              .start = {.term = 1, .version = 10},
              .history = {}};
  hello.history.extend({.term = 1, .version = 10});
  hello.history.extend({.term = 4, .version = 80});
  return hello;
}

Entries some_entries() {
  const LogPosition previous{.term = 1, .version = 10};
  return {.term = 4,
          .number = 3,
          .previous = previous,
          .block = EntryBlock{.previous = previous,
                              .last = {.term = 4, .version = 80},
                              .bytes = std::make_shared<std::vector<std::byte>>(100, std::byte{5})},
          .marks = {.replicated = 10, .wal = 9, .sync = 8},
          .unix_ms = 77,
          .wanted = {.wal = 33, .sync = 22}};
}

template <class T>
T there_and_back(const T& message) {
  const auto decoded = decode_replication(encode(message));
  EXPECT_TRUE(decoded) << to_string(decoded.error());
  return std::get<T>(*decoded);
}

TEST(ReplicationEncoding, AHelloComesBack) {
  const Hello hello = there_and_back(a_hello());
  EXPECT_EQ(hello.replica.name, "n1");
  EXPECT_EQ(hello.replica.address, "h:7471");
  EXPECT_EQ(hello.replica.epoch, 9U);
  EXPECT_EQ(hello.group, 7U);
  EXPECT_EQ(hello.term, 4U);
  EXPECT_EQ(hello.start, a_hello().start);
  EXPECT_EQ(hello.history.terms(), a_hello().history.terms());
}

TEST(ReplicationEncoding, EntriesComeBackWithAndWithoutABlock) {
  Entries sent = some_entries();
  Entries entries = there_and_back(sent);
  EXPECT_EQ(entries.number, sent.number);
  EXPECT_EQ(entries.term, sent.term);
  EXPECT_EQ(entries.previous, sent.previous);
  EXPECT_EQ(entries.marks, sent.marks);
  EXPECT_EQ(entries.unix_ms, sent.unix_ms);
  EXPECT_EQ(entries.wanted, sent.wanted);
  ASSERT_TRUE(entries.block);
  EXPECT_EQ(entries.block->last, sent.block->last);
  EXPECT_EQ(*entries.block->bytes, *sent.block->bytes);
  sent.block.reset();
  EXPECT_FALSE(there_and_back(sent).block);
}

TEST(ReplicationEncoding, AnAnswerComesBack) {
  const Answer answer = there_and_back(Answer{
      .number = 5, .last = {.term = 4, .version = 80}, .wal = 70, .sync = 60, .may_lead = false});
  EXPECT_EQ(answer.number, 5U);
  EXPECT_EQ(answer.last, (LogPosition{.term = 4, .version = 80}));
  EXPECT_EQ(answer.wal, 70U);
  EXPECT_EQ(answer.sync, 60U);
}

TEST(ReplicationEncoding, AHandOverComesBack) {
  EXPECT_EQ(there_and_back(HandOver{.term = 4}).term, 4U);
  EXPECT_FALSE(decode_replication(encode(HandOver{.term = 0})));
}

LaneOffer an_offer() {
  LaneOffer offer{.token = {}, .verbs_port = 7000, .shm_port = 7001};
  for (std::size_t i = 0; i < offer.token.size(); ++i)
    offer.token[i] = static_cast<std::byte>(i + 1);
  return offer;
}

TEST(ReplicationEncoding, MessagesOfALaneComeBack) {
  LaneOffer sent = an_offer();
  for (const auto& [verbs, shm] : {std::pair{7000, 7001}, std::pair{7000, 0}, std::pair{0, 7001}}) {
    sent.verbs_port = static_cast<std::uint16_t>(verbs);
    sent.shm_port = static_cast<std::uint16_t>(shm);
    const LaneOffer offer = there_and_back(sent);
    EXPECT_EQ(offer.token, sent.token);
    EXPECT_EQ(offer.verbs_port, sent.verbs_port);
    EXPECT_EQ(offer.shm_port, sent.shm_port);
  }
  there_and_back(LaneSwitch{});
  there_and_back(NoLane{});
  EXPECT_EQ(there_and_back(LaneEnd{.messages = 1ULL << 40}).messages, 1ULL << 40);
}

TEST(ReplicationEncoding, ALaneEndIsKnown) {
  std::vector<std::byte> message = encode(LaneEnd{.messages = 3});
  ASSERT_TRUE(lane_end_of(message));
  EXPECT_EQ(lane_end_of(message)->messages, 3U);
  EXPECT_FALSE(lane_end_of(encode(HandOver{.term = 4})));
  EXPECT_FALSE(lane_end_of(encode(LaneSwitch{})));
  message[17] ^= std::byte{1};
  EXPECT_FALSE(lane_end_of(message));
  EXPECT_FALSE(lane_end_of({}));
}

TEST(ReplicationEncoding, ALaneSwitchIsKnown) {
  std::vector<std::byte> message = encode(LaneSwitch{});
  EXPECT_TRUE(is_lane_switch(message));
  EXPECT_FALSE(is_lane_switch(encode(CopyWait{})));
  EXPECT_FALSE(is_lane_switch(encode(an_offer())));
  message[17] ^= std::byte{1};
  EXPECT_FALSE(is_lane_switch(message));
  EXPECT_FALSE(is_lane_switch({}));
}

CopyRequest a_request() {
  return {.replica = {.name = "n1", .address = "h:7471", .epoch = 9}, .group = 7, .term = 4};
}

TEST(ReplicationEncoding, MessagesOfACopyComeBack) {
  const CopyRequest request = there_and_back(a_request());
  EXPECT_EQ(request.replica.name, "n1");
  EXPECT_EQ(request.replica.address, "h:7471");
  EXPECT_EQ(request.replica.epoch, 9U);
  EXPECT_EQ(request.group, 7U);
  EXPECT_EQ(request.term, 4U);
  there_and_back(CopyNeeded{});
  there_and_back(CopyWait{});
  const CopyBegin begin = there_and_back(CopyBegin{.files = 3, .bytes = 5});
  EXPECT_EQ(begin.files, 3U);
  EXPECT_EQ(begin.bytes, 5U);
  const CopyFile file = there_and_back(CopyFile{.name = "000012.sst", .bytes = 0});
  EXPECT_EQ(file.name, "000012.sst");
  EXPECT_EQ(file.bytes, 0U);
  for (const std::size_t length : {std::size_t{1}, kMaxPieceBytes}) {
    const CopyPiece piece{.bytes = std::vector<std::byte>(length, std::byte{3})};
    EXPECT_EQ(there_and_back(piece).bytes, piece.bytes);
  }
  const CopyEnd end = there_and_back(CopyEnd{.files = 1, .bytes = 2, .digest = 3});
  EXPECT_EQ(end.files, 1U);
  EXPECT_EQ(end.bytes, 2U);
  EXPECT_EQ(end.digest, 3U);
}

// Each single bit, and each shorter message.
TEST(ReplicationEncoding, ADamagedMessageIsRefused) {
  for (std::vector<std::byte> message :
       {encode(a_hello()), encode(some_entries()), encode(Answer{.number = 1, .last = {}}),
        encode(a_request()), encode(HandOver{.term = 4}), encode(an_offer()), encode(LaneSwitch{}),
        encode(server::LaneEnd{.messages = 3}), encode(NoLane{}), encode(CopyWait{}),
        encode(CopyBegin{.files = 1, .bytes = 1}), encode(CopyFile{.name = "CURRENT", .bytes = 1}),
        encode(CopyPiece{.bytes = std::vector<std::byte>(20)}),
        encode(CopyEnd{.files = 1, .bytes = 1, .digest = 1})}) {
    for (std::size_t bit = 0; bit < message.size() * 8; ++bit) {
      const auto mask = static_cast<std::byte>(1U << (bit % 8));
      message[bit / 8] ^= mask;
      EXPECT_FALSE(decode_replication(message)) << "bit " << bit;
      message[bit / 8] ^= mask;
    }
    for (std::size_t length = 0; length < message.size(); ++length)
      EXPECT_FALSE(decode_replication(Bytes(message).first(length)));
  }
}

TEST(ReplicationEncoding, AnotherVersionIsNamed) {
  std::vector<std::byte> message = encode(Answer{.number = 1, .last = {}});
  message[4] = std::byte{200};
  EXPECT_EQ(decode_replication(message).error().code, Code::kVersionMismatch);
}

TEST(ReplicationEncoding, ALongHistoryIsCutAtItsBeginning) {
  Hello hello = a_hello();
  for (std::uint32_t term = 5; term < 100'000; ++term)
    hello.history.extend({.term = term, .version = 80 + (std::uint64_t{term} * 8)});
  const auto message = encode(hello);
  EXPECT_LE(message.size(), kMaxHelloBytes);
  const auto back = there_and_back(hello);
  EXPECT_EQ(back.history.last(), hello.history.last());
  EXPECT_LT(back.history.terms().size(), hello.history.terms().size());
}

}  // namespace
}  // namespace rkv::server
