// The required behaviour of a byte stream over every message transport, with coroutines and by
// polling. The worlds are those of transport_scenarios.h.
#pragma once

#include <thread>

#include "rkv/rdma/message/stream.h"
#include "tests/rdma/extras/message/ends.h"

namespace rkv::rdma::testing {

template <class World>
class StreamScenarios : public ::testing::Test {
 protected:
  using Transport = typename World::Builder::Transport;
  using Pipe = Stream<Transport>;
  using Count = Result<std::size_t>;

  // Two streams driven by one executor.
  struct Pipes {
    std::unique_ptr<EpollExecutor> executor = need(EpollExecutor::create());
    std::optional<Pipe> client;
    std::optional<Pipe> server;

    explicit Pipes(bool tiny, const StreamOptions& options = {}) {
      const auto builder = tiny ? World::tiny() : World::usual();
      auto ends = connect_ends(builder, builder, World::address());
      client.emplace(std::move(ends.client), *executor, options);
      server.emplace(std::move(ends.server), *executor, options);
    }
    template <class... T>
    void run_all(Task<T>... tasks) {
      need(run(*executor, soon(kLongPatienceMs), tasks...));
    }
  };

  static Task<> write_all(Pipe& to, std::span<const std::byte> bytes) {
    const Count count = co_await to.write(bytes);
    EXPECT_TRUE(count) << to_string(count.error());
    EXPECT_EQ(count.value_or(0), bytes.size());
  }
  // Reads until `into` is full, in portions of at most `portion`.
  static Task<> read_exactly(Pipe& from, std::vector<std::byte>& into, std::size_t portion) {
    for (std::size_t done = 0; done < into.size();) {
      const std::size_t most = std::min(portion, into.size() - done);
      const Count count = co_await from.read(MutableBytes(into).subspan(done, most));
      EXPECT_TRUE(count) << to_string(count.error());
      if (!count || *count == 0) {
        ADD_FAILURE() << "the stream ended after " << done << " bytes";
        co_return;
      }
      done += *count;
    }
  }
  static Task<> expect_pattern(Pipe& from, std::uint64_t number, std::size_t length) {
    std::vector<std::byte> got(length);
    co_await read_exactly(from, got, 10000);
    EXPECT_TRUE(is_pattern(got, number));
  }
  static Task<> send_pattern(Pipe& to, std::uint64_t number, std::size_t length) {
    const auto bytes = pattern(number, length);
    co_await write_all(to, bytes);
  }
  static Task<> expect_end(Pipe& from) {
    std::array<std::byte, 8> one;
    const Count count = co_await from.read(one);
    EXPECT_TRUE(count) << to_string(count.error());
    EXPECT_EQ(count.value_or(1), 0U);
  }
  static Task<> shut(Pipe& stream) {
    const Count done = co_await stream.shutdown();
    EXPECT_TRUE(done) << to_string(done.error());
  }
  static Task<> echo(Pipe& stream) {
    std::vector<std::byte> buffer(4096);
    const auto total = co_await copy_stream(stream, stream, MutableBytes(buffer));
    EXPECT_TRUE(total) << to_string(total.error());
  }
};
TYPED_TEST_SUITE_P(StreamScenarios);

TYPED_TEST_P(StreamScenarios, AnEchoThenTheEnd) {
  typename TestFixture::Pipes pipes(false);
  const auto talk = [](auto& stream) -> Task<> {
    for (std::uint64_t i = 0; i < 20; ++i) {
      co_await TestFixture::send_pattern(stream, i, 1 + 37 * i);
      co_await TestFixture::expect_pattern(stream, i, 1 + 37 * i);
    }
    co_await TestFixture::shut(stream);
  };
  pipes.run_all(this->echo(*pipes.server), talk(*pipes.client));
}

TYPED_TEST_P(StreamScenarios, ManyWritesAreOneStream) {
  typename TestFixture::Pipes pipes(true);
  const auto whole = pattern(3, 20000);
  const auto write = [&](auto& stream) -> Task<> {
    for (std::size_t done = 0; done < whole.size();) {
      const std::size_t part = std::min<std::size_t>(1 + done % 700, whole.size() - done);
      co_await TestFixture::write_all(stream, Bytes(whole).subspan(done, part));
      done += part;
    }
  };
  pipes.run_all(write(*pipes.client), this->expect_pattern(*pipes.server, 3, whole.size()));
}

TYPED_TEST_P(StreamScenarios, ALargeWriteIsDeliveredWhole) {
  typename TestFixture::Pipes pipes(false);
  const std::size_t length = std::size_t{3} << 20;
  pipes.run_all(this->send_pattern(*pipes.client, 9, length),
                this->expect_pattern(*pipes.server, 9, length));
}

TYPED_TEST_P(StreamScenarios, RequestsArePipelined) {
  typename TestFixture::Pipes pipes(true);
  const auto requests = [](auto& stream) -> Task<> {
    for (std::uint64_t i = 0; i < 50; ++i)
      co_await TestFixture::send_pattern(stream, i, 300);
  };
  const auto answers = [](auto& stream) -> Task<> {
    for (std::uint64_t i = 0; i < 50; ++i)
      co_await TestFixture::expect_pattern(stream, i, 300);
    co_await TestFixture::shut(stream);
  };
  pipes.run_all(requests(*pipes.client), this->echo(*pipes.server), answers(*pipes.client));
}

// Both write far more than all buffers hold, and read only afterwards (STREAM-2).
TYPED_TEST_P(StreamScenarios, TwoThatWriteBeforeTheyReadDoNotWaitForEachOther) {
  typename TestFixture::Pipes pipes(true);
  const std::size_t length = 200000;
  const auto side = [&](auto& stream, std::uint64_t mine, std::uint64_t others) -> Task<> {
    co_await TestFixture::send_pattern(stream, mine, length);
    co_await TestFixture::expect_pattern(stream, others, length);
  };
  pipes.run_all(side(*pipes.client, 1, 2), side(*pipes.server, 2, 1));
}

TYPED_TEST_P(StreamScenarios, AFullStashHoldsThePeerBackAndLosesNothing) {
  typename TestFixture::Pipes pipes(true, {.stash_bytes_max = 2000});
  const std::size_t length = 50000;
  // The server's write is blocked until the client reads, and its stash fills meanwhile.
  std::size_t most = 0;
  const auto blocked = [&](auto& stream) -> Task<> {
    co_await TestFixture::send_pattern(stream, 1, length);
    most = stream.stashed();
    co_await TestFixture::expect_pattern(stream, 2, length);
  };
  const auto both = [&](auto& stream) -> Task<> {
    co_await TestFixture::send_pattern(stream, 2, 2300);
    co_await TestFixture::expect_pattern(stream, 1, length);
    const auto rest = pattern(2, length);
    co_await TestFixture::write_all(stream, Bytes(rest).subspan(2300));
  };
  pipes.run_all(blocked(*pipes.server), both(*pipes.client));
  EXPECT_GT(most, 0U);
  EXPECT_LE(most, 2000U);
}

TYPED_TEST_P(StreamScenarios, PiecesAreScatteredAndGathered) {
  typename TestFixture::Pipes pipes(false);
  const auto whole = pattern(4, 1000);
  const std::array<Bytes, 4> out = {Bytes(whole).first(1), Bytes(), Bytes(whole).subspan(1, 600),
                                    Bytes(whole).subspan(601)};
  std::vector<std::byte> got(1000);
  const std::array<MutableBytes, 3> in = {MutableBytes(got).first(500), MutableBytes(),
                                          MutableBytes(got).subspan(500)};
  const auto write = [&](auto& stream) -> Task<> {
    // One message, as long as the transport takes.
    const auto count = co_await stream.write_vectored(out);
    EXPECT_GE(count.value_or(0), 100U);
    co_await TestFixture::write_all(stream, Bytes(whole).subspan(count.value_or(0)));
    co_await TestFixture::shut(stream);
  };
  const auto read = [&](auto& stream) -> Task<> {
    const auto count = co_await stream.read_vectored(in);
    std::vector<std::byte> rest(1000 - count.value_or(0));
    co_await TestFixture::read_exactly(stream, rest, 1000);
    std::ranges::copy(rest, got.end() - static_cast<std::ptrdiff_t>(rest.size()));
    EXPECT_TRUE(is_pattern(got, 4));
    co_await TestFixture::expect_end(stream);
  };
  pipes.run_all(write(*pipes.client), read(*pipes.server));
}

TYPED_TEST_P(StreamScenarios, ShutdownDeliversWhatWasWrittenThenTheEnd) {
  typename TestFixture::Pipes pipes(true);
  const auto write = [](auto& stream) -> Task<> {
    co_await TestFixture::send_pattern(stream, 6, 1500);
    co_await TestFixture::shut(stream);
  };
  // The reader starts long after the writer has ended: the writer does not wait for an answer.
  pipes.run_all(write(*pipes.client), this->expect_pattern(*pipes.server, 6, 1500));
  pipes.run_all(this->expect_end(*pipes.server));
  pipes.run_all(this->expect_end(*pipes.server));  // the end stays the end
  pipes.run_all(this->shut(*pipes.server));
}

TYPED_TEST_P(StreamScenarios, ShutdownWithoutAReaderOnTheOtherSide) {
  typename TestFixture::Pipes pipes(false);
  const auto write = [](auto& stream) -> Task<> {
    co_await TestFixture::send_pattern(stream, 6, 1500);
    co_await TestFixture::shut(stream);
  };
  pipes.run_all(write(*pipes.client));
  EXPECT_FALSE(pipes.client->try_write(pattern(0, 4)));
  pipes.run_all(this->expect_pattern(*pipes.server, 6, 1500));
}

TYPED_TEST_P(StreamScenarios, AfterThePeerIsGone) {
  for (const bool writes : {false, true}) {
    typename TestFixture::Pipes pipes(false);
    pipes.client.reset();
    const auto rest = [writes](auto& stream) -> Task<> {
      if (writes) {
        // Some may be taken before the end is seen; then an error, and no call hangs.
        const auto bytes = pattern(0, 1000);
        for (bool taken = true; taken;) {
          const auto count = co_await stream.write(bytes);
          taken = count.has_value();
        }
      } else {
        co_await TestFixture::expect_end(stream);
      }
      co_await TestFixture::shut(stream);
      co_await TestFixture::shut(stream);
    };
    pipes.run_all(rest(*pipes.server));
  }
}

TYPED_TEST_P(StreamScenarios, ClosingMayComeTwiceAndInAnyOrder) {
  typename TestFixture::Pipes pipes(false);
  need(pipes.client->close());
  need(pipes.client->close());
  pipes.run_all(this->shut(*pipes.client), this->shut(*pipes.server));
  need(pipes.server->close());
  EXPECT_TRUE(need(pipes.server->try_shutdown()));
  const auto refused = pipes.server->try_write(pattern(0, 4));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDisconnected);
}

TYPED_TEST_P(StreamScenarios, AStopTokenEndsAWaitFromAnotherThread) {
  typename TestFixture::Pipes pipes(false);
  std::stop_source source;
  std::array<std::byte, 16> buffer{};
  const auto wait = [&](auto& stream) -> Task<> {
    const auto count = co_await stream.read(buffer, source.get_token());
    EXPECT_FALSE(count);
    EXPECT_TRUE(!count && is_stopped(count.error()));
    const auto again = co_await stream.read(buffer, source.get_token());
    EXPECT_FALSE(again);  // stopped before it began
  };
  auto waiting = wait(*pipes.server);
  waiting.start();
  EXPECT_EQ(pipes.executor->waiters(), 1U);
  std::jthread stopper([&] { source.request_stop(); });
  need(run(*pipes.executor, soon(), waiting));
  EXPECT_EQ(pipes.executor->waiters(), 0U);
  // The stream continues, and the abandoned buffer stays untouched.
  pipes.run_all(this->send_pattern(*pipes.client, 1, 16),
                this->expect_pattern(*pipes.server, 1, 16));
  EXPECT_EQ(buffer, (std::array<std::byte, 16>{}));
}

TYPED_TEST_P(StreamScenarios, ACoroutineThatIsDestroyedLeavesNothing) {
  typename TestFixture::Pipes pipes(true);
  {
    auto reading = this->expect_pattern(*pipes.server, 1, 100);
    auto writing = this->send_pattern(*pipes.client, 1, 500000);
    reading.start();
    writing.start();
    EXPECT_EQ(pipes.executor->waiters(), 2U);
    const auto late = run(*pipes.executor, soon(0), reading);
    EXPECT_TRUE(late || late.error().code == Code::kTimeout);
  }
  EXPECT_EQ(pipes.executor->waiters(), 0U);
  EXPECT_EQ(pipes.executor->poll(), 0U);
}

TYPED_TEST_P(StreamScenarios, ByPolling) {
  const auto builder = TypeParam::tiny();
  auto ends = connect_ends(builder, builder, TypeParam::address());
  Stream client(std::move(ends.client));
  Stream moved(std::move(client));
  Stream server(std::move(ends.server));
  const auto whole = pattern(8, 30000);
  std::vector<std::byte> got(whole.size() + 1);
  std::size_t written = 0;
  std::size_t read = 0;
  bool shut = false;
  bool ended = false;
  until(moved, server, [&] {
    if (written < whole.size())
      written += need(moved.try_write(Bytes(whole).subspan(written))).value_or(0);
    if (written == whole.size() && !shut) shut = need(moved.try_shutdown());
    for (bool more = true; more && !ended;) {
      const auto count = need(server.try_read(MutableBytes(got).subspan(read)));
      more = count.has_value();
      ended = more && *count == 0;
      read += count.value_or(0);
    }
    return ended;
  });
  EXPECT_EQ(read, whole.size());
  EXPECT_TRUE(is_pattern(Bytes(got).first(read), 8));
}

TYPED_TEST_P(StreamScenarios, OnAnExecutorThatOnlyPolls) {
  const auto builder = TypeParam::usual();
  auto ends = connect_ends(builder, builder, TypeParam::address());
  InlineExecutor executor;
  Stream client(std::move(ends.client), executor);
  Stream server(std::move(ends.server), executor);
  auto writing = this->send_pattern(client, 2, 100000);
  auto reading = this->expect_pattern(server, 2, 100000);
  need(run(executor, soon(kLongPatienceMs), writing, reading));
}

REGISTER_TYPED_TEST_SUITE_P(StreamScenarios, AnEchoThenTheEnd, ManyWritesAreOneStream,
                            ALargeWriteIsDeliveredWhole, RequestsArePipelined,
                            TwoThatWriteBeforeTheyReadDoNotWaitForEachOther,
                            AFullStashHoldsThePeerBackAndLosesNothing,
                            PiecesAreScatteredAndGathered, ShutdownDeliversWhatWasWrittenThenTheEnd,
                            ShutdownWithoutAReaderOnTheOtherSide, AfterThePeerIsGone,
                            ClosingMayComeTwiceAndInAnyOrder, AStopTokenEndsAWaitFromAnotherThread,
                            ACoroutineThatIsDestroyedLeavesNothing, ByPolling,
                            OnAnExecutorThatOnlyPolls);

}  // namespace rkv::rdma::testing
