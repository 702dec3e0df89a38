// Streams on the event loop of Asio: tasks of this library are awaited in Asio's own coroutines,
// beside its timers. The adapter needs only the executor's descriptor, so one for another loop
// looks the same.
//
//   asio_loop
#include <rkv/rdma/message/executor.h>
#include <rkv/rdma/message/send_receive.h>
#include <rkv/rdma/message/stream.h>
#include <rkv/rdma/message/task.h>

#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <chrono>
#include <future>
#include <list>
#include <string>
#include <utility>

#include "pair.h"

namespace {

using namespace example;

// Polls an executor from an Asio loop of one thread.
class RdmaOnAsio {
 public:
  RdmaOnAsio(asio::io_context& loop, Executor& executor)
      : loop_(&loop), executor_(&executor), descriptor_(loop, executor.fd()) {}
  ~RdmaOnAsio() { descriptor_.release(); }  // the executor closes it
  RdmaOnAsio(const RdmaOnAsio&) = delete;
  RdmaOnAsio& operator=(const RdmaOnAsio&) = delete;

  // Any task, for co_await in an asio::awaitable.
  template <class T>
  asio::awaitable<T> run(Task<T> task) {
    return asio::async_initiate<decltype(asio::use_awaitable), void(T)>(
        [this](auto handler, Task<T> started) {
          tasks_.push_back(finish(std::move(started), std::move(handler)));
          tasks_.back().start();
          look();
        },
        asio::use_awaitable, std::move(task));
  }

 private:
  template <class T, class Handler>
  static Task<> finish(Task<T> task, Handler handler) {
    T result = co_await std::move(task);
    const auto executor = asio::get_associated_executor(handler);
    asio::post(executor, [handler = std::move(handler), result = std::move(result)]() mutable {
      std::move(handler)(std::move(result));
    });
  }

  // Polls soon, and then whenever the descriptor is readable, as long as a task waits.
  void look() {
    // A new task is not armed yet: the loop, if it sleeps, must come around once more.
    if (std::exchange(looks_, true)) return executor_->wake();
    asio::post(*loop_, [this] { turn(); });
  }
  void turn() {
    executor_->poll();
    tasks_.remove_if([](const Task<>& one) { return one.done(); });
    if (executor_->waiters() == 0) {
      looks_ = false;
      return;
    }
    const Result<bool> may_sleep = executor_->arm();
    if (may_sleep && *may_sleep) {
      descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                             [this](const asio::error_code&) { turn(); });
    } else {
      asio::post(*loop_, [this] { turn(); });
    }
  }

  asio::io_context* loop_;
  Executor* executor_;
  asio::posix::stream_descriptor descriptor_;
  std::list<Task<>> tasks_;
  bool looks_ = false;
};

using Pipe = Stream<SendReceiveTransport>;

Task<Result<std::size_t>> write(Pipe& stream, rkv::Bytes bytes) {
  co_return co_await stream.write(bytes, soon());
}
Task<Result<std::size_t>> read(Pipe& stream, rkv::MutableBytes into) {
  co_return co_await stream.read(into, soon());
}
Task<Result<std::size_t>> shut_down(Pipe& stream) {
  co_return co_await stream.shutdown(soon());
}

asio::awaitable<void> serve(RdmaOnAsio& rdma, Pipe& stream) {
  std::vector<std::byte> buffer(4096);
  const auto total = co_await rdma.run(copy_stream(stream, stream, rkv::MutableBytes(buffer)));
  if (total) std::printf("echoed %llu bytes\n", static_cast<unsigned long long>(*total));
}

asio::awaitable<void> ask(RdmaOnAsio& rdma, Pipe& stream) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  std::vector<std::byte> answer(4096);
  for (const std::string& question : {std::string("one"), std::string("two")}) {
    co_await rdma.run(write(stream, rkv::as_bytes(question)));
    const auto length = co_await rdma.run(read(stream, answer));
    if (!length) co_return;
    std::printf("read %.*s, then a timer\n", static_cast<int>(*length),
                reinterpret_cast<const char*>(answer.data()));
    timer.expires_after(std::chrono::milliseconds(10));
    co_await timer.async_wait(asio::use_awaitable);
  }
  co_await rdma.run(shut_down(stream));
}

Status run() {
  const SendReceiveBuilder builder{.options = SendReceiveOptions::stream()};
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, address_of_first_active());
  RKV_ASSIGN_OR_RETURN(auto listener, builder.listen(address));
  // Both calls block, and each waits for the other. connecting.h has coroutines for this.
  auto connecting = std::async(
      std::launch::async, [&, here = listener.address()] { return builder.connect(here, soon()); });
  auto accepted = builder.accept(listener, soon());
  auto connected = connecting.get();
  if (!connected) return std::unexpected(connected.error());
  if (!accepted) return std::unexpected(accepted.error());

  RKV_ASSIGN_OR_RETURN(const auto executor, EpollExecutor::create());
  Pipe server(std::move(*accepted), *executor);
  Pipe client(std::move(*connected), *executor);
  asio::io_context loop(1);
  RdmaOnAsio rdma(loop, *executor);
  asio::co_spawn(loop, serve(rdma, server), asio::detached);
  asio::co_spawn(loop, ask(rdma, client), asio::detached);
  loop.run();
  return {};
}

}  // namespace

int main() {
  return example::report(run());
}
