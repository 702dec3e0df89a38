// The bytes that a peer sends over a TCP connection (rdma/transport/tcp/protocol.h), in pieces. The
// answers follow the protocol, messages come whole and in order, no memory is READ or changed that
// was not granted, and input that breaks the protocol ends the connection (TCPCONN-1, TCPCONN-3,
// TCPREG-3).
//
// The input is a list of frames, each with one of a few targets or with one of the input's own; or
// of any bytes. `Model` defines independently how a connection must react to them.
#include <sys/socket.h>

#include <deque>
#include <optional>

#include "rdma/transport/tcp/connection.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

using namespace rdma;
using namespace rdma::tcp;

constexpr std::size_t kRegionBytes = 512;
constexpr std::uint32_t kBuffers = 2;
constexpr std::uint32_t kBufferBytes = 128;
constexpr std::size_t kMostBytes = 16384;
constexpr std::size_t kOwnReadBytes = 64;

using Buffer = std::vector<std::byte>;

void append(Buffer& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// The memory of the connection's process.
struct World {
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  alignas(8) std::array<std::byte, kRegionBytes> readable{};
  alignas(8) std::array<std::byte, kRegionBytes> words{};
  alignas(8) std::array<std::byte, kRegionBytes> secret{};
  std::uint32_t readable_key = shared->regions.add(readable, Access::kRemoteRead);
  std::uint32_t words_key = shared->regions.add(words, Access::kRemoteReadAtomic);

  void reset() {
    for (std::size_t i = 0; i < kRegionBytes; ++i) {
      readable[i] = static_cast<std::byte>(i);
      words[i] = static_cast<std::byte>(3 * i);
      secret[i] = std::byte{0x5a};
    }
  }
};
World& world() {
  static World one;
  return one;
}

std::uint64_t address_of(Bytes memory) {
  return reinterpret_cast<std::uint64_t>(memory.data());
}

Target next_target(Input& input) {
  World& of = world();
  const auto offset = input.number<std::int16_t>();
  const auto at = [&](Bytes memory, std::uint32_t key) {
    return Target{.address = address_of(memory) + static_cast<std::uint64_t>(std::int64_t{offset}),
                  .key = key};
  };
  switch (input.number<std::uint8_t>() % 6) {
    case 0:
    case 1:
      return at(of.readable, of.readable_key);
    case 2:
    case 3:
      return at(of.words, of.words_key);
    case 4:
      return at(of.secret, of.readable_key);
    default:
      return {.address = input.number<std::uint64_t>(), .key = input.number<std::uint32_t>()};
  }
}

// The bytes that the peer sends.
Buffer said(Input& input) {
  Buffer bytes;
  while (!input.empty() && bytes.size() < kMostBytes) {
    const auto kind = input.number<std::uint8_t>();
    if (kind == 0) {
      append(bytes, input.take(input.number<std::uint8_t>()));
      continue;
    }
    const Header header{.kind = static_cast<Kind>(kind % 9),
                        .length = input.number<std::uint16_t>()};
    std::array<std::byte, kHeaderBytes + kAtomicBytes> frame{};
    const bool has_word = header.kind == Kind::kCompareSwap || header.kind == Kind::kFetchAdd ||
                          header.kind == Kind::kWord;
    encode(Header{.kind = header.kind, .length = has_word ? 8 : header.length % 300}, frame.data());
    std::size_t length = kHeaderBytes;
    if (header.kind == Kind::kRead) {
      encode(next_target(input), frame.data() + length);
      length += kTargetBytes;
    } else if (fixed_bytes(header.kind) == kAtomicBytes) {
      encode(AtomicRequest{.target = next_target(input),
                           .compare_or_add = input.number<std::uint8_t>(),
                           .swap = input.number<std::uint8_t>()},
             frame.data() + length);
      length += kAtomicBytes;
    }
    append(bytes, Bytes(frame).first(length));
    if (header.kind == Kind::kSend || header.kind == Kind::kData || header.kind == Kind::kWord)
      append(bytes, input.take(has_word ? 8 : header.length % 300));
  }
  return bytes;
}

// The reactions that the protocol requires to such bytes.
class Model {
 public:
  explicit Model(Bytes bytes) : rest_(bytes) {
    std::memcpy(words_.data(), world().words.data(), kRegionBytes);
    while (!is_over_ && take_frame()) {
    }
  }
  bool is_over() const { return is_over_; }  // it was refused, or breaks the protocol
  bool is_refused() const { return is_refused_; }
  const Buffer& answers() const { return answers_; }
  const std::deque<Buffer>& messages() const { return messages_; }
  const std::array<std::byte, kRegionBytes>& words() const { return words_; }
  std::size_t answered_requests() const { return answered_; }

 private:
  bool end() {
    is_over_ = true;
    return false;
  }
  bool refuse() {
    is_refused_ = true;
    add(Kind::kRefused, {});
    return end();
  }
  void add(Kind kind, Bytes behind) {
    std::array<std::byte, kHeaderBytes> header{};
    encode(Header{.kind = kind, .length = static_cast<std::uint32_t>(behind.size())},
           header.data());
    append(answers_, header);
    append(answers_, behind);
  }
  // The memory that a request may look at.
  std::optional<std::size_t> in(Bytes memory, std::uint32_t key, const Target& target,
                                std::uint64_t length) const {
    const std::uint64_t begin = address_of(memory);
    if (target.key != key || target.address < begin) return std::nullopt;
    const std::uint64_t offset = target.address - begin;
    if (offset > kRegionBytes || length > kRegionBytes - offset) return std::nullopt;
    return static_cast<std::size_t>(offset);
  }
  bool take_frame() {
    if (rest_.size() < kHeaderBytes) return false;
    const auto kind = load_le<std::uint32_t>(rest_.data());
    const auto length = load_le<std::uint32_t>(rest_.data() + 4);
    if (kind < 1 || kind > 7) return end();
    const bool is_word = kind == 3 || kind == 4 || kind == 6;
    if (is_word ? length != 8 : kind == 7 ? length != 0 : length > kLongest) return end();
    const std::size_t fixed = kind == 2 ? 12 : kind == 3 || kind == 4 ? 28 : 0;
    if (rest_.size() < kHeaderBytes + fixed) return false;
    const std::byte* const behind = rest_.data() + kHeaderBytes;
    rest_ = rest_.subspan(kHeaderBytes + fixed);
    if (kind == 1) return take_message(length);
    if (kind == 2) return answer_read(decode_target(behind), length);
    if (kind == 3 || kind == 4) return change(kind == 4, decode_atomic(behind));
    if (kind == 7) return end();
    return take_answer(kind == 5, length);
  }
  bool take_message(std::uint32_t length) {
    if (length > kBufferBytes) return end();
    if (rest_.size() < length) return false;
    messages_.emplace_back(rest_.begin(), rest_.begin() + length);
    rest_ = rest_.subspan(length);
    return true;
  }
  bool answer_read(const Target& target, std::uint32_t length) {
    const World& of = world();
    if (const auto at = in(of.readable, of.readable_key, target, length)) {
      add(Kind::kData, Bytes(of.readable).subspan(*at, length));
    } else if (const auto word = in(of.words, of.words_key, target, length)) {
      // As it is when it is sent, which is after the frames that have come with it.
      has_read_words_ = true;
      add(Kind::kData, Bytes(words_).subspan(*word, length));
    } else {
      return refuse();
    }
    return true;
  }
  bool change(bool adds, const AtomicRequest& request) {
    const World& of = world();
    const auto at = in(of.words, of.words_key, request.target, 8);
    if (!at || *at % 8 != 0) return refuse();
    const auto old = load_le<std::uint64_t>(words_.data() + *at);
    const std::uint64_t now = adds                            ? old + request.compare_or_add
                              : old == request.compare_or_add ? request.swap
                                                              : old;
    store_le(words_.data() + *at, now);
    std::array<std::byte, 8> bytes{};
    store_le(bytes.data(), old);
    add(Kind::kWord, bytes);
    return true;
  }
  // The connection has asked for a READ, and then for a word.
  bool take_answer(bool is_read, std::uint32_t length) {
    if (answered_ == 2 || is_read != (answered_ == 0)) return end();
    if (length != (is_read ? kOwnReadBytes : 8)) return end();
    if (rest_.size() < length) return false;
    rest_ = rest_.subspan(length);
    ++answered_;
    return true;
  }

 public:
  // Then what it read of them is not compared.
  bool has_read_words() const { return has_read_words_; }

 private:
  Bytes rest_;
  bool is_over_ = false;
  bool is_refused_ = false;
  bool has_read_words_ = false;
  std::size_t answered_ = 0;
  Buffer answers_;
  std::deque<Buffer> messages_;
  std::array<std::byte, kRegionBytes> words_{};
};

// The connection under test, and the socket of its peer.
class Ends {
 public:
  Ends() : queue_(make_queue()) {
    std::array<int, 2> sockets{};
    RKV_CHECK(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets.data()) == 0,
        "no sockets");
    peer_ = Fd(sockets[1]);
    const ConnectionOptions options{.sends_in_flight = 4, .grant = Access::kRemoteReadAtomic};
    auto room = queue_->room().reserve(options.sends_in_flight + 1);
    RKV_CHECK(room.has_value(), "no room");
    connection_.emplace(*queue_, std::move(*room), options, Link{.socket = Fd(sockets[0])});
    RKV_CHECK(connection_->start().has_value(), "no start");
    const std::array<Operation, 2> own{
        Operation{.kind = Operation::Kind::kRead, .local = MutableBytes(own_).first(kOwnReadBytes)},
        Operation{.kind = Operation::Kind::kFetchAdd,
                  .local = MutableBytes(own_).subspan(kOwnReadBytes, 8)}};
    RKV_CHECK(connection_->post(own) == 2U, "not posted");
    hear();
    heard_.clear();  // its requests
  }

  void say(Bytes bytes) {
    RKV_CHECK(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                      static_cast<ssize_t>(bytes.size()) ||
                  has_ended_,
              "the socket is full");
    poll();
  }
  bool has_ended() const { return has_ended_; }
  const Buffer& heard() const { return heard_; }
  const std::deque<Buffer>& messages() const { return messages_; }
  std::size_t completed() const { return completed_; }

 private:
  static std::unique_ptr<TcpQueue> make_queue() {
    auto made = TcpQueue::create(world().shared, {.completions = 16,
                                                  .receive_buffers = kBuffers,
                                                  .receive_bytes = kBufferBytes,
                                                  .poll = PollMode::kBusy});
    RKV_CHECK(made.has_value(), "no queue");
    return std::move(*made);
  }
  void poll() {
    std::array<Completion, 4> some{};
    while (const std::size_t count = queue_->poll(some)) {
      for (const Completion& one : std::span(some).first(count))
        take(one);
    }
    hear();
  }
  void take(const Completion& one) {
    RKV_CHECK(!has_ended_, "a completion behind the end");
    if (one.kind == Completion::Kind::kReceive) {
      messages_.emplace_back(one.message.begin(), one.message.end());
      const std::uint32_t buffer = one.receive_buffer;
      queue_->release({&buffer, 1});
    } else if (one.kind == Completion::Kind::kDisconnected) {
      has_ended_ = true;
    } else if (one.status == Completion::Status::kOk) {
      ++completed_;
    }
  }
  void hear() {
    std::array<std::byte, 4096> some{};
    for (;;) {
      const ssize_t got = ::recv(peer_.get(), some.data(), some.size(), MSG_DONTWAIT);
      if (got <= 0) return;
      append(heard_, Bytes(some).first(static_cast<std::size_t>(got)));
    }
  }

  const std::unique_ptr<TcpQueue> queue_;
  std::array<std::byte, kOwnReadBytes + 8> own_{};
  Fd peer_;
  std::optional<TcpConnection> connection_;
  bool has_ended_ = false;
  std::size_t completed_ = 0;
  Buffer heard_;
  std::deque<Buffer> messages_;
};

bool is_beginning(const Buffer& part, const Buffer& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

void run(Input input) {
  world().reset();
  const auto piece = input.number<std::uint8_t>();
  const Buffer bytes = said(input);
  const Model model(bytes);
  Ends ends;
  const std::size_t step = piece == 0 ? bytes.size() : piece;
  for (std::size_t at = 0; at < bytes.size() && !ends.has_ended(); at += step)
    ends.say(Bytes(bytes).subspan(at, std::min(step, bytes.size() - at)));
  const bool breaks = model.is_over() && !model.is_refused();
  RKV_CHECK(!breaks || ends.has_ended(), "what breaks the protocol has no end");
  RKV_CHECK(model.is_over() || !ends.has_ended(), "an end that nobody asked for");
  RKV_CHECK(ends.messages() == model.messages(), "other messages");
  RKV_CHECK(ends.completed() == model.answered_requests(), "other completions");
  if (model.has_read_words()) {
    RKV_CHECK(ends.heard().size() <= model.answers().size(), "more than was asked for");
  } else {
    RKV_CHECK(is_beginning(ends.heard(), model.answers()), "other answers");
  }
  RKV_CHECK(breaks || ends.heard().size() == model.answers().size(), "answers are missing");
  RKV_CHECK(std::memcmp(model.words().data(), world().words.data(), kRegionBytes) == 0,
            "other words");
  for (std::size_t i = 0; i < kRegionBytes; ++i) {
    RKV_CHECK(world().readable[i] == static_cast<std::byte>(i),
              "memory that may be READ has changed");
    RKV_CHECK(world().secret[i] == std::byte{0x5a}, "memory of nobody has changed");
  }
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rkv::fuzz::run(rkv::fuzz::Input(data, size));
  return 0;
}
