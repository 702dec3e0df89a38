// bench_tcp: GETs and SETs of Redis and memcached over TCP, as comparison for GETs and PUTs of the
// store; see README.md. Uses the keys, values, random draws, clock and histogram of bench_get and
// bench_put, so that the comparison is of stores, not of benchmark programs.
//
//   load  stores the keys, --depth in flight
//   get   --threads connections, each with --depth GETs of evenly drawn keys in flight. For
//         memcached they are one `get` with as many keys, which is the least work for memcached
//   run   --threads connections, each with --depth operations of --workload in flight
//
// That many requests are written at once, and then all answers read, like redis-benchmark -P.
//
// Needs a running redis-server or memcached; --protocol says which. Prints one JSON object. Exit
// status: see program.h.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <future>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench/kvbench/generators.h"
#include "bench/program.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A blocking stream of lines and bytes. It spins for answers, as a client of the store does.
class Connection {
 public:
  explicit Connection(const Arguments& given)
      : spin_(given.text("poll") == "busy"    ? Clock::duration::max()
              : given.text("poll") == "event" ? Clock::duration::zero()
                                              : kSpin),
        buffer_(std::size_t{1} << 16) {
    const std::string& server = given.text("server");
    const std::size_t colon = server.rfind(':');
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    std::uint16_t port = 0;
    const char* const end = server.data() + server.size();
    if (colon == std::string::npos ||
        std::from_chars(server.data() + colon + 1, end, port).ptr != end ||
        inet_pton(AF_INET, server.substr(0, colon).c_str(), &address.sin_addr) != 1) {
      throw Misuse("--server needs an IPv4 address and a port, such as 127.0.0.1:6379");
    }
    address.sin_port = htons(port);
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) fail("socket");
    const int on = 1;
    if (setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      const int why = errno;
      close(socket_);
      throw std::system_error(why, std::generic_category(), "connect to " + server);
    }
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) fail("send");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  // The next line without its end; valid until the next call.
  std::string_view line() {
    for (;;) {
      const std::string_view unread(buffer_.data() + first_, last_ - first_);
      if (const std::size_t end = unread.find("\r\n"); end != std::string_view::npos) {
        first_ += end + 2;
        return unread.substr(0, end);
      }
      receive();
    }
  }

  // Copies a value, as a client does for its caller, and skips the end of its line.
  void value(std::string& into) {
    std::size_t copied = 0;
    const std::size_t wanted = into.size() + 2;
    while (copied < wanted) {
      if (first_ == last_) receive();
      const std::size_t some = std::min(last_ - first_, wanted - copied);
      if (copied < into.size()) {
        std::copy_n(buffer_.data() + first_, std::min(some, into.size() - copied),
                    into.data() + copied);
      }
      first_ += some;
      copied += some;
    }
  }

 private:
  static constexpr Clock::duration kSpin = std::chrono::microseconds(20);

  void receive() {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(first_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(last_), buffer_.begin());
    last_ -= first_;
    first_ = 0;
    if (last_ == buffer_.size()) throw std::runtime_error("an answer has no end");
    const auto begin = Clock::now();
    for (bool spins = spin_ > Clock::duration::zero();;) {
      const ssize_t got =
          recv(socket_, buffer_.data() + last_, buffer_.size() - last_, spins ? MSG_DONTWAIT : 0);
      if (got > 0) {
        last_ += static_cast<std::size_t>(got);
        return;
      }
      if (got == 0) throw std::runtime_error("the server has closed the connection");
      if (errno != EAGAIN) fail("recv");
      spins = Clock::now() - begin < spin_;
    }
  }

  const Clock::duration spin_;
  int socket_ = -1;
  std::vector<char> buffer_;
  std::size_t first_ = 0;
  std::size_t last_ = 0;
};

void expect(std::string_view line, std::string_view wanted) {
  if (line != wanted) {
    throw std::runtime_error(
        fmt::format("the server answered '{}' instead of '{}'", line.substr(0, 100), wanted));
  }
}

class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual void set(std::string& out, std::string_view key, std::string_view value) const = 0;
  virtual std::string_view stored() const = 0;  // the reply to a successful store
  virtual void get(std::string& out, const std::vector<std::string_view>& keys) const = 0;
  virtual void read(Connection& from, const std::vector<std::string_view>& keys,
                    std::string& value) const = 0;
};

// https://redis.io/docs/latest/develop/reference/protocol-spec
class Redis final : public Protocol {
 public:
  explicit Redis(std::size_t value_bytes) : found_(fmt::format("${}", value_bytes)) {}
  void set(std::string& out, std::string_view key, std::string_view value) const override {
    fmt::format_to(std::back_inserter(out), "*3\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n{}\r\n",
                   key.size(), key, value.size(), value);
  }
  std::string_view stored() const override { return "+OK"; }
  void get(std::string& out, const std::vector<std::string_view>& keys) const override {
    for (const std::string_view key : keys)
      fmt::format_to(std::back_inserter(out), "*2\r\n$3\r\nGET\r\n${}\r\n{}\r\n", key.size(), key);
  }
  void read(Connection& from, const std::vector<std::string_view>& keys,
            std::string& value) const override {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      expect(from.line(), found_);
      from.value(value);
    }
  }

 private:
  const std::string found_;
};

// doc/protocol.txt of memcached.
class Memcached final : public Protocol {
 public:
  explicit Memcached(std::size_t value_bytes) : found_(fmt::format(" 0 {}", value_bytes)) {}
  void set(std::string& out, std::string_view key, std::string_view value) const override {
    fmt::format_to(std::back_inserter(out), "set {} 0 0 {}\r\n{}\r\n", key, value.size(), value);
  }
  std::string_view stored() const override { return "STORED"; }
  void get(std::string& out, const std::vector<std::string_view>& keys) const override {
    out.append("get");
    for (const std::string_view key : keys)
      out.append(" ").append(key);
    out.append("\r\n");
  }
  void read(Connection& from, const std::vector<std::string_view>& keys,
            std::string& value) const override {
    for (const std::string_view key : keys) {
      std::string_view line = from.line();
      if (!line.starts_with("VALUE ") || line.substr(6, key.size()) != key)
        expect(line, fmt::format("VALUE {}", key));
      line.remove_prefix(6 + key.size());
      expect(line, found_);
      from.value(value);
    }
    expect(from.line(), "END");
  }

 private:
  const std::string found_;
};

std::unique_ptr<Protocol> protocol(const Arguments& given) {
  const std::string& name = given.text("protocol");
  if (name == "redis") return std::make_unique<Redis>(given["value-bytes"]);
  if (name == "memcached") return std::make_unique<Memcached>(given["value-bytes"]);
  throw Misuse("--protocol must be redis or memcached");
}

json rate(std::uint64_t operations, Clock::time_point begin) {
  return {{"operations", operations},
          {"operations_per_s", static_cast<double>(operations) / seconds_since(begin)}};
}

json load(const Arguments& given) {
  const auto spoken = protocol(given);
  const std::string value(given["value-bytes"], 'v');
  const std::vector<std::string> keys = keys_of(given["keys"]);
  Connection connection(given);
  const auto begin = Clock::now();
  std::string out;
  for (std::size_t first = 0; first < keys.size();) {
    const std::size_t end = std::min<std::size_t>(keys.size(), first + given["depth"]);
    out.clear();
    for (std::size_t i = first; i < end; ++i)
      spoken->set(out, keys[i], value);
    connection.write(out);
    for (; first < end; ++first)
      expect(connection.line(), spoken->stored());
  }
  return rate(keys.size(), begin);
}

// A mix of operations. A read-modify-write is a GET and a SET that does not wait for it.
struct Workload {
  std::string_view name;
  std::uint64_t reads = 0;  // of a hundred operations; the others are as follows
  bool reads_before_writing = false;
  bool zipfian = true;  // else keys are drawn evenly
};
constexpr std::array<Workload, 4> kWorkloads{{
    {.name = "overwrite", .zipfian = false},
    {.name = "a", .reads = 50},
    {.name = "b", .reads = 95},
    {.name = "f", .reads = 50, .reads_before_writing = true},
}};

const Workload& workload(const Arguments& given) {
  for (const Workload& one : kWorkloads) {
    if (one.name == given.text("workload")) return one;
  }
  throw Misuse("--workload must be overwrite, or a, b or f of YCSB");
}

void run_mix(const Arguments& given, const Workload& mix, const Protocol& spoken,
             Connection& connection, const std::vector<std::string>& names, std::uint64_t seed) {
  const kvbench::ScrambledZipfian popular(0, names.size() - 1);
  Random random(seed);
  const std::string written(given["value-bytes"], 'w');
  std::string value(given["value-bytes"], '\0');
  std::string out;
  std::vector<std::string_view> read(1);
  enum class Sent : std::uint8_t { kGet, kSet };
  std::vector<Sent> sent;
  const std::uint64_t rounds = given["gets"] / given["depth"];
  for (std::uint64_t round = 0; round < rounds; ++round) {
    out.clear();
    sent.clear();
    for (std::uint64_t i = 0; i < given["depth"]; ++i) {
      read[0] = names[mix.zipfian ? popular.next(random) : random.below(names.size())];
      const bool reads = random.below(100) < mix.reads;
      if (reads || mix.reads_before_writing) {
        spoken.get(out, read);
        sent.push_back(Sent::kGet);
      }
      if (!reads) {
        spoken.set(out, read[0], written);
        sent.push_back(Sent::kSet);
      }
    }
    connection.write(out);
    for (const Sent one : sent) {
      if (one == Sent::kSet)
        expect(connection.line(), spoken.stored());
      else
        spoken.read(connection, read, value);
    }
  }
}

json run(const Arguments& given) {
  const Workload& mix = workload(given);
  // Its answers to a GET name the key, which is not kept for each GET in flight.
  if (given.text("protocol") != "redis") throw Misuse("--phase run needs --protocol redis");
  const auto spoken = protocol(given);
  const std::vector<std::string> names = keys_of(given["keys"]);
  std::vector<std::unique_ptr<Connection>> connections;
  for (std::uint64_t i = 0; i < given["threads"]; ++i)
    connections.push_back(std::make_unique<Connection>(given));
  std::vector<std::future<void>> running;
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < connections.size(); ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      run_mix(given, mix, *spoken, *connections[i], names, i + 1);
    }));
  }
  for (auto& each : running)
    each.get();
  return rate(given["gets"] / given["depth"] * given["depth"] * connections.size(), begin);
}

Histogram get_at_random(const Arguments& given, const Protocol& spoken, Connection& connection,
                        const std::vector<std::string>& names, std::uint64_t seed) {
  Histogram nanoseconds;
  Random random(seed);
  std::vector<std::string_view> wanted(given["depth"]);
  std::string out;
  std::string value(given["value-bytes"], '\0');
  const std::uint64_t rounds = given["gets"] / wanted.size();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::string_view& key : wanted)
      key = names[random.below(names.size())];
    const auto begin = Clock::now();
    out.clear();
    spoken.get(out, wanted);
    connection.write(out);
    spoken.read(connection, wanted, value);
    nanoseconds.record(static_cast<std::uint64_t>((Clock::now() - begin).count()));
  }
  return nanoseconds;
}

json get(const Arguments& given) {
  const auto spoken = protocol(given);
  const std::vector<std::string> names = keys_of(given["keys"]);
  const std::uint64_t count = given["threads"];
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::future<Histogram>> running;
  for (std::uint64_t i = 0; i < count; ++i)
    connections.push_back(std::make_unique<Connection>(given));
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      return get_at_random(given, *spoken, *connections[i], names, i + 1);
    }));
  }
  Histogram nanoseconds;
  for (auto& each : running)
    nanoseconds.merge(each.get());
  const double seconds = seconds_since(begin);
  const std::uint64_t gets = nanoseconds.count() * given["depth"];
  json result = percentiles(nanoseconds);  // of rounds
  result["gets"] = gets;
  result["gets_per_s"] = static_cast<double>(gets) / seconds;
  return result;
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(
      argc, argv,
      {.name = "bench_tcp",
       .purpose = "GETs and SETs of Redis and of memcached over TCP.",
       .flags = {{"threads", "number of connections", 1},
                 {"gets", "operations of each connection to measure", 5000},
                 {"keys", "records in the store", 10'000},
                 {"value-bytes", "size of a value", 100},
                 {"depth", "operations in flight", 1}},
       .phases = {{"load", rkv::bench::load}, {"get", rkv::bench::get}, {"run", rkv::bench::run}},
       .texts = {{"protocol", "redis or memcached", "redis"},
                 {"workload", "overwrite, or a, b or f of YCSB", "overwrite"}}});
}
