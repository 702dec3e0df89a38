// A connection to a server that is not of the client library: it keeps to the protocol as far as
// the test wants it to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/wire.h"
#include "rdma/choose.h"
#include "tests/system/world.h"

namespace rkv::testing_support {

inline constexpr std::int64_t kAnswerMs = 20'000;

inline std::unique_ptr<rdma::Transport> make_transport(const std::string& address) {
  auto chosen =
      rdma::choose_for_client({.kind = test_transport_kind(), .verbs = {.address = address}});
  EXPECT_TRUE(chosen) << to_string(chosen.error());
  return std::move(chosen->transport);
}

// A connection of nobody's library: sends and takes answers only when the caller asks it to.
class Raw {
 public:
  // Room for so many answers of so many bytes that nobody has looked at.
  struct Room {
    std::uint32_t answers = 8;
    std::uint32_t bytes = 16'384;
  };
  // `last_session`: what it claims its last connection was, which the server then ends.
  Raw(rdma::Transport& transport, const std::string& address, Room room,
      std::uint64_t last_session = 0)
      : queue_(std::move(*transport.create_queue(
            {.receive_buffers = room.answers, .receive_bytes = room.bytes}))),
        region_(std::move(*transport.allocate(kSlots * kSlotBytes, rdma::Access::kLocal))),
        open_region_(
            std::move(*transport.allocate(kSlots * kOpenBytes, rdma::Access::kRemoteRead))) {
    std::byte data[kConnectRequestBytes];
    encode(ConnectRequest{.credits_wanted = 4, .session_to_resume = last_session, .name = "raw"},
           data);
    auto made = transport.connect(*queue_, {.grant = rdma::Access::kRemoteRead}, address, data,
                                  Deadline::after_ms(clock_, kAnswerMs), &rejection_);
    if (made) connection_ = std::move(*made);
  }
  bool connected() const { return connection_ != nullptr; }
  // Why not, in the server's words.
  std::string refusal() const {
    const auto reject =
        decode_connect_reject({rejection_.reason, std::max<std::size_t>(rejection_.length, 0)});
    return reject ? std::string(reject->text) : "(nothing readable)";
  }
  ConnectAccept accepted() const {
    const auto accept = decode_connect_accept(connection_->private_data());
    EXPECT_TRUE(accept);
    return accept ? *accept : ConnectAccept{};
  }
  bool alive() const { return connected() && connection_->alive(); }

  bool send(const Request& request) { return send_from(*region_, kSlotBytes, request); }
  // Has the server READ the request from memory of ours.
  bool announce(Request request) {
    request.sequence = sent_ + 1;
    const std::size_t at = request.sequence % kSlots * kOpenBytes;
    const std::size_t length = encode(request, open_region_->bytes().subspan(at, kOpenBytes));
    return send_source({.address = open_region_->address() + at,
                        .remote_key = open_region_->remote_key(),
                        .length = static_cast<std::uint32_t>(length)});
  }
  bool ask_long(const Request& request) {
    if (kRequestHeaderBytes + request.key.size() + request.value.size() > accepted().max_sent_bytes)
      return announce(request) && await_answer();
    return send_from(*open_region_, kOpenBytes, request) && await_answer();
  }
  bool put_large(std::string_view key, const ValueSource& source) {
    std::array<std::byte, kValueSourceBytes> bytes{};
    encode(source, bytes);
    return send({.opcode = Opcode::kPutLarge, .key = as_bytes(key), .value = bytes});
  }
  // Whatever it is.
  bool send_bytes(Bytes bytes) {
    const MutableBytes slot = region_->bytes().subspan(++sent_ % kSlots * kSlotBytes, kSlotBytes);
    std::ranges::copy(bytes, slot.begin());
    return post(slot.first(bytes.size()), *region_);
  }
  bool send_source(const MessageSource& source) {
    std::array<std::byte, kMessageSourceBytes> bytes{};
    encode(source, bytes);
    return send({.opcode = Opcode::kLong, .value = bytes});
  }
  // READs the server's memory.
  bool read(MutableBytes to, std::uint64_t address, std::uint32_t remote_key) {
    const auto operation = rdma::Operation::read(region_->bytes().first(to.size()),
                                                 region_->local_key(), address, remote_key, 0);
    if (!connection_->post({&operation, 1})) return false;
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    rdma::Completion done;
    while (queue_->poll({&done, 1}) == 0 && !deadline.passed())
      queue_->wait(deadline);
    std::ranges::copy(region_->bytes().first(to.size()), to.begin());
    return done.kind == rdma::Completion::Kind::kRead &&
           done.status == rdma::Completion::Status::kOk;
  }
  // READs the beginning of a window again and again, several at a time, until `over`. Returns how
  // many READs have ended.
  std::uint64_t read_without_pause(const RemoteWindow& window, const std::atomic<bool>& over) {
    constexpr std::size_t kAtATime = 8;
    const std::size_t length = std::min<std::size_t>(window.length, kSlots * kSlotBytes);
    const auto operation = rdma::Operation::read(
        region_->bytes().first(length), region_->local_key(), window.address, window.remote_key, 0);
    std::array<rdma::Completion, 16> done;
    std::size_t under_way = 0;
    std::uint64_t ended = 0;
    while (alive() && (!over.load() || under_way != 0)) {
      while (under_way < kAtATime && !over.load()) {
        const auto posted = connection_->post({&operation, 1});
        if (!posted || *posted == 0) break;
        ++under_way;
      }
      const std::size_t count = queue_->poll(done);
      for (std::size_t i = 0; i < count; ++i) {
        if (done[i].kind != rdma::Completion::Kind::kRead) continue;
        --under_way;
        ++ended;
      }
      if (count == 0) wait(10);
    }
    return ended;
  }
  // Takes what has come; how many answers there were.
  std::size_t take() {
    std::array<rdma::Completion, 16> done;
    std::size_t answers = 0;
    const std::size_t count = queue_->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].kind != rdma::Completion::Kind::kReceive) continue;
      ++answers;
      queue_->release({&done[i].receive_buffer, 1});
    }
    return answers;
  }
  void wait(std::int64_t at_most_ms) { queue_->wait(Deadline::after_ms(clock_, at_most_ms)); }
  // Until the connection has ended.
  void take_to_the_end() {
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    while (alive() && !deadline.passed()) {
      take();
      wait(10);
    }
  }
  // The server hears nothing of it until take(), and what it READs is not answered any more.
  void fall_silent() { connection_->abort(); }
  void leave() {
    connection_->abort();
    take_to_the_end();
  }
  bool ask(const Request& request) { return send(request) && await_answer(); }

 private:
  bool await_answer() {
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    while (take() == 0) {
      if (!alive() || deadline.passed()) return false;
      queue_->wait(deadline);
    }
    return true;
  }
  bool send_from(rdma::Region& region, std::size_t slot_bytes, Request request) {
    request.sequence = ++sent_;
    const MutableBytes slot = region.bytes().subspan(sent_ % kSlots * slot_bytes, slot_bytes);
    return post(slot.first(encode(request, slot)), region);
  }
  bool post(MutableBytes message, const rdma::Region& region) {
    const auto operation = rdma::Operation::send(message, region.local_key(), sent_);
    const auto posted = connection_->post({&operation, 1});
    return posted && *posted == 1;
  }

  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kSlotBytes = 8192;
  static constexpr std::size_t kOpenBytes = 16'384;
  SteadyClock clock_;
  std::unique_ptr<rdma::Queue> queue_;
  std::unique_ptr<rdma::Region> region_;
  std::unique_ptr<rdma::Region> open_region_;  // the server may READ it
  std::unique_ptr<rdma::Connection> connection_;
  rdma::Rejection rejection_;
  std::uint64_t sent_ = 0;
};

}  // namespace rkv::testing_support
