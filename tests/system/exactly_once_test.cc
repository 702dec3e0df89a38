// Writes over connections that break all the time: each is carried out once, and no caller notices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "common/random.h"
#include "tests/system/raw.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

// Loses answers: one in `cut_in` ends its connection instead, and with it all that come behind.
class CuttingQueue final : public rdma::Queue {
 public:
  CuttingQueue(std::unique_ptr<rdma::Queue> real, std::uint64_t cut_in, std::uint64_t seed)
      : real_(std::move(real)), cut_in_(cut_in), random_(seed) {}
  rdma::Queue& real() { return *real_; }

  std::size_t poll(std::span<rdma::Completion> out) override {
    const std::size_t arrived = real_->poll(out);
    std::size_t kept = 0;
    for (const rdma::Completion& one : out.first(arrived)) {
      if (one.kind == rdma::Completion::Kind::kDisconnected && one.connection == cut_) {
        cut_ = nullptr;
      }
      const bool is_answer = one.kind == rdma::Completion::Kind::kReceive;
      if (is_answer && cut_ == nullptr && random_.below(cut_in_) == 0) {
        cut_ = one.connection;
        cut_->abort();
      }
      if (is_answer && cut_ == one.connection) {
        real_->release({&one.receive_buffer, 1});
      } else {
        out[kept++] = one;
      }
    }
    return kept;
  }
  void wait(const Deadline& deadline) override { real_->wait(deadline); }
  bool waits_asleep() const override { return real_->waits_asleep(); }
  void wake() override { real_->wake(); }
  void release(std::span<const std::uint32_t> buffers) override { real_->release(buffers); }
  std::size_t connections() const override { return real_->connections(); }
  void abandon() override { real_->abandon(); }
  bool is_ready() override { return real_->is_ready(); }
  std::optional<int> begin_sleep() override { return real_->begin_sleep(); }
  void end_sleep() override { real_->end_sleep(); }

 private:
  std::unique_ptr<rdma::Queue> real_;
  const std::uint64_t cut_in_;
  Random random_;
  rdma::Connection* cut_ = nullptr;
};

// The transport of one client. Others may ask for its session, to end it.
class CuttingTransport final : public rdma::Transport {
 public:
  CuttingTransport(std::unique_ptr<rdma::Transport> real, std::uint64_t cut_in, std::uint64_t seed)
      : real_(std::move(real)), cut_in_(cut_in), seed_(seed) {}
  std::uint64_t session() const { return session_.load(); }

  std::string describe() const override { return real_->describe(); }
  bool pins_receive_buffers() const override { return real_->pins_receive_buffers(); }
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t length, rdma::Access access) override {
    return real_->allocate(length, access);
  }
  Result<std::unique_ptr<rdma::Queue>> create_queue(const rdma::QueueOptions& options) override {
    RKV_ASSIGN_OR_RETURN(auto queue, real_->create_queue(options));
    return std::make_unique<CuttingQueue>(std::move(queue), cut_in_, ++seed_);
  }
  Result<std::unique_ptr<rdma::Listener>> listen(const std::string& address) override {
    return real_->listen(address);
  }
  Result<std::unique_ptr<rdma::Connection>> connect(rdma::Queue& queue,
                                                    const rdma::ConnectionOptions& options,
                                                    const std::string& address, Bytes private_data,
                                                    const Deadline& deadline,
                                                    rdma::Rejection* rejection) override {
    RKV_ASSIGN_OR_RETURN(auto made,
                         real_->connect(static_cast<CuttingQueue&>(queue).real(), options, address,
                                        private_data, deadline, rejection));
    if (const auto accept = decode_connect_accept(made->private_data())) {
      session_.store(accept->session);
    }
    return made;
  }

 private:
  std::unique_ptr<rdma::Transport> real_;
  const std::uint64_t cut_in_;
  std::uint64_t seed_;
  std::atomic<std::uint64_t> session_{0};
};

// The acknowledged changes of one thread.
struct Acknowledged {
  std::int64_t counted = 0;
  std::uint64_t writes = 0;
};

class Writer {
 public:
  Writer(const Server& server, int number)
      : number_(number),
        random_(static_cast<std::uint64_t>(number)),
        transport_(std::make_shared<CuttingTransport>(make_transport(server.address()), kCutIn,
                                                      static_cast<std::uint64_t>(number) << 32)),
        client_(*Client::connect({.server = server.address(), .timeout = kPatience}, transport_)) {}

  void run(int rounds) {
    for (round_ = 0; round_ < rounds && !::testing::Test::HasFailure(); ++round_) {
      const WriteOptions options{.durability =
                                     round_ % 3 == 0 ? Durability::kSync : Durability::kDefault};
      add(options);
      put_if_absent(options);
      put_many(options);
      if (round_ % 8 == 0) put_large();
      if (round_ % 2 == 0) add_many();
      done_.fetch_add(1);
    }
    over_.store(true);
  }
  std::uint64_t session() const { return transport_->session(); }
  int done() const { return done_.load(); }
  bool over() const { return over_.load(); }
  const Acknowledged& acknowledged() const { return acknowledged_; }
  ClientStats stats() const { return client_.stats(); }

 private:
  static constexpr std::uint64_t kCutIn = 25;  // one answer in so many
  static constexpr std::chrono::milliseconds kPatience{60'000};

  template <class T>
  void expect(const Result<T>& result, const char* what) {
    EXPECT_TRUE(result) << what << " " << number_ << "/" << round_ << ": "
                        << to_string(result.error());
  }
  void add(const WriteOptions& options) {
    const auto summand = static_cast<std::int64_t>(random_.below(100));
    expect(client_.incr("sum", summand, options), "incr");
    acknowledged_.counted += summand;
    ++acknowledged_.writes;
  }
  // One that has been made, and whose answer was lost, must not conflict with itself.
  void put_if_absent(const WriteOptions& options) {
    const std::string key = fmt::format("lock/{}/{}", number_, round_);
    expect(client_.put_with(key, "mine", {.if_absent = true, .durability = options.durability}),
           "put_if_absent");
    ++acknowledged_.writes;
  }
  void put_many(const WriteOptions& options) {
    std::vector<std::string> keys;
    for (int i = 0; i < 100; ++i)
      keys.push_back(fmt::format("many/{}/{}", number_, i));
    const std::string value = fmt::format("{}", round_);
    std::vector<KeyValue> items;
    for (const std::string& key : keys)
      items.push_back({.key = key, .value = value});
    for (const auto& version : client_.multi_put(items, options))
      expect(version, "multi_put");
    acknowledged_.writes += items.size();
  }
  void put_large() {
    const std::string value(kMaxInlineBytes + 1 + random_.below(300'000), 'v');
    expect(client_.put(fmt::format("large/{}", number_), value), "put of a large value");
    ++acknowledged_.writes;
  }
  // The server has no cells: additions go in packs.
  void add_many() {
    std::vector<OneSidedCounter> counters;
    for (int i = 0; i < 10; ++i)
      counters.push_back(*client_.open_counter("sum"));
    std::vector<CounterAddition> additions;
    for (OneSidedCounter& counter : counters)
      additions.push_back({.counter = &counter, .summand = 3});
    for (const auto& result : client_.multi_incr(additions))
      expect(result, "multi_incr");
    acknowledged_.counted += 30;
    acknowledged_.writes += 10;
  }

  const int number_;
  Random random_;
  std::shared_ptr<CuttingTransport> transport_;
  Client client_;
  Acknowledged acknowledged_;
  int round_ = 0;
  std::atomic<int> done_{0};
  std::atomic<bool> over_{false};
};

// Ends a writer's session whenever it has done some rounds: by a connection request that names it
// as its last one, as the writer itself would.
void end_sessions(const Server& server, std::span<const std::unique_ptr<Writer>> writers) {
  const auto transport = make_transport(server.address());
  std::vector<int> last(writers.size());
  const auto over = [](const auto& writer) { return writer->over(); };
  while (!std::ranges::all_of(writers, over)) {
    for (std::size_t i = 0; i < writers.size(); ++i) {
      if (writers[i]->done() - last[i] < 2) continue;
      last[i] = writers[i]->done();
      const Raw thief(*transport, server.address(), {}, writers[i]->session());
      EXPECT_TRUE(thief.connected()) << thief.refusal();
    }
    std::this_thread::yield();
  }
}

TEST(ExactlyOnce, WritesOverConnectionsThatBreak) {
  const ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data"), "--threads", "2",
                 "--counter-cells", "0", "--max-clients", "256"});
  // Over verbs the end of a connection takes up to a second to be noticed.
  const bool is_verbs = test_transport() == Transport::kVerbs;
  const int rounds = is_verbs ? 12 : 60;
  Client reader = server.client();
  ASSERT_TRUE(reader.put("first", "value"));
  const std::uint64_t first = server_stat(reader, "last_sequence");
  ASSERT_TRUE(reader.put("second", "value"));
  const std::uint64_t second = server_stat(reader, "last_sequence");
  std::vector<std::unique_ptr<Writer>> writers;
  for (int i = 1; i <= 3; ++i)
    writers.push_back(std::make_unique<Writer>(server, i));
  std::vector<std::thread> threads;
  threads.reserve(writers.size());
  for (const auto& writer : writers)
    threads.emplace_back([&writer, rounds] { writer->run(rounds); });
  end_sessions(server, writers);
  for (std::thread& thread : threads)
    thread.join();

  Acknowledged all;
  ClientStats stats;
  for (const auto& writer : writers) {
    all.counted += writer->acknowledged().counted;
    all.writes += writer->acknowledged().writes;
    stats += writer->stats();
  }
  const auto sum = reader.get_counter("sum");
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->number, all.counted);
  // Each write takes the next sequence, whether anybody was answered or not.
  EXPECT_EQ((server_stat(reader, "last_sequence") - second) / (second - first), all.writes)
      << "each was carried out once";
  EXPECT_EQ(stats.outcomes_unknown, 0U);
  EXPECT_GT(stats.outcomes_recovered, is_verbs ? 3U : 10U) << "too few answers were lost";
  EXPECT_GT(stats.outcomes_asked, stats.outcomes_recovered) << "too few requests were lost";
  RecordProperty("asked", static_cast<int>(stats.outcomes_asked));
  RecordProperty("recovered", static_cast<int>(stats.outcomes_recovered));
}

}  // namespace
}  // namespace rkv::testing_support
