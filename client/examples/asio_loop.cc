// The client on the event loop of Asio: get and put are awaited in Asio's own coroutines, beside a
// timer.
//
//   asio_loop [HOST:PORT]
#include <rkv/async_client.h>

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
#include <cstdio>
#include <string>
#include <utility>

namespace {

// Polls the client from an Asio loop.
class RkvOnAsio {
 public:
  RkvOnAsio(asio::io_context& loop, rkv::AsyncClient& client)
      : loop_(&loop), client_(&client), descriptor_(loop, client.descriptor()) {}
  ~RkvOnAsio() { descriptor_.release(); }  // the client closes it
  RkvOnAsio(const RkvOnAsio&) = delete;
  RkvOnAsio& operator=(const RkvOnAsio&) = delete;

  // Any operation of the client, for co_await in an asio::awaitable.
  template <class T>
  asio::awaitable<rkv::Result<T>> run(rkv::Call<T> call) {
    return asio::async_initiate<decltype(asio::use_awaitable), void(rkv::Result<T>)>(
        [this](auto handler, rkv::Call<T> started) {
          // The handler of a coroutine can only be moved, and a callback may be so.
          std::move(started).then(
              [handler = std::move(handler)](const rkv::Result<T>& result) mutable {
                const auto executor = asio::get_associated_executor(handler);
                asio::post(executor, [handler = std::move(handler), result]() mutable {
                  std::move(handler)(std::move(result));
                });
              });
          look();
        },
        asio::use_awaitable, std::move(call));
  }

 private:
  // Polls soon, and then whenever the descriptor is readable, as long as something is in flight.
  void look() {
    if (std::exchange(looks_, true)) return;
    asio::post(*loop_, [this] { turn(); });
  }
  void turn() {
    client_->poll();
    if (client_->in_flight() == 0) {
      looks_ = false;
    } else if (client_->arm()) {
      descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                             [this](const asio::error_code&) { turn(); });
    } else {
      asio::post(*loop_, [this] { turn(); });
    }
  }

  asio::io_context* loop_;
  rkv::AsyncClient* client_;
  asio::posix::stream_descriptor descriptor_;
  bool looks_ = false;
};

asio::awaitable<void> work(rkv::AsyncClient& client, RkvOnAsio& rkv) {
  const auto put = co_await rkv.run(client.put("greeting", "hello"));
  if (!put) std::fprintf(stderr, "put: %s\n", rkv::to_string(put.error()).c_str());
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(10));
  co_await timer.async_wait(asio::use_awaitable);
  const auto got = co_await rkv.run(client.get("greeting"));
  if (got) std::printf("greeting, after a timer: %s\n", got->value.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  auto client = rkv::AsyncClient::connect({.server = argc > 1 ? argv[1] : "127.0.0.1:7471"});
  if (!client) {
    std::fprintf(stderr, "connect: %s\n", rkv::to_string(client.error()).c_str());
    return 1;
  }
  asio::io_context loop;
  RkvOnAsio rkv(loop, *client);
  asio::co_spawn(loop, work(*client, rkv), asio::detached);
  loop.run();
}
